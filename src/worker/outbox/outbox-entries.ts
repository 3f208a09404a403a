// The records of the outbox's journal: reports of ended attempts, and marks for removed ones.
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type Log, silentLog } from '../../base/log.ts';
import type { LeaseRef } from '../../wire/link/worker-link.ts';
import type { RemainingReports } from '../reports/attempt-reports.ts';
import { useForeignFile } from './foreign-file.ts';
import { FoundAttempts, MAX_TOTAL_HEADER_BYTES, type OutboxEntry } from './found-attempts.ts';
import { encodeRecord } from './journal.ts';
import { scanJournal } from './journal-scan.ts';

const JOURNAL_FILE = 'outbox.journal';
/** Largest journal that is read for another process, bytes. It bounds the time, not the memory. */
const MAX_FOREIGN_JOURNAL_BYTES = 4 * 1_073_741_824;

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
