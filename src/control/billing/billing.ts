// Reads the bill: the stored rows, and the time of running containers that no row has yet.
import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Reader, Store, Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  type BilledKind,
  type BillingGroup,
  type BillingPage,
  type BillingRecord,
  type BillingStep,
  MAX_BILLED_STEPS,
} from '../../wire/resources/billing.ts';
import { billedAs, type Interval } from '../pods/pod-meter.ts';
import type { Pods } from '../pods/pods.ts';
import { cutPage, type PageBounds } from '../user-resources.ts';
import {
  type Amount,
  addAmounts,
  type BilledResource,
  type BillRow,
  formatUsd,
  kindOf,
  NO_AMOUNT,
  positionOf,
  readBill,
  STEP_MS,
  type StoredBill,
  splitInterval,
  USER_SUM,
} from './bill-rows.ts';
import type { CostTotal, CostTotals } from './spending.ts';
import type { VolumeMeters } from './volume-meters.ts';

const MAX_ROWS = 50_000;
/** Rows read in one operation. */
const PAGE = 1_000;
const DAY_MS = 86_400_000;
/** Default ranges. */
const USUAL_MS: Readonly<Record<BillingStep, number>> = { hour: DAY_MS, day: 30 * DAY_MS };
/** How long rows are kept. */
const KEPT_MS: Readonly<Record<BillingStep, number>> = { hour: 40 * DAY_MS, day: 400 * DAY_MS };
/** Rows removed in one operation. */
const REMOVED_AT_ONCE = 200;

interface BillingQuery extends PageBounds {
  /** Undefined: all users. */
  userId: string | undefined;
  step: BillingStep;
  group: BillingGroup;
  from: number | undefined;
  to: number | undefined;
  kind: BilledKind | undefined;
  id: string | undefined;
  before: number | undefined;
}

interface BillRange {
  userId: string | undefined;
  step: BillingStep;
  /** Starts of steps, Unix ms; the end is not included. */
  from: number;
  to: number;
  kind?: BilledKind | undefined;
  id?: string | undefined;
}

export interface BillingOptions {
  store: Store;
  clock: Clock;
  /** Undefined: no engine. */
  pods: Pick<Pods, 'live' | 'meter'> | undefined;
  /** Default: network volumes are not billed. */
  volumes?: Pick<VolumeMeters, 'open'> | undefined;
  /** Default: nothing is counted for metrics. */
  totals?: CostTotals | undefined;
  /** Undefined: none is known. */
  nameOf: (kind: BilledKind, id: string) => string | undefined;
  /** Stored rows that one answer may be made from. Default: 50,000. */
  maxRows?: number | undefined;
}

/** A sum of rows. */
interface Group extends Amount, Pick<BillingRecord, 'at' | 'userId' | 'kind' | 'id' | 'name'> {}

export class Billing {
  readonly #options: BillingOptions;
  readonly #retention: RetentionClock;

  constructor(options: BillingOptions) {
    this.#options = options;
    this.#retention = new RetentionClock(options);
  }

  /** @throws ProblemError `invalid` */
  async show(query: BillingQuery): Promise<BillingPage & { next: number | undefined }> {
    const { before, group, step } = query;
    const range = { ...query, ...alignRange(query, this.#options.clock.now()) };
    const rows = await this.rows(range);
    const groups = sum(rows, group);
    const ordered = groups.map((each, index) => ({ each, position: groups.length - index }));
    const wanted = ordered.filter(({ position }) => before === undefined || position < before);
    const { next, records } = cutPage({
      limit: query.limit,
      maxBytes: query.maxBytes,
      wanted,
      positionOf: ({ position }) => position,
      show: ({ each }) => this.#describe(each),
    });
    const total = describeAmount(rows.reduce(addAmounts, NO_AMOUNT));
    return { from: range.from, to: range.to, step, total, records, next };
  }

  /** In any order. @throws ProblemError `invalid` if there are too many */
  async rows(range: BillRange): Promise<BillRow[]> {
    const rows = new Map<string, BillRow>();
    const { maxRows = MAX_ROWS } = this.#options;
    let read = 0;
    for await (const page of this.#readStored(range)) {
      read += page.length;
      if (read > maxRows) throw refuseRange(maxRows);
      for (const row of page) if (isWanted(row, range)) rows.set(keyOf(row), row);
    }
    // Last, because an interval that ends meanwhile moves to the rows: it is missing once then, and never counts twice.
    for (const row of this.#listOpen(range)) {
      const known = rows.get(keyOf(row));
      rows.set(keyOf(row), known ? { ...known, ...addAmounts(known, row) } : row);
    }
    return [...rows.values()];
  }

  /** The time of pods and volumes that no row has yet. Read it after the rows: then no time counts twice. */
  *openIntervals(): Generator<{ resource: BilledResource; interval: Interval }> {
    const { pods, volumes } = this.#options;
    for (const pod of pods?.live.allMetered() ?? []) {
      const interval = pods?.meter.openInterval(pod);
      if (interval) yield { resource: billedAs(pod), interval };
    }
    if (volumes) yield* volumes.open();
  }

  /** The time that running containers may have run since another process saw them last; this one has not yet. */
  *unseenIntervals(): Generator<{ resource: BilledResource; interval: Interval }> {
    const { clock, pods } = this.#options;
    const now = clock.now();
    for (const pod of pods?.live.allMetered() ?? []) {
      const interval = pods?.meter.unseenInterval(pod, now);
      if (interval) yield { resource: billedAs(pod), interval };
    }
  }

  /** What was spent since this process manages pods. `exists`: whether the endpoint has not been deleted. */
  readTotals(exists: (endpointId: string) => boolean): CostTotal[] {
    return this.#options.totals?.read(this.openIntervals(), exists) ?? [];
  }

  /** Removes rows whose retention is over. */
  async removeOld(): Promise<void> {
    const { store } = this.#options;
    const now = await this.#retention.read();
    const days = now - KEPT_MS.day;
    const ends = [
      { kind: kindOf('hour'), before: positionOf('hour', now - KEPT_MS.hour) },
      { kind: kindOf('day'), before: positionOf('day', days) },
      { kind: USER_SUM, before: Math.floor(days / DAY_MS) },
    ];
    for (const { before, kind } of ends) {
      let isLast = false;
      while (!isLast) {
        isLast = await store.write((tx) => {
          const old = tx.resources({ kind, before, limit: REMOVED_AT_ONCE });
          for (const { id } of old) tx.removeResource({ kind, id });
          return old.length < REMOVED_AT_ONCE;
        });
      }
    }
  }

  /** In pages, each row once; also of other kinds. */
  async *#readStored(range: BillRange): AsyncGenerator<BillRow[]> {
    const { from, id: parent, step, to, userId } = range;
    const first = positionOf(step, from);
    let before = positionOf(step, to);
    let known: ReadonlySet<string> = new Set();
    for (;;) {
      const listing = { kind: kindOf(step), userId, parent, before, limit: PAGE };
      const stored = await this.#options.store.read((tx) => readPage(tx, listing));
      const isNew = ({ id, position }: StoredBill) => position >= first && !known.has(id);
      yield stored.filter(isNew).map((each) => readBill(each, step));
      const last = stored.at(-1)?.position ?? 0;
      if (stored.length < PAGE || last < first) return;
      known = new Set(stored.map(({ id }) => id));
      // Two rows may have the same position, so the last one is read again.
      before = last + 1 < before ? last + 1 : last;
    }
  }

  #listOpen({ from, id, kind, step, to, userId }: BillRange): BillRow[] {
    const rows: BillRow[] = [];
    for (const { interval, resource } of this.openIntervals()) {
      if (userId !== undefined && resource.userId !== userId) continue;
      if ((kind ?? resource.kind) !== resource.kind || (id ?? resource.id) !== resource.id)
        continue;
      for (const [at, amount] of splitInterval(interval, STEP_MS[step])) {
        if (at >= from && at < to) rows.push({ ...resource, at, ...amount });
      }
    }
    const merged = new Map<string, BillRow>();
    for (const row of rows) {
      const known = merged.get(keyOf(row));
      merged.set(keyOf(row), known ? { ...known, ...addAmounts(known, row) } : row);
    }
    return [...merged.values()];
  }

  #describe({ at, id, kind, name, userId, ...amount }: Group): BillingRecord {
    const known = kind !== null && id !== null ? this.#options.nameOf(kind, id) : undefined;
    return { at, userId, kind, id, name: known ?? name, ...describeAmount(amount) };
  }
}

function isWanted(row: BillRow, { kind }: BillRange): boolean {
  return kind === undefined || row.kind === kind;
}

function readPage(tx: Reader, listing: Parameters<Reader['resources']>[0]) {
  return tx.resources(listing);
}

function describeAmount({ busyGpuMs, gpuMs, ms, units }: Amount) {
  const gpu = { gpuSeconds: gpuMs / 1_000, busyGpuSeconds: busyGpuMs / 1_000 };
  return { seconds: ms / 1_000, ...gpu, cost: formatUsd(units) };
}

function keyOf({ at, id, kind }: BillRow): string {
  return `${at}/${kind}/${id}`;
}

/** @throws ProblemError `invalid` */
function alignRange({ from, step, to }: BillingQuery, now: number): { from: number; to: number } {
  const stepMs = STEP_MS[step];
  const end = to ?? now;
  const begin = from ?? Math.max(0, end - USUAL_MS[step]);
  if (begin >= end) throw refuse('from', 'must be before `to`');
  const range = {
    from: Math.floor(begin / stepMs) * stepMs,
    to: Math.ceil(end / stepMs) * stepMs,
  };
  const max = MAX_BILLED_STEPS[step];
  if ((range.to - range.from) / stepMs <= max) return range;
  throw refuse('from', `is too long ago: an answer has at most ${max} ${step}s`);
}

function refuse(name: string, rule: string): ProblemError {
  return new ProblemError('invalid', `${name} ${rule}`, { errors: [`${name}: ${rule}`] });
}

function refuseRange(maxRows: number): ProblemError {
  const rule = `gives more than ${maxRows} rows; send a later one, or \`step=day\``;
  return refuse('from', rule);
}

function sum(rows: readonly BillRow[], group: BillingGroup): Group[] {
  const groups = new Map<string, Group>();
  for (const row of rows) {
    const each = groupOf(row, group);
    const name = `${each.at}/${each.kind}/${each.id}`;
    const known = groups.get(name);
    if (!known) groups.set(name, { ...each, ...row, ...each });
    else {
      const userId = known.userId === each.userId ? each.userId : null;
      groups.set(name, { ...known, ...addAmounts(known, row), userId });
    }
  }
  return [...groups.values()].sort(group === 'resource' ? compareCosts : compareTimes);
}

function groupOf(row: BillRow, group: BillingGroup): Omit<Group, keyof Amount> {
  const { at, id, kind, name, userId } = row;
  if (group === 'step') return { at, userId, kind: null, id: null, name: null };
  return { at: group === 'resource' ? null : at, userId, kind, id, name };
}

function compareTimes(a: Group, b: Group): number {
  return (b.at ?? 0) - (a.at ?? 0) || compareIds(a, b);
}

function compareCosts(a: Group, b: Group): number {
  if (a.units !== b.units) return a.units < b.units ? 1 : -1;
  return compareIds(a, b);
}

function compareIds(a: Group, b: Group): number {
  return `${a.kind}/${a.id}`.localeCompare(`${b.kind}/${b.id}`);
}

/** A platform that was down catches up at this speed. */
const MAX_SPEED = 2;
const RETENTION_KEY = { kind: 'bill-retention', id: 'clock' };

const storedTime = z.object({ now: z.number() });

export interface RetentionClockOptions {
  store: Pick<Store, 'write'>;
  clock: Clock & { monotonic?: () => number };
}

/**
 * The time by which rows of the bill get old. A clock that is far ahead must not remove the bill, so this time
 * follows the clock at no more than twice the speed at which time passes while the platform runs.
 */
class RetentionClock {
  readonly #options: RetentionClockOptions;
  /** Of the last read in this process, by the monotonic clock, ms. */
  #readAt: number | undefined;

  constructor(options: RetentionClockOptions) {
    this.#options = options;
  }

  /** Moves the time on and stores it. @returns Unix ms, never later than the clock */
  async read(): Promise<number> {
    const { clock, store } = this.#options;
    const now = clock.now();
    const at = clock.monotonic?.() ?? now;
    const passedMs = Math.max(0, at - (this.#readAt ?? at));
    const time = await store.write((tx) => {
      const before = readTime(tx, now);
      const after = Math.min(now, before + passedMs * MAX_SPEED);
      const body = JSON.stringify({ now: after });
      tx.putResource({ ...RETENTION_KEY, userId: '', parent: '', position: 0, body });
      return after;
    });
    this.#readAt = at;
    return time;
  }
}

/** At first, the end of the newest day on the bill. */
function readTime(tx: Transaction, now: number): number {
  const stored = tx.resource(RETENTION_KEY);
  if (stored) return storedTime.parse(JSON.parse(stored.body)).now;
  const before = positionOf('day', now) + positionOf('day', STEP_MS.day);
  const [newest] = tx.resources({ kind: kindOf('day'), before, limit: 1 });
  return newest ? readBill(newest, 'day').at + STEP_MS.day : now;
}
