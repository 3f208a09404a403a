// Delivers the outcomes in abandoned state folders. A folder is abandoned if no process runs under
// its worker ID any more: there are fewer GPUs now, or the worker has another ID. Each folder gets
// a temporary worker without slots, which uses the folder's worker ID as that worker's next process
// would.
import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Device, WorkerLink } from '../../wire/link/worker-link.ts';
import type { Executor } from '../execution/executor.ts';
import { createWorker, type Worker } from '../worker.ts';
import { readIdentity } from './folder-owner.ts';
import { readUndelivered } from './outbox-entries.ts';
import { borrowWorkerFolder, listWorkers, type WorkerFolder } from './state-folder.ts';

export interface AbandonedFoldersOptions {
  stateDir: string;
  endpointId: string;
  /** ID of this worker, which delivers the outcomes in its own folder itself. */
  workerId: string;
  /** The pod of this process. Default: none. */
  podId?: string | undefined;
  /**
   * No other pod uses the state folder now, so the workers of other pods in it are dead. Each is
   * reported to the platform, and its folder is removed. Default: false.
   */
  isExclusiveToPod?: boolean;
  version: string;
  devices: readonly Device[];
  /** A separate link: this worker's renewals must not wait behind those of the temporary worker. */
  openLink: () => Promise<WorkerLink & { close(): Promise<void> }>;
  clock: Clock;
  log: Log;
}

/** A try fails if the folder's own worker has it, or another process delivers from it. */
const BORROW_TRIES = 3;
const MAX_PAUSE_MS = 1_000;
/** Time limit for one folder. Outcomes that remain are left to the next process. */
const DELIVER_MS = 3_600_000;
/**
 * Time limit for the last reports when the folder's own worker wants the folder, or this process
 * exits.
 */
const FLUSH_MS = 1_000;

/** The protocol has no workers without slots, so this one has a slot that is never free. */
const NO_SLOT: Executor = {
  slots: 1,
  free: 0,
  freeForMs: undefined,
  trouble: undefined,
  stuckThread: undefined,
  start: async () => ({}),
  onChange: () => {},
  onBatch: () => {},
  execute: () => {
    throw new Error('a worker that only delivers outcomes received a job');
  },
  stop: async () => {},
};

export class AbandonedFolders {
  readonly #options: AbandonedFoldersOptions;
  readonly #closing = new AbortController();
  #deliverer: Worker | undefined;
  /** The current folder's own worker wants it back. */
  #isWanted = false;
  #work: Promise<void> = Promise.resolve();

  constructor(options: AbandonedFoldersOptions) {
    this.#options = options;
  }

  /** Searches the folders once and delivers in the background. Faults are only logged. */
  start(): void {
    this.#work = this.#deliverAll().catch((error: unknown) => {
      this.#options.log.warn({ err: error }, 'reading state folders of other workers failed');
    });
  }

  /** Leaves undelivered outcomes for later. */
  async close(): Promise<void> {
    this.#closing.abort();
    void this.#deliverer?.stop();
    await this.#work;
  }

  async #deliverAll(): Promise<void> {
    for await (const workerId of this.#findAbandoned()) {
      const folder = await this.#borrow(workerId);
      if (!folder) continue;
      try {
        await this.#deliver(folder);
      } finally {
        this.#deliverer = undefined;
        await folder.close();
      }
    }
  }

  /**
   * Finds the worker IDs of folders that may be abandoned; only their lock shows whether they are.
   * Reads each folder when its turn comes, because delivering from the one before may take long.
   */
  async *#findAbandoned(): AsyncGenerator<string> {
    const { log, stateDir, workerId: ownId } = this.#options;
    for (const workerId of listWorkers(stateDir)) {
      const folder = join(stateDir, workerId);
      const outcomes = workerId === ownId ? 0 : (await readUndelivered(folder, log)).length;
      if (this.#hasNothingToDo(workerId, outcomes)) continue;
      if (this.#isOfThisEndpoint(workerId, outcomes)) yield workerId;
    }
  }

  #hasNothingToDo(workerId: string, outcomes: number): boolean {
    return outcomes === 0 && !this.#isOfDeadPod(workerId);
  }

  /** The folder's pod is not this pod, and no other pod uses the state folder now. */
  #isOfDeadPod(workerId: string): boolean {
    const { isExclusiveToPod, podId, stateDir } = this.#options;
    return isExclusiveToPod === true && readIdentity(join(stateDir, workerId))?.podId !== podId;
  }

  #isOfThisEndpoint(workerId: string, outcomes: number): boolean {
    const { endpointId, log, stateDir } = this.#options;
    const endpoint = readIdentity(join(stateDir, workerId))?.endpointId;
    if (endpoint === endpointId) return true;
    const about = { name: workerId, outcomes, endpoint };
    log.info(about, 'outcomes of another endpoint wait in the state folder');
    return false;
  }

  async #borrow(workerId: string): Promise<WorkerFolder | undefined> {
    const { clock, endpointId, log, stateDir } = this.#options;
    const removeWhenDelivered = this.#isOfDeadPod(workerId);
    const ownLog = log.child({ folder: join(stateDir, workerId) });
    const terms = { stateDir, endpointId, clock, removeWhenDelivered, log: ownLog };
    for (let count = 0; count < BORROW_TRIES && !this.#closing.signal.aborted; count++) {
      if (count > 0) await sleep(clock, randomInt(MAX_PAUSE_MS), this.#closing.signal);
      this.#isWanted = false;
      const folder = await borrowWorkerFolder(terms, workerId, () => this.#yieldFolder());
      if (folder) return folder;
    }
    return undefined;
  }

  #yieldFolder(): void {
    this.#isWanted = true;
    void this.#deliverer?.stop();
  }

  async #deliver({ incarnation, outbox, workerId }: WorkerFolder): Promise<void> {
    const { clock, devices, log, openLink, version } = this.#options;
    const about = { leftBy: workerId, outcomes: outbox.undeliveredOnDisk().length };
    const mustStop = () => this.#isWanted || this.#closing.signal.aborted;
    if (mustStop() || this.#hasNothingToDo(workerId, about.outcomes)) return;
    if (about.outcomes > 0) log.warn(about, 'delivering outcomes left by a dead worker');
    const link = await openLink();
    if (mustStop()) return link.close();
    const deliverer = createWorker({
      workerId,
      incarnation,
      outbox,
      version,
      devices,
      link,
      clock,
      executor: NO_SLOT,
      log: log.child({ leftBy: workerId }),
      drainMs: DELIVER_MS,
      flushMs: FLUSH_MS,
    });
    this.#deliverer = deliverer;
    // A failed start has been logged already; after a stop it does not start.
    await deliverer.start().catch(() => {});
    const { undelivered } = await deliverer.drain();
    await link.close();
    if (undelivered.length > 0) {
      log.warn({ ...about, undelivered }, 'outcomes left by a dead worker are not delivered yet');
    } else if (about.outcomes > 0) log.info(about, 'delivered outcomes left by a dead worker');
  }
}
