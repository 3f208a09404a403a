// The folder in which a worker keeps its ID, its incarnation and its outbox from one process to the
// next. If the disk fails, the worker runs without it.
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { makeFolder } from '../../base/make-folder.ts';
import { DiskOutbox } from './disk-outbox.ts';
import {
  FolderInUseError,
  type FolderLock,
  type LockOptions,
  lockFolder,
  readIdentity,
  writeIdentity,
} from './folder-owner.ts';
import { MemoryOutbox, type Outbox } from './outbox.ts';
import { measureJournal } from './outbox-entries.ts';

/** Inputs and outputs may be confidential. */
const OWNER_ONLY = 0o700;
/** The platform's format of a worker ID; each is a safe folder name. */
const WORKER_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/**
 * The worker must not use the folder: another process holds it, it belongs to another endpoint, or
 * the worker ID is invalid.
 */
export class StateFolderError extends Error {
  override readonly name = 'StateFolderError';
}

export interface StateFolderOptions {
  /** Holds one folder per worker; created if it is missing. */
  stateDir: string;
  /** Default: the worker of a folder that no process uses, or else a new one. */
  workerId: string | undefined;
  /** Default: the time, Unix ms; always greater than the last one. */
  incarnation: number | undefined;
  /** Outcomes of one endpoint are meaningless to another. */
  endpointId: string;
  /** The pod of this process, to which the folder belongs from now on. Default: none. */
  podId?: string | undefined;
  /** `close` removes the folder if all of its outcomes are delivered. Default: false. */
  removeWhenDelivered?: boolean;
  createWorkerId: () => string;
  clock: Clock;
  log: Log;
}

export interface WorkerFolder {
  workerId: string;
  incarnation: number;
  outbox: Outbox;
  /** Releases the folder for other processes; call it after the worker has ended. */
  close(): Promise<void>;
}

/** Takes a folder for this process. A failing disk is only logged. @throws StateFolderError */
export async function openWorkerFolder(options: StateFolderOptions): Promise<WorkerFolder> {
  const { stateDir, workerId, log } = options;
  try {
    makeFolder(stateDir, OWNER_ONLY);
    if (workerId !== undefined) return await openFolder(options, workerId);
    for (const known of listWorkers(stateDir)) {
      const folder = await openFolder(options, known).catch(skipUnusable);
      if (folder) return folder;
    }
    return await openFolder(options, options.createWorkerId());
  } catch (error) {
    if (error instanceof StateFolderError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    const diskError = `the state folder cannot be used: ${reason}`;
    log.error(
      { err: error, stateDir },
      'state folder cannot be used, undelivered outcomes are in memory only',
    );
    return openInMemory(options, diskError);
  }
}

/**
 * Takes another worker's folder as a guest, to deliver its outcomes. The folder keeps its pod. If a
 * process of that worker starts meanwhile, `onWanted` is called and that process waits until you
 * call `close`. Returns undefined if another process uses the folder, or if it belongs to another
 * endpoint.
 * @throws any error of the file system
 */
export async function borrowWorkerFolder(
  options: Omit<StateFolderOptions, 'workerId' | 'podId' | 'incarnation' | 'createWorkerId'>,
  workerId: string,
  onWanted: () => void,
): Promise<WorkerFolder | undefined> {
  const podId = readIdentity(join(options.stateDir, workerId))?.podId;
  const own = { workerId, podId, incarnation: undefined, createWorkerId: () => workerId };
  return openFolder({ ...options, ...own }, workerId, { onWanted }).catch(skipUnusable);
}

/**
 * IDs of the workers with a folder there, of any endpoint. The largest journal comes first, because
 * a journal is cleared when all of its outcomes are delivered.
 */
export function listWorkers(stateDir: string): string[] {
  const workerIds = readdirSync(stateDir).filter((name) => readIdentity(join(stateDir, name)));
  const measure = (workerId: string) => measureJournal(join(stateDir, workerId));
  return workerIds.sort((a, b) => measure(b) - measure(a) || (a < b ? -1 : 1));
}

async function openFolder(
  options: StateFolderOptions,
  workerId: string,
  lockOptions: LockOptions = {},
): Promise<WorkerFolder> {
  const { stateDir, endpointId, podId, clock, log } = options;
  if (!WORKER_ID.test(workerId)) {
    throw new StateFolderError(`${JSON.stringify(workerId)} is not a worker ID`);
  }
  const folder = join(stateDir, workerId);
  makeFolder(folder, OWNER_ONLY);
  const lock = await lockOrExplain(folder, lockOptions);
  try {
    const before = readIdentity(folder);
    if (before && before.endpointId !== endpointId) {
      throw new StateFolderError(
        `${folder} belongs to a worker of endpoint ${before.endpointId}, not of ${endpointId}`,
      );
    }
    const least = (before?.incarnation ?? -1) + 1;
    const incarnation = Math.max(options.incarnation ?? clock.now(), least);
    try {
      writeIdentity(folder, { incarnation, endpointId, podId });
    } catch (error) {
      // The outbox can be delivered all the same; the next incarnation is the time.
      log.error({ err: error, folder }, 'writing the state folder failed');
    }
    const outbox = await DiskOutbox.open({ folder, clock, log });
    if (outbox.diskError === undefined) log.info({ folder, incarnation }, 'state folder opened');
    const close = async () => {
      await outbox.close();
      const isDelivered = outbox.undeliveredOnDisk().length === 0 && !outbox.isPartlyRead;
      if (options.removeWhenDelivered === true && isDelivered) removeFolder(folder, log);
      lock.release();
    };
    return { workerId, incarnation, outbox, close };
  } catch (error) {
    lock.release();
    throw error;
  }
}

function removeFolder(folder: string, log: Log): void {
  try {
    rmSync(folder, { recursive: true, force: true });
  } catch (error) {
    log.warn({ err: error, folder }, 'empty state folder cannot be removed');
  }
}

async function lockOrExplain(folder: string, options: LockOptions): Promise<FolderLock> {
  try {
    return await lockFolder(folder, options);
  } catch (error) {
    if (!(error instanceof FolderInUseError)) throw error;
    throw new StateFolderError(`${folder} cannot be used: ${error.message}`);
  }
}

function skipUnusable(error: unknown): undefined {
  if (!(error instanceof StateFolderError)) throw error;
}

function openInMemory(options: StateFolderOptions, diskError: string): WorkerFolder {
  const { clock, createWorkerId } = options;
  const { workerId = createWorkerId(), incarnation = clock.now() } = options;
  const outbox = new MemoryOutbox({ diskError });
  return { workerId, incarnation, outbox, close: async () => {} };
}
