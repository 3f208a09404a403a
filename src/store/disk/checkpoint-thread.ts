// Entry of a thread that copies a database's write-ahead log into its file. Nothing else opens the database here.
import { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';

export type CheckpointMode = 'passive' | 'truncate';

export interface Checkpoint {
  /** Another connection was reading or writing, so the log could not be truncated. */
  isBusy: boolean;
  /** Pages in the log. */
  pages: number;
  /** Pages of the log that the file has now. */
  copied: number;
}

/** What a thread answers to a mode. `errcode` is SQLite's. */
export type CheckpointAnswer = Checkpoint | { message: string; errcode: number | undefined };

const port = parentPort;
if (port && typeof workerData === 'string') {
  // Never waits for a lock, which would also hold up the other side.
  const database = new DatabaseSync(workerData, { timeout: 0 });
  // Otherwise the first statement of its own would copy the log once more.
  database.exec('pragma synchronous = full; pragma wal_autocheckpoint = 0');
  port.on('message', (mode: CheckpointMode | 'close') => {
    if (mode === 'close') {
      database.close();
      process.exit();
    } else {
      port.postMessage(copyLog(database, mode));
    }
  });
}

function copyLog(database: DatabaseSync, mode: CheckpointMode): CheckpointAnswer {
  try {
    const row = database.prepare(`pragma wal_checkpoint(${mode})`).get();
    const { busy, checkpointed, log } = row ?? {};
    return { isBusy: busy !== 0, pages: Number(log), copied: Number(checkpointed) };
  } catch (error) {
    const errcode =
      error instanceof Error && 'errcode' in error ? Number(error.errcode) : undefined;
    return { message: error instanceof Error ? error.message : String(error), errcode };
  }
}
