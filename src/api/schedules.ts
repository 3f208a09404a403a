// The schedules of a user over all queues: finds the queue that has a schedule, and shows each with its next ticks.
import type { Clock } from '../base/clock.ts';
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import { DEFAULT_QUOTAS, type Quotas, requireBelow } from '../control/limits/quotas.ts';
import {
  cutPage,
  NameIndex,
  type UserListing,
  type UserResources,
} from '../control/user-resources.ts';
import type {
  ScheduleAnswer,
  ScheduleCall,
  ScheduleEntry,
  SchedulePage,
  SchedulePageRequest,
} from '../queue/schedules/schedules.ts';
import { checkTiming, listNextTicks } from '../queue/schedules/tick-times.ts';
import { ProblemError } from '../wire/problem.ts';
import {
  SCHEDULE_LIMITS,
  type ScheduleCreation,
  type ScheduleRecord,
  type ScheduleTiming,
  type ScheduleUpdate,
  type StoredSchedule,
} from '../wire/resources/schedule.ts';
import { isDnsLabel } from '../wire/routes/route.ts';

/** The queues of all nodes. */
export interface ScheduleHost {
  /** @throws ProblemError `unavailable` if the node that serves the endpoint does not answer, and those of the queue */
  call(endpointId: string, call: ScheduleCall): Promise<ScheduleAnswer>;
  /** All schedules of the user. `isComplete`: each queue has answered. */
  entries(userId: string): Promise<{ entries: Entry[]; isComplete: boolean }>;
  /** Newest first. @throws ProblemError `unavailable` if a node does not answer */
  page(userId: string, page: SchedulePageRequest): Promise<SchedulePage>;
}

type Entry = Pick<ScheduleEntry, 'endpointId' | 'id' | 'name'>;

export interface SchedulesOptions {
  host: ScheduleHost;
  endpoints: Pick<Endpoints, 'find' | 'nameOf' | 'resolve'>;
  clock: Clock;
  quotas?: Quotas | undefined;
}

export class Schedules implements UserResources<ScheduleCreation, ScheduleUpdate, ScheduleRecord> {
  readonly #options: SchedulesOptions;
  /** Creations under way, by user. */
  readonly #creating = new Map<string, number>();
  readonly #names = new NameIndex('schedules');

  constructor(options: SchedulesOptions) {
    this.#options = options;
  }

  async countOf(userId: string): Promise<number> {
    const { entries } = await this.#options.host.entries(userId);
    return entries.length;
  }

  async list({ before, limit, maxBytes, userId }: UserListing) {
    const { listed, next } = await this.#options.host.page(userId, { before, limit });
    const page = cutPage({
      wanted: listed.filter(({ schedule }) => this.#options.endpoints.find(schedule.endpointId)),
      positionOf: ({ position }) => position,
      show: ({ schedule }) => this.#show(schedule),
      limit,
      maxBytes,
    });
    return { ...page, next: page.next ?? next };
  }

  async create(userId: string, creation: ScheduleCreation): Promise<ScheduleRecord> {
    const endpointId = this.#requireEndpoint(userId, creation.endpointId);
    const creating = this.#creating.get(userId) ?? 0;
    this.#creating.set(userId, creating + 1);
    try {
      const { host, quotas = DEFAULT_QUOTAS } = this.#options;
      requireBelow('schedules', quotas.schedules, (await this.countOf(userId)) + creating);
      const call = { verb: 'create', userId, creation: { ...creation, endpointId } } as const;
      return this.#show((await host.call(endpointId, call)).schedule);
    } finally {
      const left = (this.#creating.get(userId) ?? 0) - 1;
      if (left > 0) this.#creating.set(userId, left);
      else this.#creating.delete(userId);
    }
  }

  async get(userId: string, idOrName: string): Promise<ScheduleRecord> {
    return this.#show((await this.#call(userId, idOrName, (id) => ({ verb: 'get', id }))).schedule);
  }

  async update(userId: string, idOrName: string, update: ScheduleUpdate): Promise<ScheduleRecord> {
    const call = (id: string) => ({ verb: 'update', id, update }) as const;
    return this.#show((await this.#call(userId, idOrName, call)).schedule);
  }

  async remove(userId: string, idOrName: string): Promise<void> {
    await this.#call(userId, idOrName, (id) => ({ verb: 'remove', id }));
  }

  /** @returns the ID of the job that it has made */
  async trigger(userId: string, idOrName: string): Promise<string> {
    const { jobId } = await this.#call(userId, idOrName, (id) => ({ verb: 'trigger', id }));
    if (jobId === undefined) throw new Error('a trigger has made no job');
    return jobId;
  }

  /** The next ticks that a schedule would have. @throws ProblemError `invalid` */
  preview(timing: ScheduleTiming): string[] {
    const now = this.#options.clock.now();
    checkTiming(timing, now);
    return listNextTicks(timing, now).map(toIso);
  }

  /** @throws ProblemError `not_found`, `conflict` if several schedules have the name */
  async #call(
    userId: string,
    idOrName: string,
    compose: (id: string) => ScheduleCall,
  ): Promise<ScheduleAnswer> {
    const { host } = this.#options;
    const { entries, isComplete } = await host.entries(userId);
    const named = entries.filter(({ name }) => name === idOrName && isDnsLabel(name));
    const found = entries.find(({ id }) => id === idOrName);
    const id = this.#names.choose(idOrName, found ? [found.id] : named.map((each) => each.id));
    const entry = found ?? named[0];
    if (entry) return host.call(entry.endpointId, compose(id));
    if (isComplete) throw new ProblemError('not_found', `schedule ${idOrName} not found`);
    throw new ProblemError('unavailable', 'a node that may have the schedule does not answer', {
      retryAfterMs: 1_000,
    });
  }

  /** @throws ProblemError `invalid` */
  #requireEndpoint(userId: string, idOrName: string): string {
    const { endpoints } = this.#options;
    const id = endpoints.resolve(userId, idOrName);
    if (endpoints.find(id)?.userId === userId) return id;
    const fault = `endpointId: endpoint ${JSON.stringify(idOrName)} not found`;
    throw new ProblemError('invalid', fault, { errors: [fault] });
  }

  #show(schedule: StoredSchedule): ScheduleRecord {
    const { nextAt, openJobs: _open, revision: _revision, userId: _user, ...shown } = schedule;
    const { endpointId, paused } = shown;
    const ended = nextAt === null ? 'ended' : 'active';
    return {
      ...shown,
      endpointName: this.#options.endpoints.nameOf(endpointId) ?? endpointId,
      status: paused ? 'paused' : ended,
      nextTicks: listTicks(schedule).map(toIso),
    };
  }
}

function listTicks({ jobs, maxJobs, nextAt, ...timing }: StoredSchedule): number[] {
  if (nextAt === null) return [];
  const most = Math.min(SCHEDULE_LIMITS.nextTicks, (maxJobs ?? Number.POSITIVE_INFINITY) - jobs);
  return [nextAt, ...listNextTicks(timing, nextAt)].slice(0, most);
}

function toIso(time: number): string {
  return new Date(time).toISOString();
}
