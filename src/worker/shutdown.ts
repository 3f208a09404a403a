// Finishes the worker's obligations before it exits, while its leases are kept alive: running jobs,
// their reports, the bye. worker.ts decides when the worker stops.
import { type Clock, sleep } from '../base/clock.ts';
import type { LeaseRef } from '../wire/link/worker-link.ts';
import { MAX_LISTED } from '../wire/message-bounds.ts';
import type { Attempts } from './attempts.ts';
import { callWithin, toLinkError } from './link-call.ts';
import type { Reporter } from './reporter.ts';
import { RetryPace } from './retry-pace.ts';
import type { CompleteWorkerOptions } from './worker-options.ts';

export interface Farewell {
  /** Every outcome was acknowledged. */
  delivered: boolean;
  /** Attempts whose outcome was not. */
  undelivered: LeaseRef[];
  /** Jobs that did not end in time and were given back. */
  abandoned: number;
}

/** For a bye after a flush that took all its time, so that a platform that is back hears it, ms. */
const LEAST_BYE_MS = 1_000;

export interface WindUpOptions {
  options: CompleteWorkerOptions;
  /** How long running jobs may go on, ms; left out: until they end, or `hurry`. */
  jobsMs: number | undefined;
  attempts: Attempts;
  reporter: Reporter;
  /** A take that may still bring leases; nothing is taken after it. */
  taking: Promise<void>;
  /** Ends the wait for running jobs, and for a platform that is away. */
  hurry: AbortSignal;
}

export async function windUp(round: WindUpOptions): Promise<Farewell> {
  const { hurry, jobsMs, options, reporter, taking } = round;
  const { clock, drainMs, flushMs, log, outbox } = options;
  const begunAt = clock.now();
  let abandoned = await endJobs(round, jobsMs);
  const drainUntil = (jobsMs === undefined ? clock.now() : begunAt) + drainMs;
  // A take that was answered in that instant still brings leases, to be given back or run.
  await settles(taking, { clock, ms: drainUntil - clock.now(), signal: hurry });
  await settles(taking, { clock, ms: flushMs });
  abandoned += await endJobs(round, jobsMs === undefined ? jobsMs : drainUntil - clock.now());
  if (abandoned > 0)
    log.warn({ abandoned }, 'jobs did not end in time, returning them to the queue');
  // What is left of the drain is time for a platform that is away to come back.
  const leftMs = hurry.aborted ? 0 : drainUntil - clock.now();
  await settles(reporter.delivered(), { clock, ms: leftMs, signal: hurry });
  const flushUntil = clock.now() + flushMs;
  await settles(reporter.delivered(), { clock, ms: flushMs });
  const undelivered = outbox.undelivered();
  if (undelivered.length > 0) log.error({ undelivered }, 'delivering outcomes failed');
  await outbox.secure();
  await sayBye(options, Math.max(flushUntil, clock.now() + LEAST_BYE_MS));
  return { delivered: undelivered.length === 0, undelivered, abandoned };
}

/** How many did not end, and were given back all the same. */
async function endJobs(
  { attempts, hurry, options }: WindUpOptions,
  jobsMs: number | undefined,
): Promise<number> {
  const { clock, forceMs } = options;
  attempts.releaseWaiting();
  if (!(await settles(attempts.idle(), { clock, ms: jobsMs, signal: hurry }))) {
    attempts.stopAll('shutdown');
    await settles(attempts.idle(), { clock, ms: forceMs });
  }
  return attempts.abandonAll();
}

/** Unheard, it costs time only: the leases run out, and a successor's hello tells the same. */
async function sayBye(options: CompleteWorkerOptions, until: number): Promise<void> {
  const { clock, incarnation, link, log, observer, outbox, workerId } = options;
  const pace = new RetryPace({ baseMs: 100, maxMs: 1_000, jitter: 0.2 });
  const survivors = outbox.survivors().slice(0, MAX_LISTED);
  const bye = { workerId, incarnation, reason: 'drained' as const, outbox: survivors };
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

interface Patience {
  clock: Clock;
  /** Undefined: no limit. */
  ms: number | undefined;
  signal?: AbortSignal;
}

/** Whether it settles within so many ms, and before the signal. */
async function settles(work: Promise<void>, { clock, ms, signal }: Patience): Promise<boolean> {
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
