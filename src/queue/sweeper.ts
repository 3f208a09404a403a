// Turns passing time into events: expired leases, deadlines, delays that are over, retentions run out.
import { type Clock, letOthersRun } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Store } from '../store/store.ts';
import type { Changes } from './changes.ts';
import type { Presence } from './presence.ts';
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
  while (!closing.aborted) {
    const waiter = signals.dueSooner();
    try {
      const removed = await sweepOnce(options);
      await forgetSilent(options);
      for (let more = removed > 0; more && !closing.aborted; ) {
        more = await store.reclaim(RECLAIM_PAGES);
        await letOthersRun();
      }
      const nextDueAt = (await store.read((tx) => tx.nextDueAt())) ?? Number.POSITIVE_INFINITY;
      const sleepMs = Math.min(MAX_SLEEP_MS, nextDueAt - clock.now());
      signals.sweeperSleepsUntil(clock.now() + sleepMs);
      await waiter.wait(Math.max(1, sleepMs), closing);
    } catch (error) {
      log.error({ err: error }, 'sweep failed; trying again');
      await waiter.wait(RETRY_MS, closing);
    } finally {
      waiter.close();
    }
  }
}

/** All that is due now. @returns how many jobs were removed */
async function sweepOnce({ changes, clock }: SweeperOptions): Promise<number> {
  let removed = 0;
  for (;;) {
    const now = clock.now();
    const seen = await changes.commit(function* (tx, step) {
      const due = yield* tx.dueJobs(now, BATCH);
      for (const job of due) {
        const decision = yield* step(job, { type: 'clock' });
        if ('removed' in decision && decision.removed) removed++;
      }
      return due.length;
    });
    if (seen < BATCH) return removed;
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
    await store.write((tx) => tx.removeWorker(worker.endpointId, worker.id));
  }
}
