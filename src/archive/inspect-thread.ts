// Entry of a thread that checks one archive and lists its contents.
import { parentPort, workerData } from 'node:worker_threads';
import { ArchiveError } from './archive-paths.ts';
import { inspectArchive } from './unpack.ts';

export interface Inspected {
  archive: Uint8Array;
  /** Path of the file to look for. */
  entry: string;
}

export interface ArchiveSummary {
  files: number;
  unpackedBytes: number;
  /** The archive contains the entry. */
  hasEntry: boolean;
}

export type Inspection = ArchiveSummary | { fault: string };

async function inspect({ archive, entry }: Inspected): Promise<Inspection> {
  try {
    const { files, unpackedBytes } = await inspectArchive(archive);
    const hasEntry = files.some(({ path }) => path === entry);
    return { files: files.length, unpackedBytes, hasEntry };
  } catch (error) {
    if (error instanceof ArchiveError) return { fault: error.message };
    throw error;
  }
}

if (parentPort) parentPort.postMessage(await inspect(workerData));
