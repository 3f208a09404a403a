// Processes jobs when their time has come: expired leases and deadlines, ended delays and retentions. Ends pauses.
import { AT_ONCE, Loop, MAX_SLEEP_MS, NEVER } from '../base/loop.ts';
import { ENDING, isWaiting, logLevelOf, type Reader, type StoredJob } from '../store/store.ts';
import { isUnwritten } from './batches/batch-ends.ts';
import { trimDeadLetters } from './dead-letters.ts';
import type { QueueParts } from './queue-parts.ts';

/** Database pages of 4 KB returned to the file system in one step. */
const RECLAIM_PAGES = 500;

/** The queue forgets an idle worker that was silent for this many lease durations. */
const SILENT_LEASES = 20;

type SweeperOptions = Pick<
  QueueParts,
  | 'changes'
  | 'clock'
  | 'closing'
  | 'keptFlows'
  | 'log'
  | 'pauses'
  | 'payloads'
  | 'presence'
  | 'settings'
  | 'signals'
  | 'store'
>;

/** Runs until `closing` aborts. */
export async function sweep(options: SweeperOptions): Promise<void> {
  const { clock, closing, log, signals } = options;
  const loop = new Loop({
    clock,
    closing,
    pass: createPass(options),
    onError: (error) => log[logLevelOf(error)]({ err: error }, 'sweep failed, retrying'),
  });
  const stopListening = signals.onDue((dueAt) => loop.wake(dueAt));
  await loop.run();
  stopListening();
}

function createPass(options: SweeperOptions): () => Promise<number> {
  const { changes, clock, keptFlows, pauses, payloads, store } = options;
  const lateness = new Lateness(options);
  let hasFreedSpace = false;
  return async () => {
    hasFreedSpace = (await sweepOnce(options, lateness)) > 0 || hasFreedSpace;
    hasFreedSpace = (await trimDeadLetters(options)) || hasFreedSpace;
    hasFreedSpace = (await keptFlows.sweep()) || hasFreedSpace;
    const pauseEndsAt = await pauses.endDue();
    await forgetSilent(options);
    const hasDeleted = await changes.inSlice(() => payloads.deleteSome());
    hasFreedSpace ||= hasDeleted;
    if (hasFreedSpace) {
      // In steps, because gigabytes take minutes and due jobs must not wait. A deletion may never end, so
      // space is returned after each step of it.
      hasFreedSpace = await store.reclaim(RECLAIM_PAGES);
      return AT_ONCE;
    }
    const jobDueAt = (await store.read((tx) => tx.nextDueAt())) ?? NEVER;
    const nextDueAt = Math.min(jobDueAt, pauseEndsAt);
    const now = clock.now();
    lateness.expect(Math.max(now, Math.min(nextDueAt, now + MAX_SLEEP_MS)));
    return nextDueAt;
  };
}

/**
 * Extends leases and deadlines by `leaseMs`, and deadlines by `uncountedMs` more.
 */
export function extendLeases(
  { changes }: Pick<SweeperOptions, 'changes'>,
  uncountedMs: number,
): Promise<StoredJob[]> {
  return changes.commit((tx, step) => {
    const jobs = tx.leasedJobs();
    for (const job of jobs) step(job, { type: 'platform_away', uncountedMs });
    return jobs;
  });
}

/**
 * Extends the leases if the sweeper runs much too late: the process or machine was suspended, the
 * clock was set forward, or the store failed. Workers could not renew meanwhile.
 */
class Lateness {
  readonly #options: SweeperOptions;
  /** When the next batch should run. */
  #expectedAt: number;

  constructor(options: SweeperOptions) {
    this.#options = options;
    this.#expectedAt = options.clock.now();
  }

  expect(at: number): void {
    this.#expectedAt = at;
  }

  /** Call this before each batch. If it throws, the next call extends by the whole delay. */
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

/** Processes all due jobs. @returns the number of removed jobs */
async function sweepOnce({ changes, clock }: SweeperOptions, lateness: Lateness): Promise<number> {
  let removed = 0;
  for (;;) {
    await lateness.forgive();
    const now = clock.now();
    const slice = await changes.commitSlice(
      (tx, limit) => {
        const due = tx.dueJobs(now, limit);
        // `isKept` asks for the same, one job after the other.
        tx.each(due, (job) => isKept(tx, job, now));
        return due;
      },
      (tx, job) => ({
        type: 'clock',
        failedRetentionMs: tx.endpoint(job.endpointId)?.settings.failedRetention ?? 0,
        isKept: isKept(tx, job, now),
      }),
    );
    removed += slice.removed;
    if (slice.isLast) return removed;
  }
}

/**
 * Whether the job would be removed now, and a job that waits will read its output, or its batch will. A job of another
 * shard tells when it has.
 */
function isKept(tx: Reader, { expiresAt, links }: StoredJob, now: number): boolean {
  if (!links || expiresAt > now) return false;
  if (links.batch && isUnwritten(tx, links.batch)) return true;
  if (!links.readers) return false;
  if (links.readers.some(({ shard }) => shard !== undefined)) return true;
  return tx.each(links.readers, (key) => tx.job(key)).some((job) => job && isWaiting(job));
}

/** Forgets workers that disappeared without a bye; a worker that returns must say hello again. */
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
