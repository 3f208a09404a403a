// Checks an archive in a thread of its own, because even a small one may take seconds and would block the event loop.
import { once } from 'node:events';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { ArchiveError } from './archive-paths.ts';
import type { ArchiveSummary, Inspected, Inspection } from './inspect-thread.ts';

export type { ArchiveSummary } from './inspect-thread.ts';

const thread = new URL(`./inspect-thread${extname(import.meta.url)}`, import.meta.url);

/** The paths of all files and folders, and what one file is read in. */
const LIMITS = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16 };

/** @throws ArchiveError, or the error that ended the thread */
export async function inspectInThread(archive: Uint8Array, entry: string): Promise<ArchiveSummary> {
  // Transfers a copy, because this thread loses a transferred buffer.
  const copy = new Uint8Array(archive);
  const workerData: Inspected = { archive: copy, entry };
  const own = { execArgv: [], env: {}, resourceLimits: LIMITS };
  const worker = new Worker(thread, { ...own, workerData, transferList: [copy.buffer] });
  try {
    // A thread whose code waits for nothing more exits without an error.
    const ended = once(worker, 'exit').then(() => []);
    const [inspection]: Inspection[] = await Promise.race([once(worker, 'message'), ended]);
    if (!inspection)
      throw new Error('the thread that checks an archive has ended without a result');
    if ('fault' in inspection) throw new ArchiveError(inspection.fault);
    return inspection;
  } finally {
    await worker.terminate();
  }
}
