// Pauses of endpoints and of their groups: a paused endpoint accepts jobs and leases none. In memory, and in rows of the store.
import { z } from 'zod';
import { ENDING, type Transaction } from '../../store/store.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { Pause } from '../../wire/resources/pause.ts';
import { readQueue } from '../admission.ts';
import type { QueueParts } from '../queue-parts.ts';

const KIND = 'pause';

const storedPause = z.object({
  group: z.string().nullable(),
  since: z.int(),
  until: z.int().nullable(),
  reason: z.string().nullable(),
});

/** What is to be paused. `group`: null for the whole endpoint, NO_GROUP for the jobs without a group. */
export interface PauseTarget {
  endpointId: string;
  group: string | null;
}

export interface PauseRequest extends PauseTarget {
  /** Unix ms; null: until it is resumed. */
  until: number | null;
  reason: string | null;
}

interface PausedEndpoint {
  /** By group; null is the endpoint itself. */
  pauses: Map<string | null, Pause>;
  /** Groups whose pause has ended since the last take that could lease their jobs. */
  resumed: Set<string>;
}

type PausesOptions = Pick<QueueParts, 'clock' | 'signals' | 'store'>;

export class Pauses {
  readonly #options: PausesOptions;
  readonly #endpoints = new Map<string, PausedEndpoint>();
  /** No pause ends before, Unix ms. */
  #nextEndAt = Number.POSITIVE_INFINITY;
  /** By endpoint: ends when the last requested change ends. Each one sees those before. */
  readonly #changes = new Map<string, Promise<void>>();

  constructor(options: PausesOptions) {
    this.#options = options;
  }

  /** Reads the pauses of an earlier run. */
  async load(): Promise<void> {
    const rows = await this.#options.store.read((tx) =>
      tx.resources({ kind: KIND, limit: Number.MAX_SAFE_INTEGER }),
    );
    for (const { body, parent } of rows) {
      const pause = storedPause.parse(JSON.parse(body));
      this.#open(parent).pauses.set(pause.group, pause);
      this.#noteEnd(pause);
    }
  }

  /** Of the endpoint, or of the group. Undefined: none holds now. */
  find({ endpointId, group }: PauseTarget): Pause | undefined {
    const pause = this.#endpoints.get(endpointId)?.pauses.get(group);
    return pause && holds(pause, this.#options.clock.now()) ? pause : undefined;
  }

  /** Those that hold now, that of the endpoint first. */
  list(endpointId: string): Pause[] {
    const now = this.#options.clock.now();
    const all = [...(this.#endpoints.get(endpointId)?.pauses.values() ?? [])];
    return all.filter((pause) => holds(pause, now)).sort(comparePauses);
  }

  /** Whether a pause of a group holds, or has ended and a take must learn of it. */
  concernsGroups(endpointId: string): boolean {
    const paused = this.#endpoints.get(endpointId);
    if (!paused) return false;
    return paused.resumed.size > 0 || paused.pauses.size > (paused.pauses.has(null) ? 1 : 0);
  }

  /** Groups whose pause has ended. Call `noteLearned` when a take has learned of it. */
  resumed(endpointId: string): ReadonlySet<string> {
    return this.#endpoints.get(endpointId)?.resumed ?? NONE;
  }

  noteLearned(endpointId: string): void {
    this.#endpoints.get(endpointId)?.resumed.clear();
    this.#tidy(endpointId);
  }

  /**
   * Holds from the call on: no job is leased after the answer. A pause that exists gets the new end and reason.
   * @throws ProblemError `not_found`, `conflict` without a queue, `quota_exceeded` for too many groups
   */
  pause(request: PauseRequest): Promise<Pause> {
    return this.#inTurn(request, () => this.#pause(request));
  }

  /** Like `pause`, but never ends an earlier pause sooner. */
  extend(request: PauseRequest & { until: number }): Promise<void> {
    return this.#inTurn(request, async () => {
      const known = this.find(request);
      if (known && (known.until === null || known.until >= request.until)) return;
      await this.#pause({ ...request, reason: known?.reason ?? request.reason });
    });
  }

  async #pause({ endpointId, group, reason, until }: PauseRequest): Promise<Pause> {
    const { clock, store } = this.#options;
    await store.read((tx) => readQueue(tx, endpointId));
    const before = this.find({ endpointId, group });
    if (!before) this.#requireRoom(endpointId);
    const pause = { group, since: before?.since ?? clock.now(), until, reason };
    this.#open(endpointId).pauses.set(group, pause);
    try {
      await store.write((tx) => putPause(tx, endpointId, pause), ENDING);
    } catch (error) {
      if (before) {
        this.#open(endpointId).pauses.set(group, before);
        this.#noteEnd(before);
      }
      // Takes may have passed over its jobs meanwhile.
      else this.#end({ endpointId, group });
      throw error;
    }
    this.#noteEnd(pause);
    return pause;
  }

  /** Has no effect without a pause. @throws ProblemError `not_found` */
  resume(target: PauseTarget): Promise<void> {
    return this.#inTurn(target, async () => {
      await this.#options.store.write((tx) => {
        readQueue(tx, target.endpointId);
        tx.removeResource({ kind: KIND, id: nameRow(target) });
      }, ENDING);
      this.#end(target);
    });
  }

  /** Ends the pauses whose time is over, and wakes the workers that wait. @returns when the next one ends, Unix ms */
  async endDue(): Promise<number> {
    const now = this.#options.clock.now();
    if (now >= this.#nextEndAt) await this.#endDue(now);
    return this.#nextEndAt;
  }

  async #endDue(now: number): Promise<void> {
    const over = [...this.#endpoints].flatMap(([endpointId, { pauses }]) =>
      [...pauses.values()].flatMap((pause) =>
        holds(pause, now) ? [] : { endpointId, group: pause.group },
      ),
    );
    for (const target of over) this.#end(target);
    const ends = [...this.#endpoints.values()].flatMap(({ pauses }) =>
      [...pauses.values()].map(({ until }) => until ?? Number.POSITIVE_INFINITY),
    );
    this.#nextEndAt = ends.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
    await this.#options.store.write((tx) => {
      for (const target of over) {
        // A new pause may have replaced it meanwhile; its row comes later.
        if (!this.find(target)) tx.removeResource({ kind: KIND, id: nameRow(target) });
      }
    }, ENDING);
  }

  forgetEndpoint(endpointId: string): void {
    this.#endpoints.delete(endpointId);
  }

  #end({ endpointId, group }: PauseTarget): void {
    const paused = this.#endpoints.get(endpointId);
    if (!paused?.pauses.delete(group)) return;
    if (group !== null) paused.resumed.add(group);
    this.#tidy(endpointId);
    const { signals } = this.#options;
    signals.wakeTakers(endpointId);
    signals.workersChanged(endpointId);
  }

  #open(endpointId: string): PausedEndpoint {
    const known = this.#endpoints.get(endpointId);
    if (known) return known;
    const paused = { pauses: new Map<string | null, Pause>(), resumed: new Set<string>() };
    this.#endpoints.set(endpointId, paused);
    return paused;
  }

  #tidy(endpointId: string): void {
    const paused = this.#endpoints.get(endpointId);
    if (paused?.pauses.size === 0 && paused.resumed.size === 0) this.#endpoints.delete(endpointId);
  }

  #noteEnd({ until }: Pause): void {
    if (until === null) return;
    this.#nextEndAt = Math.min(this.#nextEndAt, until);
    this.#options.signals.reportDue(until);
  }

  #requireRoom(endpointId: string): void {
    const { size } = this.#open(endpointId).pauses;
    if (size < LIMITS.pausesOfEndpoint) return;
    const detail = `${size} groups of endpoint ${endpointId} are paused, the most that an endpoint may have; resume some`;
    throw new ProblemError('quota_exceeded', detail);
  }

  #inTurn<T>({ endpointId }: PauseTarget, act: () => Promise<T>): Promise<T> {
    const done = (this.#changes.get(endpointId) ?? Promise.resolve()).then(act);
    const forget = () => {
      if (this.#changes.get(endpointId) === last) this.#changes.delete(endpointId);
    };
    const last = done.then(forget, forget);
    this.#changes.set(endpointId, last);
    return done;
  }
}

const NONE: ReadonlySet<string> = new Set();

function holds({ until }: Pause, now: number): boolean {
  return until === null || now < until;
}

function comparePauses(a: Pause, b: Pause): number {
  if (a.group === null || b.group === null) return a.group === null ? -1 : 1;
  return a.group < b.group ? -1 : 1;
}

/** @throws ProblemError `not_found`, `conflict` without a queue */
function putPause(tx: Transaction, endpointId: string, pause: Pause): void {
  const { userId } = readQueue(tx, endpointId);
  const id = nameRow({ endpointId, group: pause.group });
  const row = { kind: KIND, id, userId, parent: endpointId, position: pause.since };
  tx.putResource({ ...row, body: JSON.stringify(pause) });
}

function nameRow({ endpointId, group }: PauseTarget): string {
  return group === null ? endpointId : `${endpointId}/${group}`;
}
