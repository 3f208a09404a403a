// The schedules of a queue. Their rows are beside the jobs of their endpoints, so one commit has the job of a tick and the
// time of the next tick. Memory has the time of each; one timer waits for the first.
import { isDeepStrictEqual } from 'node:util';
import { DueHeap } from '../../base/due-heap.ts';
import { createUuidV7 } from '../../base/id.ts';
import { AT_ONCE, Loop } from '../../base/loop.ts';
import { ENDING, logLevelOf, type StoredJob, type StoredResource } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  SCHEDULE_LIMITS,
  type ScheduleCreation,
  type ScheduleUpdate,
  type SkipReason,
  type StoredSchedule,
  storedSchedule,
} from '../../wire/resources/schedule.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import { judgeWebhook, readQueue } from '../admission.ts';
import type { QueueParts } from '../queue-parts.ts';
import { checkTiming, findNextTick } from './tick-times.ts';
import { MAX_TICK_JOBS, makeTickJobs, type Ticked, triggerJob } from './ticks.ts';

const KIND = RESOURCES.schedules.singular;
/** Rows that are read at once. */
const READ_AT_ONCE = 128;
/** Schedules whose ticks share an operation. */
const TICKED_AT_ONCE = 32;

/** What memory knows of a schedule. */
export interface ScheduleEntry {
  id: string;
  name: string;
  userId: string;
  endpointId: string;
  /** Order in lists. */
  position: number;
  /** Of the state that memory has. */
  revision: number;
}

/** A schedule with its position in lists. */
export interface ListedSchedule {
  position: number;
  schedule: StoredSchedule;
}

export interface SchedulePageRequest {
  /** Only schedules with a smaller position. */
  before?: number | undefined;
  limit: number;
}

export interface SchedulePage {
  listed: ListedSchedule[];
  /** `before` of the next page; undefined on the last one. */
  next?: number | undefined;
}

/** Merges the pages of several queues: no schedule is left out, so it ends where the first of them ends. */
export function cutSchedules(pages: readonly SchedulePage[], limit: number): SchedulePage {
  const from = Math.max(...pages.map(({ next }) => next ?? 0));
  const listed = pages
    .flatMap((page) => page.listed)
    .filter(({ position }) => position >= from)
    .sort((a, b) => b.position - a.position);
  // Two queues may choose the same position: then the next page has both.
  let end = Math.min(limit, listed.length);
  while (end > 0 && listed[end]?.position === listed[end - 1]?.position) end--;
  const page = listed.slice(0, end || limit);
  const hasMore = from > 0 || listed.length > page.length;
  return { listed: page, next: hasMore ? (page.at(-1)?.position ?? from) : undefined };
}

/** An operation on the schedules of one endpoint. */
export type ScheduleCall =
  | { verb: 'create'; userId: string; creation: ScheduleCreation }
  | { verb: 'get' | 'remove' | 'trigger'; id: string }
  | { verb: 'update'; id: string; update: ScheduleUpdate };

export interface ScheduleAnswer {
  /** As it is now, or was before its removal. */
  schedule: StoredSchedule;
  /** Of `trigger`. */
  jobId?: string | undefined;
}

/** Schedules of an endpoint, and what their ticks have done since the start of the queue. */
export interface ScheduleCounts {
  schedules: number;
  ticks: Readonly<Record<SkipReason | 'job', number>>;
}

type SchedulesOptions = Pick<
  QueueParts,
  | 'changes'
  | 'clock'
  | 'closing'
  | 'log'
  | 'positions'
  | 'signals'
  | 'store'
  | 'tracing'
  | 'webhooks'
>;

export class Schedules {
  readonly #options: SchedulesOptions;
  readonly #entries = new Map<string, ScheduleEntry>();
  readonly #due = new DueHeap<ScheduleEntry>();
  /** Creations under way, by endpoint. */
  readonly #creating = new Map<string, number>();
  /** Ticks by endpoint. */
  readonly #counts = new Map<string, Record<SkipReason | 'job', number>>();
  readonly #loop: Loop;
  #running: Promise<void> | undefined;

  constructor(options: SchedulesOptions) {
    const { clock, closing, log } = options;
    this.#options = options;
    this.#loop = new Loop({
      clock,
      closing,
      pass: () => this.#tickDue(),
      onError: (error) => log[logLevelOf(error)]({ err: error }, 'schedules failed, retrying'),
    });
  }

  /** Reads all schedules. Ticks that have passed come now. */
  async start(): Promise<void> {
    const { log, store } = this.#options;
    const listing = { kind: KIND, limit: READ_AT_ONCE };
    let before: number | undefined;
    do {
      const rows = await store.read((tx) => tx.resources({ ...listing, before }));
      for (const row of rows) {
        const schedule = readRow(row);
        if (schedule) this.#keep(schedule, row.position);
        else log.error({ schedule: row.id }, 'schedule cannot be read, ignoring it');
      }
      before = rows.length < READ_AT_ONCE ? undefined : rows.at(-1)?.position;
    } while (before !== undefined);
  }

  /** Resolves when no tick is under way, after the queue has begun to close. */
  async closed(): Promise<void> {
    await this.#running;
  }

  /** Unix ms; Infinity without any. */
  get nextTickAt(): number {
    return this.#due.firstAt;
  }

  /** By endpoint. */
  counts(): Map<string, ScheduleCounts> {
    const of = Map.groupBy(this.#entries.values(), ({ endpointId }) => endpointId);
    return new Map(
      [...of.keys(), ...this.#counts.keys()].map((endpointId) => {
        const ticks = { ...NO_TICKS, ...this.#counts.get(endpointId) };
        return [endpointId, { schedules: of.get(endpointId)?.length ?? 0, ticks }];
      }),
    );
  }

  /** All of the user. */
  entries(userId: string): ScheduleEntry[] {
    return [...this.#entries.values()].filter((entry) => entry.userId === userId);
  }

  /** Newest first. */
  async page(userId: string, { before, limit }: SchedulePageRequest): Promise<SchedulePage> {
    const read = Math.min(limit, READ_AT_ONCE);
    const listing = { kind: KIND, userId, before, limit: read + 1 };
    const rows = await this.#options.store.read((tx) => tx.resources(listing));
    const listed = rows.slice(0, read).flatMap((row) => {
      const schedule = readRow(row);
      return schedule ? { position: row.position, schedule } : [];
    });
    return { listed, next: rows.length > read ? rows[read - 1]?.position : undefined };
  }

  /** @throws ProblemError `not_found`, `invalid`, `conflict`, `quota_exceeded`, `queue_full` */
  async call(endpointId: string, call: ScheduleCall): Promise<ScheduleAnswer> {
    switch (call.verb) {
      case 'create':
        return { schedule: await this.#create(endpointId, call) };
      case 'get':
        return {
          schedule: await this.#options.store.read((tx) =>
            requireRow(tx.resource(key(call.id)), call.id),
          ),
        };
      case 'update':
        return { schedule: await this.#update(call.id, call.update) };
      case 'remove':
        return { schedule: await this.#remove(call.id) };
      case 'trigger':
        return this.#trigger(call.id);
    }
  }

  /** The endpoint is about to be removed, with the rows of its schedules. */
  forgetEndpoint(endpointId: string): void {
    for (const entry of this.#entries.values()) {
      if (entry.endpointId === endpointId) this.#forget(entry);
    }
    this.#counts.delete(endpointId);
  }

  async #create(
    endpointId: string,
    { creation, userId }: Extract<ScheduleCall, { verb: 'create' }>,
  ): Promise<StoredSchedule> {
    const { clock, positions, store } = this.#options;
    this.#judgeWebhook(creation);
    const now = clock.now();
    const schedule: StoredSchedule = {
      ...creation,
      ...inUtc(creation),
      // The schema of the input has checked that it is an object.
      input: { ...creation.input },
      id: `sch_${createUuidV7(now)}`,
      userId,
      endpointId,
      createdAt: new Date(now).toISOString(),
      revision: 0,
      nextAt: null,
      openJobs: [],
      jobs: 0,
      skipped: { missed: 0, overlap: 0, queue_full: 0 },
      lastTicks: [],
    };
    checkTiming(schedule, now);
    schedule.nextAt = findNext(schedule, now);
    const position = positions.next();
    const release = this.#reserve(endpointId);
    try {
      await store.write((tx) => {
        readQueue(tx, endpointId);
        tx.putResource(toRow(schedule, position));
      });
      this.#keep(schedule, position);
    } finally {
      release();
    }
    return schedule;
  }

  async #update(id: string, given: ScheduleUpdate): Promise<StoredSchedule> {
    const { clock, store } = this.#options;
    this.#judgeWebhook(given);
    const now = clock.now();
    const { after, position } = await store.write((tx) => {
      const row = tx.resource(key(id));
      const before = requireRow(row, id);
      const after = change(before, given, now);
      const position = row?.position ?? 0;
      tx.putResource(toRow(after, position));
      return { after, position };
    });
    this.#keepKnown(after, position);
    return after;
  }

  async #remove(id: string): Promise<StoredSchedule> {
    const removed = await this.#options.store.write((tx) => {
      const before = requireRow(tx.resource(key(id)), id);
      tx.removeResource(key(id));
      return before;
    }, ENDING);
    const entry = this.#entries.get(id);
    if (entry) this.#forget(entry);
    return removed;
  }

  async #trigger(id: string): Promise<ScheduleAnswer> {
    const { clock, positions, signals, store } = this.#options;
    const arrival = { now: clock.now(), positions: [positions.next()], signals };
    const { job, schedule } = await store.write((tx) => {
      const row = tx.resource(key(id));
      const before = requireRow(row, id);
      const endpoint = { ...readQueue(tx, before.endpointId) };
      const triggered = triggerJob(tx, { schedule: before, endpoint, ...arrival });
      tx.putResource(toRow(triggered.schedule, row?.position ?? 0));
      return triggered;
    });
    this.#announce([job], arrival.now);
    return { schedule, jobId: job.id };
  }

  /** @throws ProblemError `quota_exceeded` */
  #reserve(endpointId: string): () => void {
    const count = (change: number) => {
      const left = (this.#creating.get(endpointId) ?? 0) + change;
      if (left > 0) this.#creating.set(endpointId, left);
      else this.#creating.delete(endpointId);
      return left;
    };
    const own = [...this.#entries.values()].filter((entry) => entry.endpointId === endpointId);
    if (own.length + count(1) <= SCHEDULE_LIMITS.ofEndpoint) return () => count(-1);
    count(-1);
    throw new ProblemError(
      'quota_exceeded',
      `endpoint ${endpointId} has ${own.length} schedules, and may have ${SCHEDULE_LIMITS.ofEndpoint}; delete one`,
    );
  }

  /** @throws ProblemError `invalid` */
  #judgeWebhook({ webhook }: { webhook?: string | null | undefined }): void {
    const refusal = judgeWebhook({ webhook: webhook ?? undefined }, this.#options.webhooks);
    if (refusal) throw refusal;
  }

  /** Answers of two commits may come in another order than the commits. */
  #keep(
    { endpointId, id, name, nextAt, revision, userId }: StoredSchedule,
    position: number,
  ): void {
    const known = this.#entries.get(id);
    if (known && known.revision > revision) return;
    const facts = { id, name, userId, endpointId, position, revision };
    const entry = Object.assign(known ?? {}, facts);
    this.#entries.set(id, entry);
    if (nextAt === null) {
      this.#due.delete(entry);
      return;
    }
    this.#due.set(entry, nextAt);
    // Without schedules there is no timer.
    this.#running ??= this.#loop.run();
    this.#loop.wake(nextAt);
  }

  /** It may have been removed meanwhile. */
  #keepKnown(schedule: StoredSchedule, position: number): void {
    if (this.#entries.has(schedule.id)) this.#keep(schedule, position);
  }

  #forget(entry: ScheduleEntry): void {
    this.#entries.delete(entry.id);
    this.#due.delete(entry);
  }

  /** @returns when the next tick is due */
  async #tickDue(): Promise<number> {
    const { changes, clock, positions, signals } = this.#options;
    const now = clock.now();
    const due = this.#due.list(now, TICKED_AT_ONCE);
    if (due.length === 0) return this.#due.firstAt;
    const free = Array.from({ length: MAX_TICK_JOBS }, () => positions.next());
    const ticking = { now, positions: free, signals };
    const { gone, ticked } = await changes.commit(
      (tx, step) => {
        const found = tx.each(due, ({ endpointId, id, position }) => {
          const schedule = readRow(tx.resource(key(id)));
          const endpoint = tx.endpoint(endpointId);
          return schedule && endpoint && !endpoint.deleted
            ? { schedule, endpoint, position }
            : null;
        });
        const known = found.filter((each) => each !== null);
        const ticked = makeTickJobs(tx, step, { ...ticking, schedules: known });
        for (const { position, schedule } of ticked) tx.putResource(toRow(schedule, position));
        return { ticked, gone: due.filter((_, index) => !found[index]) };
      },
      { weight: due.length },
    );
    for (const entry of gone) this.#forget(entry);
    for (const each of ticked) this.#noteTicked(each, now);
    return this.#due.firstAt <= now ? AT_ONCE : this.#due.firstAt;
  }

  #noteTicked(
    { jobs, position, schedule, skipped }: Ticked & { position: number },
    now: number,
  ): void {
    const { endpointId, id, name } = schedule;
    this.#keepKnown(schedule, position);
    const counts = this.#counts.get(endpointId) ?? { ...NO_TICKS };
    this.#counts.set(endpointId, counts);
    counts.job += jobs.length;
    for (const [reason, count] of skipped) {
      counts[reason] += count;
      this.#options.log.info(
        { endpoint: endpointId, schedule: id, name, reason, ticks: count },
        'ticks of a schedule skipped',
      );
    }
    this.#announce(jobs, now);
  }

  #announce(jobs: readonly StoredJob[], now: number): void {
    const { signals, tracing } = this.#options;
    for (const job of jobs) {
      signals.inserted(job);
      tracing?.submitted(job, now);
    }
  }
}

const NO_TICKS = { job: 0, missed: 0, overlap: 0, queue_full: 0 };

const key = (id: string) => ({ kind: KIND, id });

function toRow(schedule: StoredSchedule, position: number): StoredResource {
  const { endpointId, id, userId } = schedule;
  return { ...key(id), userId, parent: endpointId, position, body: JSON.stringify(schedule) };
}

/** Undefined if there is none, or nobody can read it. */
function readRow(row: StoredResource | undefined): StoredSchedule | undefined {
  return row && storedSchedule.safeParse(JSON.parse(row.body)).data;
}

/** @throws ProblemError `not_found` */
function requireRow(row: StoredResource | undefined, id: string): StoredSchedule {
  const schedule = readRow(row);
  if (schedule) return schedule;
  throw new ProblemError('not_found', `schedule ${id} not found`);
}

/** As callers read it. */
function inUtc<Given extends { at?: string | null; until?: string | null }>(given: Given): Given {
  const { at, until } = given;
  return {
    ...given,
    ...(at != null && { at: new Date(at).toISOString() }),
    ...(until != null && { until: new Date(until).toISOString() }),
  };
}

const TIMING = ['cron', 'timeZone', 'every', 'phase', 'at', 'until'] as const;

/** @throws ProblemError `invalid` */
function change(before: StoredSchedule, given: ScheduleUpdate, now: number): StoredSchedule {
  const { input, ...update } = inUtc(given);
  const revision = before.revision + 1;
  const changed = { ...before, ...update, revision };
  const after: StoredSchedule = input ? { ...changed, input: { ...input } } : changed;
  const differs = (names: readonly (keyof StoredSchedule)[]) =>
    names.some((name) => !isDeepStrictEqual(before[name], after[name]));
  if (differs(TIMING)) checkTiming(after, now);
  // Otherwise a tick that is due at this moment would be lost.
  else if (!differs(['paused', 'maxJobs'])) return after;
  return { ...after, nextAt: findNext(after, now) };
}

function findNext(schedule: StoredSchedule, now: number): number | null {
  const { jobs, maxJobs, paused } = schedule;
  if (paused || (maxJobs !== null && jobs >= maxJobs)) return null;
  return findNextTick(schedule, now) ?? null;
}
