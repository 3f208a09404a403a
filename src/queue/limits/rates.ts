// Jobs per time: how many jobs of an endpoint and of each of its groups may start now. The grants of each window are in memory, and
// in rows that the commits of the leases write, so a restart or a takeover knows all of them.
import { z } from 'zod';
import { callAt } from '../../base/clock.ts';
import { DueHeap } from '../../base/due-heap.ts';
import {
  logLevelOf,
  type StoredEndpoint,
  type StoredJob,
  type Transaction,
} from '../../store/store.ts';
import type { RateLimit } from '../../wire/resources/field.ts';
import type { QueueParts } from '../queue-parts.ts';
import { GrantWindow } from './grant-window.ts';

const KIND = 'rate';
/** Windows of the groups of an endpoint. Groups beyond them start no jobs until others have been idle for a window. */
export const MAX_GROUPS = 10_000;
/** A window stays so long after its last grant is out of it: one that is used again soon needs no new row. */
const KEPT_MS = 60_000;
/** Windows that one timer looks at. */
const AT_ONCE = 1_000;

const storedWindow = z.object({
  group: z.string().nullable(),
  perMs: z.int(),
  entries: z.array(z.tuple([z.number(), z.number(), z.int()])),
});

/** `group`: null for all jobs of the endpoint. */
interface Counted {
  endpointId: string;
  group: string | null;
  limit: RateLimit;
  window: GrantWindow;
  /** It has no free grant; a take was told so. */
  isFull: boolean;
}

type RatesOptions = Pick<QueueParts, 'clock' | 'closing' | 'log' | 'signals' | 'store'>;

export class Rates {
  readonly #options: RatesOptions;
  readonly #endpoints = new Map<string, Map<string | null, Counted>>();
  /** By the time at which something changes without a grant. */
  readonly #due = new DueHeap<Counted>();
  /** By endpoint: groups that have had free grants since the last take. */
  readonly #freed = new Map<string, Set<string>>();
  /** Endpoints some of whose groups have no window, with the number of times that there was room for more since then. */
  readonly #refusing = new Map<string, number>();
  #timer: { at: number; cancel: () => void } | undefined;

  constructor(options: RatesOptions) {
    this.#options = options;
    options.closing.addEventListener('abort', () => this.#timer?.cancel());
  }

  /** Reads the grants of an earlier run. */
  async load(): Promise<void> {
    const { clock, store } = this.#options;
    const rows = await store.read((tx) =>
      tx.resources({ kind: KIND, limit: Number.MAX_SAFE_INTEGER }),
    );
    for (const { body, parent } of rows) {
      const { entries, group, perMs } = storedWindow.parse(JSON.parse(body));
      const window = new GrantWindow(entries, clock.now());
      this.#put({ endpointId: parent, group, limit: { max: 1, perMs }, window, isFull: false });
    }
  }

  /** Number of jobs that may start now. */
  free(endpointId: string, group: string | null, limit: RateLimit, now: number): number {
    const ofEndpoint = this.#endpoints.get(endpointId);
    const counted = ofEndpoint?.get(group);
    if (!counted) {
      if (group === null || !ofEndpoint || ofEndpoint.size < MAX_GROUPS) return limit.max;
      if (!this.#refusing.has(endpointId)) this.#refusing.set(endpointId, 0);
      return 0;
    }
    const isOther = counted.limit.max !== limit.max || counted.limit.perMs !== limit.perMs;
    counted.limit = limit;
    const free = counted.window.free(limit, now);
    if (free > 0 || (counted.isFull && !isOther)) return free;
    counted.isFull = true;
    this.#schedule(counted);
    return 0;
  }

  /** When a job of a full window may start, Unix ms; undefined: now. */
  freeAt(endpointId: string, group: string | null, limit: RateLimit): number | undefined {
    const { clock } = this.#options;
    const counted = this.#endpoints.get(endpointId)?.get(group);
    if (!counted || counted.window.free(limit, clock.now()) > 0) return undefined;
    return counted.window.freeAt(limit);
  }

  /** Counts jobs that start with the operation. Call it at its end, when it cannot run again. */
  count(
    tx: Transaction,
    { id, settings, userId }: RatedEndpoint,
    { jobs, now }: { jobs: readonly StoredJob[]; now: number },
  ): void {
    const { groupRateLimit, rateLimit } = settings;
    if (jobs.length === 0) return;
    const touched: Counted[] = [];
    if (rateLimit) touched.push(this.#add(id, null, rateLimit, jobs.length, now));
    if (groupRateLimit) {
      const ofGroups = Map.groupBy(jobs, ({ group }) => group);
      for (const [group, some] of ofGroups) {
        if (group !== null) touched.push(this.#add(id, group, groupRateLimit, some.length, now));
      }
    }
    for (const { group, limit, window } of touched) {
      const body = JSON.stringify({ group, perMs: limit.perMs, entries: window.entries });
      const rowId = nameRow(id, group);
      tx.putResource({ kind: KIND, id: rowId, userId, parent: id, position: now, body });
    }
  }

  /** Groups that may start jobs again. Call `noteLearned` when a take has learned of them. */
  freed(endpointId: string): ReadonlySet<string> {
    return this.#freed.get(endpointId) ?? NONE;
  }

  /** Another number than before: groups that had no window may have one now. */
  roomChanges(endpointId: string): number {
    return this.#refusing.get(endpointId) ?? 0;
  }

  noteLearned(endpointId: string): void {
    this.#freed.delete(endpointId);
  }

  forgetEndpoint(endpointId: string): void {
    for (const counted of this.#endpoints.get(endpointId)?.values() ?? [])
      this.#due.delete(counted);
    this.#endpoints.delete(endpointId);
    this.#freed.delete(endpointId);
    this.#refusing.delete(endpointId);
  }

  #add(
    endpointId: string,
    group: string | null,
    limit: RateLimit,
    count: number,
    now: number,
  ): Counted {
    const known = this.#endpoints.get(endpointId)?.get(group);
    const window = new GrantWindow();
    const counted = known ?? { endpointId, group, limit, window, isFull: false };
    counted.limit = limit;
    counted.window.add(count, limit, now);
    counted.isFull = counted.window.free(limit, now) === 0;
    this.#put(counted);
    return counted;
  }

  #put(counted: Counted): void {
    const { endpointId, group } = counted;
    const ofEndpoint = this.#endpoints.get(endpointId) ?? new Map<string | null, Counted>();
    this.#endpoints.set(endpointId, ofEndpoint.set(group, counted));
    this.#schedule(counted);
  }

  #schedule(counted: Counted): void {
    const { isFull, limit, window } = counted;
    this.#due.set(counted, isFull ? window.freeAt(limit) : window.emptyAt(limit) + KEPT_MS);
    this.#arm();
  }

  #arm(): void {
    const at = this.#due.firstAt;
    if (at === Number.POSITIVE_INFINITY) return;
    if (this.#options.closing.aborted || (this.#timer && this.#timer.at <= at)) return;
    this.#timer?.cancel();
    const cancel = callAt(this.#options.clock, at, () => {
      this.#timer = undefined;
      void this.#pass();
    });
    this.#timer = { at, cancel };
  }

  /** Wakes the takes of windows that have free grants, and removes those that were idle for long. Never rejects. */
  async #pass(): Promise<void> {
    const { clock, log, signals, store } = this.#options;
    const now = clock.now();
    const over: Counted[] = [];
    const free = new Map<string, number>();
    for (const counted of this.#due.list(now, AT_ONCE)) {
      const { endpointId, group, isFull, limit, window } = counted;
      const count = window.free(limit, now);
      if (isFull && count > 0) {
        counted.isFull = false;
        if (group !== null) this.#note(endpointId, group);
        free.set(endpointId, (free.get(endpointId) ?? 0) + count);
      }
      if (!counted.isFull && window.emptyAt(limit) + KEPT_MS <= now) over.push(counted);
    }
    for (const counted of over) this.#remove(counted);
    for (const counted of this.#due.list(now, AT_ONCE)) this.#schedule(counted);
    this.#arm();
    for (const [endpointId, count] of free) signals.wakeTakers(endpointId, count);
    for (const endpointId of new Set(over.map((counted) => counted.endpointId))) {
      const changes = this.#refusing.get(endpointId);
      if (changes === undefined) continue;
      this.#refusing.set(endpointId, changes + 1);
      signals.wakeTakers(endpointId);
    }
    if (over.length === 0) return;
    try {
      await store.write((tx) => {
        for (const { endpointId, group } of over) {
          // It may be in use again.
          if (this.#endpoints.get(endpointId)?.has(group)) continue;
          tx.removeResource({ kind: KIND, id: nameRow(endpointId, group) });
        }
      }, LATER);
    } catch (error) {
      log[logLevelOf(error)]({ err: error }, 'could not remove the rows of idle rate limits');
    }
  }

  #note(endpointId: string, group: string): void {
    const groups = this.#freed.get(endpointId) ?? new Set<string>();
    this.#freed.set(endpointId, groups.add(group));
  }

  #remove(counted: Counted): void {
    const { endpointId, group } = counted;
    const ofEndpoint = this.#endpoints.get(endpointId);
    ofEndpoint?.delete(group);
    if (ofEndpoint?.size === 0) this.#endpoints.delete(endpointId);
    this.#due.delete(counted);
  }
}

const NONE: ReadonlySet<string> = new Set();
const LATER = { onDisk: 'later' } as const;

type RatedEndpoint = Pick<StoredEndpoint, 'id' | 'settings' | 'userId'>;

function nameRow(endpointId: string, group: string | null): string {
  return group === null ? endpointId : `${endpointId}/${group}`;
}
