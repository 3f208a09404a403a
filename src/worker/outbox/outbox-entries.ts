// The records of the outbox's journal: reports of ended attempts, and marks for removed ones. The headers of the
// attempts that a process finds in a journal are in memory, up to a bound; their bodies stay in the file until the
// delivering worker reads them.
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type Log, silentLog } from '../../base/log.ts';
import type { LeaseRef, ReportHeader } from '../../wire/link/worker-link.ts';
import { AttemptReports, type RemainingReports } from '../reports/attempt-reports.ts';
import {
  encodeRecord,
  type Journal,
  type JournalRange,
  type ScannedRecord,
  scanJournal,
  useForeignFile,
} from './journal.ts';

const JOURNAL_FILE = 'outbox.journal';
/** Largest journal that is read for another process, bytes. It bounds the time, not the memory. */
const MAX_FOREIGN_JOURNAL_BYTES = 4 * 1_073_741_824;

/** Most bytes of the headers of all attempts that are kept in memory. */
export const MAX_TOTAL_HEADER_BYTES = 32 * 1_048_576;

/**
 * Header of a record: a report, or the token of a removed attempt. The reports of an attempt are
 * written together. `isMuted`: reports before the outcome were dropped.
 */
export type OutboxEntry = { report: ReportHeader; isMuted?: true } | { done: string };

export function locateJournal(folder: string): string {
  return join(folder, JOURNAL_FILE);
}

/** Size of the journal in this folder; 0 without one. */
export function measureJournal(folder: string): number {
  return statSync(locateJournal(folder), { throwIfNoEntry: false })?.size ?? 0;
}

/** Attempts in this folder whose outcome its process has not delivered, up to a bound. */
export async function readUndelivered(folder: string, log: Log = silentLog): Promise<LeaseRef[]> {
  const path = locateJournal(folder);
  const found = new FoundAttempts();
  try {
    await useForeignFile(path, MAX_FOREIGN_JOURNAL_BYTES, (file, size) =>
      scanJournal<OutboxEntry>(file, size, (record) => found.add(record)),
    );
  } catch (err) {
    // An unreadable journal counts as empty: nobody should wait for outcomes that may never arrive.
    if (existsSync(path)) log.warn({ err, path }, 'reading an outbox of another process failed');
    return [];
  }
  if (found.hasSkipped) warnOfSize(log, path, MAX_TOTAL_HEADER_BYTES);
  return found.complete.map(({ lease }) => lease);
}

export function warnOfSize(log: Log, path: string, maxBytes: number): void {
  log.warn({ path, maxBytes }, 'outbox is too large, only a part is read; the file stays');
}

export function encodeDone(token: string): Uint8Array[] {
  return encodeEntry({ done: token });
}

export function encodeReports({ reports, hasDroppedReports }: RemainingReports): Uint8Array[] {
  return reports.flatMap(({ body, ...report }) =>
    encodeEntry(hasDroppedReports ? { report, isMuted: true } : { report }, body),
  );
}

function encodeEntry(entry: OutboxEntry, body?: Uint8Array): Uint8Array[] {
  return encodeRecord(entry, body);
}

/** An attempt whose bodies are still in the file. */
interface FoundAttempt {
  lease: LeaseRef;
  reports: { header: ReportHeader; body: JournalRange }[];
  hasDroppedReports: boolean;
  /** Size of its records. */
  bytes: number;
  headerBytes: number;
}

/** Collects the attempts in a journal that are not removed, without their bodies. */
export class FoundAttempts {
  readonly #maxHeaderBytes: number;
  readonly #attempts = new Map<string, FoundAttempt>();
  #headerBytes = 0;
  #hasSkipped = false;

  /** Skips later attempts once the headers together exceed `maxHeaderBytes`. */
  constructor({
    maxHeaderBytes = MAX_TOTAL_HEADER_BYTES,
  }: { maxHeaderBytes?: number | undefined } = {}) {
    this.#maxHeaderBytes = maxHeaderBytes;
  }

  /** Attempts in the journal were skipped, because of the bounds of headers. */
  get hasSkipped(): boolean {
    return this.#hasSkipped;
  }

  get complete(): FoundAttempt[] {
    return [...this.#attempts.values()].filter(isComplete);
  }

  /** Attempts whose outcome is missing because the write was cut short. */
  get cutOff(): LeaseRef[] {
    const others = [...this.#attempts.values()].filter((attempt) => !isComplete(attempt));
    return others.map(({ lease }) => lease);
  }

  add({ header, ...record }: ScannedRecord<OutboxEntry>): void {
    if (header === undefined) this.#hasSkipped = true;
    // Also after a skip, because the removed attempt may have been added before it.
    else if ('done' in header) this.#remove(header.done);
    // No attempt is added after a skip: its first reports may be among the skipped ones.
    else if (!this.#hasSkipped) this.#addReport(header, record);
  }

  #addReport(
    { isMuted, report }: Extract<OutboxEntry, { report: ReportHeader }>,
    { body, bytes, headerBytes }: Omit<ScannedRecord<OutboxEntry>, 'header'>,
  ): void {
    const { attempt, jobId, seq, token } = report;
    const lease = { jobId, attempt, token };
    // An attempt's numbers grow, and this version stores an attempt once. If a journal contains one
    // twice, the later copy has all reports that were unacknowledged then: it replaces the first.
    if ((this.#attempts.get(token)?.reports.at(-1)?.header.seq ?? 0) >= seq) this.#remove(token);
    if (this.#headerBytes + headerBytes > this.#maxHeaderBytes) {
      this.#hasSkipped = true;
      this.#remove(token);
      return;
    }
    const empty: FoundAttempt = {
      lease,
      reports: [],
      hasDroppedReports: isMuted === true,
      bytes: 0,
      headerBytes: 0,
    };
    const found = this.#attempts.get(token) ?? empty;
    found.reports.push({ header: report, body });
    found.bytes += bytes;
    found.headerBytes += headerBytes;
    this.#headerBytes += headerBytes;
    this.#attempts.set(token, found);
  }

  #remove(token: string): void {
    this.#headerBytes -= this.#attempts.get(token)?.headerBytes ?? 0;
    this.#attempts.delete(token);
  }
}

function isComplete({ reports }: FoundAttempt): boolean {
  return reports.at(-1)?.header.kind === 'outcome';
}

interface RestoredAttempts {
  /** With the size of each attempt's records. */
  restored: Map<AttemptReports, number>;
  /** The first attempt beyond the bound and all later ones. */
  unread: LeaseRef[];
}

/**
 * Reads attempts up to `maxBytes`, and always the first one: otherwise a larger attempt would never
 * be delivered. Closes the journal if it throws. @throws any error of the file system
 */
export async function restoreAttempts(
  journal: Journal,
  found: readonly FoundAttempt[],
  maxBytes: number,
): Promise<RestoredAttempts> {
  const restored = new Map<AttemptReports, number>();
  let readBytes = 0;
  try {
    for (const { bytes, hasDroppedReports, lease, reports } of found) {
      readBytes += bytes;
      if (restored.size > 0 && readBytes > maxBytes) break;
      const remaining: RemainingReports = { reports: [], hasDroppedReports };
      for (const { body, header } of reports) {
        remaining.reports.push({ ...header, body: await journal.read(body) });
      }
      restored.set(AttemptReports.restore(lease, remaining), bytes);
    }
  } catch (error) {
    await journal.close();
    throw error;
  }
  return { restored, unread: found.slice(restored.size).map(({ lease }) => lease) };
}
