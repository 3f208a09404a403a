// Observes the endpoints of a queue every few seconds, and writes what happened in each minute to the store.
import { Loop } from '../../base/loop.ts';
import { yieldToLoop } from '../../base/slices.ts';
import { ENDING, logLevelOf, type StoredEndpoint } from '../../store/store.ts';
import type { EndpointActivity } from '../../wire/resources/activity.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import type { QueueParts } from '../queue-parts.ts';
import {
  addCounts,
  COUNTED,
  type Counted,
  createMinute,
  isQuiet,
  isSteady,
  MINUTE_MS,
  type Minute,
  shrinkMinute,
  storedHour,
} from './minute.ts';

/** Time between two observations, ms. */
const OBSERVED_MS = 10_000;
const HOUR_MS = 3_600_000;
/** Minutes are kept for 7 days. */
export const KEPT_MS = 168 * HOUR_MS;
/** Rates are those of the last observations, about a minute. */
const RATED = 7;
const KIND = 'series';
/**
 * Minutes in which jobs only wait are written together after this time, or with the next that has more to tell: thousands
 * of endpoints may have such queues for days. A platform that is killed loses them.
 */
const STEADY_MS = 10 * MINUTE_MS;
/** Endpoints whose hours one operation of the store writes. */
const WRITTEN_AT_ONCE = 20;
/** Hours that one iteration of the event loop reads from their rows. */
const HOURS_PER_ITERATION = 12;
/** Hours of an endpoint that wait while the store fails; the oldest ones are dropped. */
const MAX_UNWRITTEN = 24;
const MS_PER_S = 1_000;

export interface RecorderOptions
  extends Pick<
    QueueParts,
    'clock' | 'closing' | 'findScaling' | 'jobTimes' | 'log' | 'owns' | 'signals' | 'store'
  > {
  countWorkers: (endpointId: string, scaling: KnownScaling) => EndpointActivity['workers'];
  oldestQueuedAt: (endpointId: string) => Promise<number | null>;
}

interface Hour {
  /** Unix ms of its start. */
  at: number;
  minutes: Minute[];
  /** Counters of the endpoint at the end of the last minute. */
  totals: Counted;
  /** The store has a row of the minute. */
  isStored: boolean;
}

interface Recorded {
  /** Of the endpoint: another one may get its ID. */
  createdAt: number;
  /** Counters of the endpoint at the last observation. */
  totals: Counted;
  times: { wait: readonly number[]; execution: readonly number[]; refused: number };
  observedAt: number;
  /** The minute under way. */
  minute: Minute;
  /** The minutes of the hour under way that are over. */
  hour: Hour;
  /** Hours of which the store lacks minutes, the oldest first: a write may have failed. */
  unwritten: Hour[];
  /** Time of the next write, Unix ms. */
  writeAt: number;
  /** When the oldest job was queued, Unix ms; null if none is ready. Undefined: unknown, because the queue has changed. */
  oldestQueuedAt: number | null | undefined;
  /** Ends of jobs in the minutes of the last hour that are over. */
  ends: Ends[];
  /** Ended jobs, at the last observations. */
  ended: { at: number; count: number }[];
  /** The last minute that was written was not quiet. */
  wasActive: boolean;
}

/** Jobs that ended in a minute, without CANCELLED ones. */
type Ends = Pick<Minute, 'at' | 'completed' | 'failed' | 'timedOut' | 'refused'>;

export class ActivityRecorder {
  readonly #options: RecorderOptions;
  readonly #recorded = new Map<string, Recorded>();
  readonly #loop: Loop;
  readonly #startedAt: number;

  constructor(options: RecorderOptions) {
    this.#options = options;
    const { clock, closing, log } = options;
    this.#startedAt = clock.now();
    this.#loop = new Loop({
      clock,
      closing,
      pass: async () => {
        await this.observe();
        return clock.now() + OBSERVED_MS;
      },
      onError: (err) => log[logLevelOf(err)]({ err }, 'recording activity failed, retrying'),
    });
  }

  /** Resolves when the queue closes; never rejects. */
  async run(): Promise<void> {
    const stopListening = this.#options.signals.onQueued((endpointId) => {
      const recorded = this.#recorded.get(endpointId);
      if (recorded) recorded.oldestQueuedAt = undefined;
    });
    await this.#loop.run();
    stopListening();
  }

  /** Jobs that ended in each second of about the last minute. */
  jobsPerSecond(endpointId: string): number {
    const { ended = [] } = this.#recorded.get(endpointId) ?? {};
    const [first, last] = [ended[0], ended.at(-1)];
    if (!first || !last || last.at <= first.at) return 0;
    return ((last.count - first.count) / (last.at - first.at)) * MS_PER_S;
  }

  /** Counts failures of about the last hour. Reads only memory, because an overview asks for many endpoints at once. */
  countFailures(endpointId: string): Pick<EndpointActivity, 'failedLastHour' | 'failureRate'> {
    const recorded = this.#recorded.get(endpointId);
    const since = this.#options.clock.now() - HOUR_MS - MINUTE_MS;
    const recent = recorded?.ends.filter(({ at }) => at > since) ?? [];
    let [failed, judged, refused] = [0, 0, 0];
    for (const ends of recorded ? [...recent, recorded.minute] : []) {
      failed += ends.failed + ends.timedOut;
      refused += ends.refused;
      judged += ends.completed + ends.failed + ends.timedOut - ends.refused;
    }
    const failureRate = judged > 0 ? Math.max(0, failed - refused) / judged : null;
    return { failedLastHour: failed, failureRate };
  }

  /** The minutes that begin at this time or later, the one under way included; the oldest first. */
  async minutes(endpointId: string, from: number): Promise<Minute[]> {
    const recorded = this.#recorded.get(endpointId);
    const begin = recorded?.hour.at ?? Number.MAX_SAFE_INTEGER;
    const live = recorded ? [...recorded.hour.minutes, recorded.minute] : [];
    const past = new Map<number, readonly Minute[]>();
    for (const hour of recorded?.unwritten ?? []) past.set(hour.at, hour.minutes);
    if (from < begin) {
      for (const row of await this.#read(endpointId, from, begin)) {
        // A row may lack minutes that are not written yet.
        if (!past.has(row.at)) past.set(row.at, row.minutes);
      }
    }
    past.delete(begin);
    const hours = [...past].toSorted(([a], [b]) => a - b).flatMap(([, minutes]) => minutes);
    return [...hours, ...live].filter(({ at }) => at >= from);
  }

  async #read(
    endpointId: string,
    from: number,
    before: number,
  ): Promise<{ at: number; minutes: Minute[] }[]> {
    const limit = Math.ceil((this.#options.clock.now() - from) / HOUR_MS) + 2;
    // Callers may name a time in the future.
    const bounded = Math.max(1, Math.min(limit, 200));
    const own = { kind: KIND, parent: endpointId, before, limit: bounded };
    const rows = await this.#options.store.read((tx) => tx.resources(own));
    const hours: { at: number; minutes: Minute[] }[] = [];
    for (const [index, { body, position }] of rows.entries()) {
      if (index > 0 && index % HOURS_PER_ITERATION === 0) await yieldToLoop();
      hours.push({ at: position, minutes: storedHour.parse(JSON.parse(body)).minutes });
    }
    return hours;
  }

  /** Looks at the endpoints of the queue, and writes the minutes that are over. */
  async observe(): Promise<void> {
    const { clock, owns, store } = this.#options;
    const all = await store.read((tx) => tx.endpoints());
    const due: StoredEndpoint[] = [];
    const present = all.filter(({ deleted, id }) => !deleted && owns(id));
    const ids = new Set(present.map(({ id }) => id));
    for (const id of this.#recorded.keys()) if (!ids.has(id)) this.#recorded.delete(id);
    for (const endpoint of present) {
      const { unwritten, writeAt } = await this.#observeOne(endpoint, clock.now());
      if (unwritten.length > 0 && clock.now() >= writeAt) due.push(endpoint);
    }
    for (let at = 0; at < due.length; at += WRITTEN_AT_ONCE) {
      await this.#write(due.slice(at, at + WRITTEN_AT_ONCE));
    }
  }

  async #observeOne(endpoint: StoredEndpoint, now: number): Promise<Recorded> {
    const { countWorkers, findScaling, jobTimes } = this.#options;
    const { id } = endpoint;
    const known = this.#recorded.get(id);
    const isKnown = known?.createdAt === endpoint.createdAt;
    const recorded = isKnown ? known : await this.#resume(endpoint, now);
    const scaling = await findScaling(id);
    const at = Math.floor(now / MINUTE_MS) * MINUTE_MS;
    const oldest = await this.#findOldest(endpoint, recorded);
    this.#startMinute(recorded, at);
    const { minute } = recorded;
    const totals = readTotals(endpoint);
    for (const name of COUNTED) minute[name] += Math.max(0, totals[name] - recorded.totals[name]);
    recorded.totals = totals;
    const of = jobTimes.all.get(id);
    for (const kind of ['wait', 'execution'] as const) {
      const counts = of?.[kind].counts ?? [];
      const before = recorded.times[kind];
      minute[kind] = addCounts(
        minute[kind],
        counts.map((each, index) => Math.max(0, each - (before[index] ?? 0))),
      );
      recorded.times = { ...recorded.times, [kind]: [...counts] };
    }
    const refused = of?.refused ?? 0;
    minute.refused += Math.max(0, refused - recorded.times.refused);
    recorded.times.refused = refused;
    const seconds = Math.max(0, now - recorded.observedAt) / MS_PER_S;
    recorded.observedAt = now;
    minute.queued = endpoint.inQueue;
    minute.running = endpoint.inProgress;
    minute.oldestWaitMs = oldest === null ? 0 : Math.max(0, now - oldest);
    minute.workers = countWorkers(id, scaling);
    const { draining, idle, running, starting } = minute.workers;
    minute.workerSeconds += seconds * (starting + idle + running + draining);
    const perHour = typeof scaling === 'object' ? scaling.costPerHour : 0;
    minute.cost += (perHour * seconds * MS_PER_S) / HOUR_MS;
    recorded.ended.push({ at: now, count: totals.completed + totals.failed + totals.timedOut });
    recorded.ended.splice(0, Math.max(0, recorded.ended.length - RATED));
    return recorded;
  }

  /** Asks the store only if the queue has changed, because thousands of endpoints may have long queues. */
  async #findOldest(endpoint: StoredEndpoint, recorded: Recorded): Promise<number | null> {
    if (endpoint.inQueue === 0) return null;
    if (recorded.oldestQueuedAt !== undefined) return recorded.oldestQueuedAt;
    // The queue may change while the store answers.
    recorded.oldestQueuedAt = null;
    try {
      const queuedAt = await this.#options.oldestQueuedAt(endpoint.id);
      if (recorded.oldestQueuedAt === null) recorded.oldestQueuedAt = queuedAt;
      return queuedAt;
    } catch (error) {
      recorded.oldestQueuedAt = undefined;
      throw error;
    }
  }

  /** Begins the next minute. The one before waits to be written if it is worth a row. */
  #startMinute(recorded: Recorded, at: number): void {
    const { minute, totals, unwritten } = recorded;
    if (minute.at >= at) return;
    recorded.minute = createMinute(at);
    recorded.ends = [...recorded.ends, toEnds(minute)].filter(
      (ends) => hasEnds(ends) && ends.at >= at - HOUR_MS,
    );
    // One quiet minute ends a line that would otherwise go on.
    const isWorth = !isQuiet(minute) || recorded.wasActive;
    recorded.wasActive = !isQuiet(minute);
    if (!isWorth) return;
    const hour = Math.floor(minute.at / HOUR_MS) * HOUR_MS;
    if (recorded.hour.at !== hour) {
      recorded.hour = { at: hour, minutes: [], totals, isStored: false };
    }
    const waitMs = isSteady(minute) ? STEADY_MS : 0;
    recorded.writeAt = Math.min(recorded.writeAt, minute.at + waitMs);
    recorded.hour.minutes.push(minute);
    recorded.hour.totals = totals;
    if (!unwritten.includes(recorded.hour)) unwritten.push(recorded.hour);
    unwritten.splice(0, Math.max(0, unwritten.length - MAX_UNWRITTEN));
  }

  /** One row for each hour: its minutes together need less space than a row of each. */
  async #write(endpoints: readonly StoredEndpoint[]): Promise<void> {
    const rows = endpoints.flatMap(({ createdAt, id, userId }) =>
      (this.#recorded.get(id)?.unwritten ?? []).map((hour) => {
        const { at, isStored, minutes, totals } = hour;
        const body = JSON.stringify({ minutes: minutes.map(shrinkMinute), totals });
        const row = { kind: KIND, id: `${id}/${at}`, userId, parent: id, position: at, body };
        return { row, createdAt, isNew: !isStored };
      }),
    );
    const oldest = this.#options.clock.now() - KEPT_MS;
    await this.#options.store.write((tx) => {
      const isThere = tx.each(rows, ({ createdAt, row }) => {
        const endpoint = tx.endpoint(row.parent);
        // Another endpoint may have the ID by now.
        return endpoint && !endpoint.deleted && endpoint.createdAt === createdAt;
      });
      const kept = rows.filter((_, index) => isThere[index]);
      const grown = new Set(kept.flatMap(({ isNew, row }) => (isNew ? row.parent : [])));
      const old = tx.each(grown, (parent) =>
        tx.resources({ kind: KIND, parent, before: oldest, limit: 200 }),
      );
      for (const { row } of kept) tx.putResource(row);
      for (const { id } of old.flat()) tx.removeResource({ kind: KIND, id });
    }, ENDING);
    for (const { id } of endpoints) {
      const recorded = this.#recorded.get(id);
      if (!recorded) continue;
      for (const hour of recorded.unwritten.splice(0)) hour.isStored = true;
      recorded.writeAt = Number.POSITIVE_INFINITY;
    }
  }

  /** Goes on behind the last row: what happened since then counts for the minute that begins. */
  async #resume(endpoint: StoredEndpoint, now: number): Promise<Recorded> {
    const { jobTimes, store } = this.#options;
    const { id } = endpoint;
    const rows = await store.read((tx) => tx.resources({ kind: KIND, parent: id, limit: 2 }));
    const hours = rows.map(({ body }) => storedHour.parse(JSON.parse(body)));
    const [stored] = hours;
    const ends = hours.flatMap((each) => each.minutes.map(toEnds));
    const isNew = endpoint.createdAt >= this.#startedAt;
    const totals = { ...(isNew ? NO_TOTALS : readTotals(endpoint)), ...stored?.totals };
    const of = jobTimes.all.get(id);
    const hour = Math.floor(now / HOUR_MS) * HOUR_MS;
    // After a takeover by a node whose clock is behind, the last row may be that of the next hour.
    const found = hours[rows.findIndex(({ position }) => position === hour)];
    const recorded: Recorded = {
      createdAt: endpoint.createdAt,
      totals,
      times: {
        wait: [...(of?.wait.counts ?? [])],
        execution: [...(of?.execution.counts ?? [])],
        refused: of?.refused ?? 0,
      },
      observedAt: now,
      minute: createMinute(Math.floor(now / MINUTE_MS) * MINUTE_MS),
      hour: { at: hour, minutes: found?.minutes ?? [], totals, isStored: found !== undefined },
      unwritten: [],
      writeAt: Number.POSITIVE_INFINITY,
      oldestQueuedAt: undefined,
      ends: ends.filter((each) => hasEnds(each) && each.at >= now - HOUR_MS - MINUTE_MS),
      ended: [],
      wasActive: stored !== undefined,
    };
    this.#recorded.set(id, recorded);
    return recorded;
  }
}

const NO_TOTALS: Counted = {
  submitted: 0,
  completed: 0,
  failed: 0,
  timedOut: 0,
  cancelled: 0,
  retried: 0,
};

function toEnds({ at, completed, failed, refused, timedOut }: Minute): Ends {
  return { at, completed, failed, refused, timedOut };
}

function hasEnds({ completed, failed, timedOut }: Ends): boolean {
  return completed + failed + timedOut > 0;
}

function readTotals(endpoint: StoredEndpoint): Counted {
  const { cancelled, completed, failed, inProgress, inQueue, retried, timedOut } = endpoint;
  const submitted = inQueue + inProgress + completed + failed + timedOut + cancelled;
  return { submitted, completed, failed, timedOut, cancelled, retried };
}
