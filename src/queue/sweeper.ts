// Turns the passage of time into events: expired leases and deadlines, ended delays and retentions.
import { type Clock, letOthersRun } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { ENDING, logLevelOf, type Store, type StoredJob } from '../store/store.ts';
import type { Changes } from './changes.ts';
import type { Presence } from './leases/presence.ts';
import type { QueueSettings } from './settings.ts';
import type { Signals } from './signals.ts';

/** Jobs looked at in one operation: short enough to let requests in between. */
const BATCH = 200;
/** A sleep is never longer, so that a clock that was set does not matter for long. */
const MAX_SLEEP_MS = 30_000;
/** After a failure, and at least so long between two looks at the same thing. */
const RETRY_MS = 1_000;
/** 4 KB pages given back to the file system in one go. */
const RECLAIM_PAGES = 2_000;

/** A worker that holds nothing and has been silent for so many leases is forgotten. */
const SILENT_LEASES = 20;

export interface SweeperOptions {
  store: Store;
  clock: Clock;
  log: Log;
  signals: Signals;
  changes: Changes;
  presence: Presence;
  settings: QueueSettings;
  closing: AbortSignal;
}

/** Runs until `closing` aborts. */
export async function sweep(options: SweeperOptions): Promise<void> {
  const { clock, closing, log, signals, store } = options;
  const lateness = new Lateness(options);
  let hasFreedSpace = false;
  while (!closing.aborted) {
    const waiter = signals.dueSooner();
    try {
      hasFreedSpace = (await sweepOnce(options, lateness)) > 0 || hasFreedSpace;
      await forgetSilent(options);
      if (hasFreedSpace) {
        // A step at a time: gigabytes take minutes, and what falls due meanwhile does not wait.
        hasFreedSpace = await store.reclaim(RECLAIM_PAGES);
        await letOthersRun();
        continue;
      }
      // What is committed from here on wakes the waiter, whether the look still sees it or not.
      signals.sweeperSleepsUntil(Number.POSITIVE_INFINITY);
      const nextDueAt = (await store.read((tx) => tx.nextDueAt())) ?? Number.POSITIVE_INFINITY;
      const sleepMs = Math.max(1, Math.min(MAX_SLEEP_MS, nextDueAt - clock.now()));
      const wakeAt = clock.now() + sleepMs;
      signals.sweeperSleepsUntil(wakeAt);
      lateness.expect(wakeAt);
      await waiter.wait(sleepMs, closing);
    } catch (error) {
      log[logLevelOf(error)]({ err: error }, 'sweep failed, retrying');
      await waiter.wait(RETRY_MS, closing);
    } finally {
      waiter.close();
    }
  }
}

/** Leases and deadlines get `leaseMs` more, and deadlines the time that did not count as well. */
export function extendLeases(
  { changes }: Pick<SweeperOptions, 'changes'>,
  uncountedMs: number,
): Promise<StoredJob[]> {
  return changes.commit(function* (tx, step) {
    const jobs = yield* tx.leasedJobs();
    for (const job of jobs) yield* step(job, { type: 'platform_away', uncountedMs });
    return jobs;
  });
}

/**
 * Extends the leases when the sweeper comes much too late: the process or its machine stood still, the
 * clock was set forward, or the store failed. Workers could not renew meanwhile.
 */
class Lateness {
  readonly #options: SweeperOptions;
  /** When the next batch is due if nothing stands still. */
  #expectedAt: number;

  constructor(options: SweeperOptions) {
    this.#options = options;
    this.#expectedAt = options.clock.now();
  }

  expect(at: number): void {
    this.#expectedAt = at;
  }

  /** Before each batch. If it throws, the next call extends by the whole time. */
  async forgive(): Promise<void> {
    const { clock, closing, log, settings } = this.#options;
    const lateMs = clock.now() - this.#expectedAt;
    if (lateMs > settings.renewEveryMs && !closing.aborted) {
      log.warn({ lateMs }, 'clock jumped, leases and deadlines extended');
      await extendLeases(this.#options, lateMs);
    }
    this.#expectedAt = clock.now();
  }
}

/** All that is due now. @returns how many jobs were removed */
async function sweepOnce({ changes, clock }: SweeperOptions, lateness: Lateness): Promise<number> {
  let removed = 0;
  for (;;) {
    await lateness.forgive();
    const now = clock.now();
    const swept = await changes.commit(function* (tx, step) {
      const due = yield* tx.dueJobs(now, BATCH);
      let gone = 0;
      for (const job of due) {
        const decision = yield* step(job, { type: 'clock' });
        if ('removed' in decision && decision.removed) gone++;
      }
      return { seen: due.length, gone };
    });
    removed += swept.gone;
    if (swept.seen < BATCH) return removed;
  }
}

/** Workers that went without a bye; should one come back, it is told to say hello again. */
async function forgetSilent({ clock, presence, settings, store }: SweeperOptions): Promise<void> {
  const silentSince = clock.now() - SILENT_LEASES * settings.leaseMs;
  const silent = [...presence.all()].filter(
    (worker) => worker.seenAt < silentSince && worker.leases.size === 0,
  );
  for (const worker of silent) {
    presence.leave(worker);
    await store.write((tx) => tx.removeWorker(worker.endpointId, worker.id), ENDING);
  }
}
