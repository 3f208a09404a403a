// What was spent: the sums of users and endpoints that budgets are judged by, and what pods, endpoints and volumes
// have cost since this process manages them, for metrics.
import type { Clock } from '../../base/clock.ts';
import type { Store } from '../../store/store.ts';
import type { BilledKind } from '../../wire/resources/billing.ts';
import type { Interval } from '../pods/pod-meter.ts';
import {
  type Amount,
  addAmounts,
  amountOf,
  type BilledResource,
  kindOf,
  NO_AMOUNT,
  positionOf,
  readBill,
  readUserSum,
  STEP_MS,
  splitInterval,
  UNITS_PER_USD,
  USER_SUM,
} from './bill-rows.ts';
import type { Billing } from './billing.ts';

/** Days of the longest period. */
const MAX_DAYS = 31;
/** Budgets whose rows are read in one operation. */
const READ_AT_ONCE = 20;

/** What is to be added up. */
export interface SpendingScope {
  userId: string;
  /** Null: all that the user has. */
  endpointId: string | null;
  /** Starts of days, Unix ms; the end is not included. */
  from: number;
  to: number;
}

/** In units of the bill. */
export interface Spent {
  billed: bigint;
  /** Of containers that this process has not observed yet, so nobody knows whether they still run. */
  unseen: bigint;
}

export interface SpendingOptions {
  store: Pick<Store, 'read'>;
  billing: Pick<Billing, 'openIntervals' | 'unseenIntervals'>;
}

/** By user or endpoint, then by day. */
type OpenSums = Map<string, Map<number, Spent>>;

export class Spending {
  readonly #options: SpendingOptions;

  constructor(options: SpendingOptions) {
    this.#options = options;
  }

  /** In the order of the scopes; an error for each that cannot be read. */
  async read(scopes: readonly SpendingScope[]): Promise<(Spent | Error)[]> {
    const stored: (bigint | Error)[] = [];
    for (let first = 0; first < scopes.length; first += READ_AT_ONCE) {
      const slice = scopes.slice(first, first + READ_AT_ONCE);
      stored.push(...(await Promise.all(slice.map((scope) => this.#readStored(scope)))));
    }
    // After the rows: an interval that ends meanwhile is missed once, and never counts twice.
    const open = this.#addUpOpen(scopes);
    return stored.map((units, index) => {
      const scope = scopes[index];
      if (units instanceof Error || !scope) return units instanceof Error ? units : NOTHING;
      const { billed, unseen } = pickOpen(open, scope);
      return { billed: units + billed, unseen };
    });
  }

  async #readStored({ endpointId, from, to, userId }: SpendingScope): Promise<bigint | Error> {
    const listing =
      endpointId === null
        ? { kind: USER_SUM, userId, before: to / STEP_MS.day }
        : { kind: kindOf('day'), parent: endpointId, before: positionOf('day', to) };
    try {
      const { store } = this.#options;
      const limit = Math.min(MAX_DAYS, (to - from) / STEP_MS.day);
      const rows = await store.read((tx) => tx.resources({ ...listing, limit }));
      const sums = rows.map((row) =>
        endpointId === null ? readUserSum(row) : readBill(row, 'day'),
      );
      return sums.reduce((sum, { at, units }) => (at >= from ? sum + units : sum), 0n);
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  /** Skips scopes that nobody asked for, so reading one user's budget does not cost a scan of everyone's pods. */
  #addUpOpen(scopes: readonly SpendingScope[]): OpenSums {
    const { billing } = this.#options;
    const wanted = new Set(scopes.map(nameScope));
    const sums: OpenSums = new Map();
    const add = (name: string, at: number, { billed, unseen }: Spent) => {
      const days = sums.get(name) ?? new Map<number, Spent>();
      const before = days.get(at) ?? NOTHING;
      days.set(at, { billed: before.billed + billed, unseen: before.unseen + unseen });
      sums.set(name, days);
    };
    const lists = [
      {
        intervals: billing.openIntervals(),
        spentOf: (units: bigint) => ({ billed: units, unseen: 0n }),
      },
      {
        intervals: billing.unseenIntervals(),
        spentOf: (units: bigint) => ({ billed: 0n, unseen: units }),
      },
    ];
    for (const { intervals, spentOf } of lists) {
      for (const open of intervals) {
        const names = nameAll(open.resource).filter((name) => wanted.has(name));
        if (names.length === 0) continue;
        for (const [at, { units }] of splitInterval(open.interval, STEP_MS.day)) {
          for (const name of names) add(name, at, spentOf(units));
        }
      }
    }
    return sums;
  }
}

const NOTHING: Spent = { billed: 0n, unseen: 0n };

function nameUser(id: string): string {
  return `user/${id}`;
}

function nameEndpoint(id: string): string {
  return `endpoint/${id}`;
}

function nameScope({ endpointId, userId }: SpendingScope): string {
  return endpointId === null ? nameUser(userId) : nameEndpoint(endpointId);
}

/** All scopes that the resource belongs to. */
function nameAll({ id, kind, userId }: BilledResource): string[] {
  return kind === 'endpoint' ? [nameUser(userId), nameEndpoint(id)] : [nameUser(userId)];
}

function pickOpen(open: OpenSums, scope: SpendingScope): Spent {
  const { from, to } = scope;
  const days = [...(open.get(nameScope(scope)) ?? [])].filter(([at]) => at >= from && at < to);
  return days.reduce(
    (sum, [, { billed, unseen }]) => ({
      billed: sum.billed + billed,
      unseen: sum.unseen + unseen,
    }),
    NOTHING,
  );
}

/** One time series: an endpoint, all pods, or all volumes. */
export interface CostTotal {
  kind: BilledKind;
  /** Empty for pods and volumes. */
  endpointId: string;
  usd: number;
  gpuSeconds: number;
}

interface Sum extends Pick<CostTotal, 'kind' | 'endpointId'> {
  amount: Amount;
}

/** Costs since this process manages pods, for metrics. In memory: the bill is exact. */
export class CostTotals {
  readonly #clock: Clock;
  #since: number;
  /** Of intervals that are on the bill. */
  readonly #sums = new Map<string, Sum>();
  /** A counter must not go back, and the time of a container that cannot be reached is not known for a while. */
  readonly #shown = new Map<string, CostTotal>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#since = clock.now();
  }

  /** Counts from 0: this process manages pods and volumes from now on. */
  start(): void {
    this.#since = this.#clock.now();
    this.#sums.clear();
    this.#shown.clear();
  }

  /** The intervals are on the bill. */
  add(resource: BilledResource, intervals: readonly Interval[]): void {
    for (const interval of intervals) this.#add(this.#sums, resource, interval);
  }

  /** `open`: the time that is not on the bill yet. `exists`: whether the endpoint has not been deleted. */
  read(
    open: Iterable<{ resource: BilledResource; interval: Interval }>,
    exists: (endpointId: string) => boolean,
  ): CostTotal[] {
    for (const [key, { endpointId }] of this.#sums) {
      if (endpointId === '' || exists(endpointId)) continue;
      this.#sums.delete(key);
      this.#shown.delete(key);
    }
    const sums = new Map(this.#sums);
    for (const { interval, resource } of open) this.#add(sums, resource, interval);
    for (const [key, { amount, endpointId, kind }] of sums) {
      if (endpointId !== '' && !exists(endpointId)) continue;
      const shown = this.#shown.get(key);
      this.#shown.set(key, {
        kind,
        endpointId,
        usd: Math.max(shown?.usd ?? 0, Number(amount.units) / UNITS_PER_USD),
        gpuSeconds: Math.max(shown?.gpuSeconds ?? 0, amount.gpuMs / 1_000),
      });
    }
    return [...this.#shown.values()];
  }

  #add(sums: Map<string, Sum>, { id, kind }: BilledResource, interval: Interval): void {
    const from = Math.max(interval.from, this.#since);
    if (from >= interval.to) return;
    const endpointId = kind === 'endpoint' ? id : '';
    const key = `${kind}/${endpointId}`;
    const before = sums.get(key)?.amount ?? NO_AMOUNT;
    const amount = addAmounts(before, amountOf({ ...interval, from }));
    sums.set(key, { kind, endpointId, amount });
  }
}
