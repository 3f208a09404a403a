// State folders whose worker does not run any more: there are fewer GPUs than there were, or it has
// another name. What it finished is delivered in its name, as its own next process would do it: a
// worker without slots, beside the one that this process is.
import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Device, WorkerLink } from '../../wire/link/worker-link.ts';
import type { Executor } from '../execution/executor.ts';
import { createWorker, type Worker } from '../worker.ts';
import { readIdentity } from './folder-identity.ts';
import { readSurvivors } from './outbox-entries.ts';
import { listWorkers, visitWorkerFolder, type WorkerFolder } from './state-folder.ts';

export interface LeftFoldersOptions {
  stateDir: string;
  endpointId: string;
  /** Has its folder already, and sees to it by itself. */
  workerId: string;
  /** The pod that this process runs in. Default: none. */
  podId?: string | undefined;
  /**
   * `pod`: no other pod uses the state folder at the same time, so the workers of all others that have a
   * folder in it are dead. The platform hears of each, and its folder is removed. Default: `everybody`.
   */
  usedBy?: 'pod' | 'everybody';
  version: string;
  devices: readonly Device[];
  /** Of its own: a renewal of ours must not wait behind one of the visitor's. */
  openLink: () => Promise<WorkerLink & { close(): Promise<void> }>;
  clock: Clock;
  log: Log;
}

/** Its worker may be about to take it, or another process may look into it as we do. */
const TRIES = 3;
const MAX_PAUSE_MS = 1_000;
/** The platform may be away for long; what is not delivered by then is the next process's. */
const DELIVER_MS = 3_600_000;
/** Whoever wants the folder back does not wait longer than this, nor does the end of this process. */
const FLUSH_MS = 1_000;

/** The protocol has no worker without slots; this one never has one free. */
const NO_SLOT: Executor = {
  slots: 1,
  free: 0,
  trouble: undefined,
  stuckThread: undefined,
  start: async () => ({}),
  onChange: () => {},
  execute: () => {
    throw new Error('a worker that only delivers outcomes received a job');
  },
  stop: async () => {},
};

export class LeftFolders {
  readonly #options: LeftFoldersOptions;
  readonly #closing = new AbortController();
  #visitor: Worker | undefined;
  /** The owner of the folder that is visited has come. */
  #isWanted = false;
  #work: Promise<void> = Promise.resolve();

  constructor(options: LeftFoldersOptions) {
    this.#options = options;
  }

  /** Looks once, and delivers in the background. What goes wrong is only logged. */
  start(): void {
    this.#work = this.#deliverAll().catch((error: unknown) => {
      this.#options.log.warn({ err: error }, 'reading state folders of other workers failed');
    });
  }

  /** Leaves the rest for later. */
  async close(): Promise<void> {
    this.#closing.abort();
    void this.#visitor?.stop();
    await this.#work;
  }

  async #deliverAll(): Promise<void> {
    const { stateDir, workerId } = this.#options;
    for (const name of listWorkers(stateDir)) {
      const left = name === workerId ? [] : await readSurvivors(join(stateDir, name));
      const isOver = left.length === 0 && !this.#isDead(name);
      if (isOver || !this.#isOurs(name, left.length)) continue;
      const folder = await this.#visit(name);
      if (!folder) continue;
      try {
        await this.#deliver(folder);
      } finally {
        this.#visitor = undefined;
        await folder.close();
      }
    }
  }

  /** Known without a look at its lock. */
  #isDead(name: string): boolean {
    const { podId, stateDir, usedBy } = this.#options;
    return usedBy === 'pod' && readIdentity(join(stateDir, name))?.podId !== podId;
  }

  #isOurs(name: string, outcomes: number): boolean {
    const { endpointId, log, stateDir } = this.#options;
    const endpoint = readIdentity(join(stateDir, name))?.endpointId;
    if (endpoint === endpointId) return true;
    log.info({ name, outcomes, endpoint }, 'outcomes of another endpoint wait in the state folder');
    return false;
  }

  async #visit(name: string): Promise<WorkerFolder | undefined> {
    const { clock, endpointId, log, stateDir } = this.#options;
    const emptyFolder = this.#isDead(name) ? 'remove' : 'keep';
    const own = log.child({ folder: join(stateDir, name) });
    const terms = { stateDir, endpointId, clock, emptyFolder, log: own } as const;
    for (let count = 0; count < TRIES && !this.#closing.signal.aborted; count++) {
      if (count > 0) await sleep(clock, randomInt(MAX_PAUSE_MS), this.#closing.signal);
      this.#isWanted = false;
      const folder = await visitWorkerFolder(terms, name, () => this.#giveWay());
      if (folder) return folder;
    }
    return undefined;
  }

  #giveWay(): void {
    this.#isWanted = true;
    void this.#visitor?.stop();
  }

  async #deliver({ incarnation, outbox, workerId }: WorkerFolder): Promise<void> {
    const { clock, devices, log, openLink, version } = this.#options;
    const about = { leftBy: workerId, outcomes: outbox.survivors().length };
    const isOver = () => this.#isWanted || this.#closing.signal.aborted;
    if (isOver() || (about.outcomes === 0 && !this.#isDead(workerId))) return;
    if (about.outcomes > 0) log.warn(about, 'delivering outcomes left by a dead worker');
    const link = await openLink();
    if (isOver()) return link.close();
    const visitor = createWorker({
      ...{ workerId, incarnation, outbox, version, devices, link, clock },
      executor: NO_SLOT,
      log: log.child({ leftBy: workerId }),
      drainMs: DELIVER_MS,
      flushMs: FLUSH_MS,
    });
    this.#visitor = visitor;
    // Told to stop meanwhile, it does not start; refused for good, it has said so.
    await visitor.start().catch(() => {});
    const { undelivered } = await visitor.drain();
    await link.close();
    if (undelivered.length > 0) {
      log.warn({ ...about, undelivered }, 'outcomes left by a dead worker are not delivered yet');
    } else if (about.outcomes > 0) log.info(about, 'delivered outcomes left by a dead worker');
  }
}
