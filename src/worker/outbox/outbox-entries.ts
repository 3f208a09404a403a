// The records of the outbox's journal: reports of ended attempts, and marks for removed ones.
import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { LeaseRef, Report, ReportHeader } from '../../wire/link/worker-link.ts';
import type { LeftReports } from '../report-lane.ts';
import { useForeignFile } from './foreign-file.ts';
import { encodeRecord, type JournalRecord, scanHeaders } from './journal.ts';

const JOURNAL_FILE = 'outbox.journal';
/** Largest journal that is read for another process, bytes. It bounds the time, not the memory. */
const MAX_FOREIGN_BYTES = 4 * 1_073_741_824;

const NO_BODY = new Uint8Array(0);

/** The reports of an attempt are written together; `done` is the token of a removed attempt. */
export type OutboxEntry = { report: ReportHeader; isMuted?: true } | { done: string };

export interface GatheredAttempts {
  complete: { lease: LeaseRef; left: LeftReports; bytes: number }[];
  /** Attempts whose outcome is missing because the write was cut short. */
  cutOff: LeaseRef[];
}

/** Returns the attempts that are not removed. */
export function gatherAttempts(records: readonly JournalRecord<OutboxEntry>[]): GatheredAttempts {
  const attempts = new Map<string, LeftReports & { bytes: number }>();
  for (const { header, body } of records) {
    if ('done' in header) {
      attempts.delete(header.done);
      continue;
    }
    const report: Report = { ...header.report, body };
    const known = attempts.get(report.token);
    const follows = known !== undefined && (known.reports.at(-1)?.seq ?? 0) < report.seq;
    const attempt = follows ? known : { reports: [], isMuted: header.isMuted === true, bytes: 0 };
    attempt.reports.push(report);
    attempt.bytes += countBytes(encodeEntry(header, body));
    attempts.set(report.token, attempt);
  }
  const complete: GatheredAttempts['complete'] = [];
  const cutOff: LeaseRef[] = [];
  for (const { reports, isMuted, bytes } of attempts.values()) {
    const last = reports.at(-1);
    if (!last) continue;
    const lease = { jobId: last.jobId, attempt: last.attempt, token: last.token };
    if (last.kind === 'outcome') complete.push({ lease, left: { reports, isMuted }, bytes });
    else cutOff.push(lease);
  }
  return { complete, cutOff };
}

export function locateJournal(folder: string): string {
  return join(folder, JOURNAL_FILE);
}

/** Size of the journal in this folder; 0 without one. */
export function measureJournal(folder: string): number {
  return statSync(locateJournal(folder), { throwIfNoEntry: false })?.size ?? 0;
}

/** Attempts whose outcome a dead process left in this folder. */
export async function readSurvivors(folder: string): Promise<LeaseRef[]> {
  try {
    const path = locateJournal(folder);
    const headers = await useForeignFile(path, MAX_FOREIGN_BYTES, scanHeaders<OutboxEntry>);
    const records = headers.map((header) => ({ header, body: NO_BODY }));
    return gatherAttempts(records).complete.map(({ lease }) => lease);
  } catch {
    // Without a readable journal, nobody can deliver them later.
    return [];
  }
}

export function encodeDone(token: string): Uint8Array[] {
  return encodeEntry({ done: token });
}

export function encodeReports({ reports, isMuted }: LeftReports): Uint8Array[] {
  return reports.flatMap(({ body, ...report }) =>
    encodeEntry(isMuted ? { report, isMuted } : { report }, body),
  );
}

function encodeEntry(entry: OutboxEntry, body?: Uint8Array): Uint8Array[] {
  return encodeRecord(entry, body);
}

export function countBytes(pieces: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const piece of pieces) bytes += piece.length;
  return bytes;
}
