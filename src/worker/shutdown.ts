// Drains a worker before it exits: lets running jobs end, delivers their reports, sends the bye. Its
// leases are renewed meanwhile. worker.ts decides when the worker stops.
import { type Clock, sleep } from '../base/clock.ts';
import type { LeaseRef } from '../wire/link/worker-link.ts';
import { MAX_LISTED } from '../wire/message-bounds.ts';
import type { Attempts } from './attempts.ts';
import type { Reporter } from './reports/reporter.ts';
import { callWithin, RetryPace, toLinkError } from './session.ts';
import type { CompleteWorkerOptions } from './worker-options.ts';

export interface ShutdownResult {
  /** Every outcome was acknowledged. */
  delivered: boolean;
  /** Attempts with an unacknowledged outcome. */
  undelivered: LeaseRef[];
  /** Jobs that did not end in time and were released. */
  abandoned: number;
}

/** Time for the bye even if the flush used all its time, ms. */
const MIN_BYE_MS = 1_000;

interface DrainOptions {
  options: CompleteWorkerOptions;
  /** How long running jobs may continue, ms; undefined: until they end, or until `stopWaiting`. */
  jobsMs: number | undefined;
  attempts: Attempts;
  reporter: Reporter;
  /** A take that may still return leases; no take follows it. */
  taking: Promise<void>;
  /** Ends the wait for running jobs and for an unavailable platform. */
  stopWaiting: AbortSignal;
}

export async function drainWorker(drain: DrainOptions): Promise<ShutdownResult> {
  const { stopWaiting, jobsMs, options, reporter, taking } = drain;
  const { clock, drainMs, flushMs, log, outbox } = options;
  const begunAt = clock.now();
  let abandoned = await endJobs(drain, jobsMs);
  const drainUntil = (jobsMs === undefined ? clock.now() : begunAt) + drainMs;
  // An open take may still return leases, which must be released or run.
  await settles(taking, { clock, ms: drainUntil - clock.now(), signal: stopWaiting });
  await settles(taking, { clock, ms: flushMs });
  abandoned += await endJobs(drain, jobsMs === undefined ? jobsMs : drainUntil - clock.now());
  if (abandoned > 0)
    log.warn({ abandoned }, 'jobs did not end in time, returning them to the queue');
  // If the platform is unavailable, the worker waits for it during the rest of the drain time.
  const leftMs = drainUntil - clock.now();
  await settles(reporter.delivered(), { clock, ms: leftMs, signal: stopWaiting });
  const flushUntil = clock.now() + flushMs;
  await settles(reporter.delivered(), { clock, ms: flushMs });
  const undelivered = outbox.undelivered();
  if (undelivered.length > 0) log.error({ undelivered }, 'delivering outcomes failed');
  await outbox.flush();
  await sayBye(options, Math.max(flushUntil, clock.now() + MIN_BYE_MS));
  return { delivered: undelivered.length === 0, undelivered, abandoned };
}

/** @returns the number of jobs that did not end in time and were released */
async function endJobs(
  { attempts, stopWaiting, options }: DrainOptions,
  jobsMs: number | undefined,
): Promise<number> {
  const { clock, forceMs } = options;
  attempts.releaseWaiting();
  if (!(await settles(attempts.idle(), { clock, ms: jobsMs, signal: stopWaiting }))) {
    attempts.stopAll('shutdown');
    await settles(attempts.idle(), { clock, ms: forceMs });
  }
  return attempts.abandonAll();
}

/** A lost bye costs only time: the leases expire, and a successor's hello has the same effect. */
async function sayBye(options: CompleteWorkerOptions, until: number): Promise<void> {
  const { clock, incarnation, link, log, observer, outbox, workerId } = options;
  const pace = new RetryPace({ baseMs: 100, maxMs: 1_000, jitter: 0.2 });
  const onDisk = outbox.undeliveredOnDisk().slice(0, MAX_LISTED);
  const bye = { workerId, incarnation, reason: 'drained' as const, outbox: onDisk };
  for (;;) {
    try {
      await callWithin({ clock, limitMs: Math.max(1, until - clock.now()) }, () => link.bye(bye));
      return;
    } catch (thrown) {
      const error = toLinkError(thrown);
      observer?.callFailed('bye', error.code);
      const waitMs = pace.next(error);
      if (error.code !== 'unavailable' || clock.now() + waitMs >= until) {
        log.warn({ err: error }, 'shutdown notice to the platform failed');
        return;
      }
      await sleep(clock, waitMs);
    }
  }
}

interface WaitLimit {
  clock: Clock;
  /** Undefined: no limit. */
  ms: number | undefined;
  signal?: AbortSignal;
}

/** Returns whether `work` settles within `ms` and before the signal aborts. */
async function settles(work: Promise<void>, { clock, ms, signal }: WaitLimit): Promise<boolean> {
  const settled = new AbortController();
  const signals = signal ? [settled.signal, signal] : [settled.signal];
  const limit = AbortSignal.any(signals);
  const timer = (ms === undefined ? aborts(limit) : sleep(clock, ms, limit)).then(() => false);
  try {
    return await Promise.race([work.then(() => true), timer]);
  } finally {
    settled.abort();
  }
}

function aborts(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
