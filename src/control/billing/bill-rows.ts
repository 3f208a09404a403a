// The rows of the bill: one for each resource and hour, one for each resource and day, and the sum of each user and day.
// Intervals are added to all in the commit that ends them, so that a row is never read before it is complete up to its meter.
import { hash } from 'node:crypto';
import { z } from 'zod';
import type { Transaction } from '../../store/store.ts';
import type { BilledKind, BillingStep } from '../../wire/resources/billing.ts';
import type { Interval } from '../pods/pod-meter.ts';

export const STEP_MS: Readonly<Record<BillingStep, number>> = {
  hour: 3_600_000,
  day: 86_400_000,
};
const STEPS: readonly BillingStep[] = ['hour', 'day'];
/** A price is per hour. */
const PRICED_MS = 3_600_000;
/** Units of the bill in a USD: millionths of a USD per hour times ms. */
export const UNITS_PER_USD = 1_000_000 * PRICED_MS;
/** Positions of one step. */
const SPAN = 2 ** 32;

/** What is billed, and to whom. */
export interface BilledResource {
  kind: BilledKind;
  id: string;
  userId: string;
  /** Null: the resource's own record has it. */
  name: string | null;
}

const storedBill = z.object({
  kind: z.enum(['pod', 'endpoint', 'volume']),
  name: z.string().nullable(),
  ms: z.int().min(0),
  gpuMs: z.int().min(0),
  busyGpuMs: z.int().min(0),
  /** Sum of ms × millionths of a USD per hour: an integer, so that no sum depends on its order. */
  units: z.string().regex(/^\d+$/).transform(BigInt),
});

/** Amounts that add up. */
export interface Amount {
  ms: number;
  /** GPUs × ms of containers. */
  gpuMs: number;
  /** The part in which attempts of jobs ran. */
  busyGpuMs: number;
  units: bigint;
}

export interface BillRow extends Amount, BilledResource {
  /** Unix ms of the start of its step. */
  at: number;
}

export const NO_AMOUNT: Amount = { ms: 0, gpuMs: 0, busyGpuMs: 0, units: 0n };

export function addAmounts(a: Amount, b: Amount): Amount {
  return {
    ms: a.ms + b.ms,
    gpuMs: a.gpuMs + b.gpuMs,
    busyGpuMs: a.busyGpuMs + b.busyGpuMs,
    units: a.units + b.units,
  };
}

/** However an interval is split, the amounts of its parts add up to its own. */
export function amountOf({ from, gpus, hours = 1, price, to }: Interval): Amount {
  const ms = to - from;
  const upTo = (time: number) => (BigInt(time) * BigInt(price)) / BigInt(hours);
  return { ...NO_AMOUNT, ms, gpuMs: ms * gpus, units: upTo(to) - upTo(from) };
}

/** Millionths of a USD, rounded half up. */
function toMicroUsd(units: bigint): bigint {
  return (units + BigInt(PRICED_MS / 2)) / BigInt(PRICED_MS);
}

/** USD as decimal text: `1.250000`. */
export function formatUsd(units: bigint): string {
  const digits = toMicroUsd(units).toString().padStart(7, '0');
  return `${digits.slice(0, -6)}.${digits.slice(-6)}`;
}

/** The parts of an interval by the start of their step. */
export function splitInterval(interval: Interval, stepMs: number): Map<number, Amount> {
  const parts = new Map<number, Amount>();
  let { from } = interval;
  while (from < interval.to) {
    const at = Math.floor(from / stepMs) * stepMs;
    const to = Math.min(at + stepMs, interval.to);
    parts.set(at, amountOf({ ...interval, from, to }));
    from = to;
  }
  return parts;
}

export function kindOf(step: BillingStep): string {
  return `bill-${step}`;
}

/** The first position of a step: rows of earlier steps have smaller ones. */
export function positionOf(step: BillingStep, at: number): number {
  return Math.floor(at / STEP_MS[step]) * SPAN;
}

/** Adds the intervals of a resource to its rows. */
export function addToBill(
  tx: Transaction,
  resource: BilledResource,
  intervals: readonly Interval[],
): void {
  // Years may be due: the rows are read together.
  const parts = STEPS.flatMap((step) => splitIntervals(intervals, step));
  tx.each(parts, ({ amount, at, step }) => addToRow(tx, { ...resource, at }, step, amount));
  const days = parts.filter(({ step }) => step === 'day');
  tx.each(days, ({ amount, at }) =>
    addToUserSum(tx, { userId: resource.userId, at }, amount.units),
  );
}

function splitIntervals(
  intervals: readonly Interval[],
  step: BillingStep,
): { step: BillingStep; at: number; amount: Amount }[] {
  const amounts = new Map<number, Amount>();
  for (const interval of intervals) {
    for (const [at, amount] of splitInterval(interval, STEP_MS[step])) {
      amounts.set(at, addAmounts(amounts.get(at) ?? NO_AMOUNT, amount));
    }
  }
  return [...amounts].map(([at, amount]) => ({ step, at, amount }));
}

/** Adds GPU time in which attempts ran until now: it costs nothing beside the time of the containers. */
export function addBusyTime(
  tx: Transaction,
  resource: BilledResource,
  { ms, now }: { now: number; ms: number },
): void {
  tx.each(STEPS, (step) => {
    const at = Math.floor(now / STEP_MS[step]) * STEP_MS[step];
    addToRow(tx, { ...resource, at }, step, { ...NO_AMOUNT, busyGpuMs: ms });
  });
}

function addToRow(
  tx: Transaction,
  of: BilledResource & { at: number },
  step: BillingStep,
  amount: Amount,
): void {
  const { at, id: parent, kind: billed, name, userId } = of;
  const kind = kindOf(step);
  const id = `${at / STEP_MS[step]}/${billed}/${parent}`;
  const stored = tx.resource({ kind, id });
  const before = stored ? storedBill.parse(JSON.parse(stored.body)) : NO_AMOUNT;
  const { units, ...sum } = addAmounts(before, amount);
  // Workers report it: no report may make a row that cannot be read.
  const busyGpuMs = Math.min(sum.busyGpuMs, Number.MAX_SAFE_INTEGER);
  const body = JSON.stringify({ kind: billed, name, ...sum, busyGpuMs, units: units.toString() });
  const position = positionOf(step, at) + scatter(id);
  tx.putResource({ kind, id, userId, parent, position, body });
}

/** The rows with what each user spent in a day, so that budgets need not add up the rows of all resources. */
export const USER_SUM = 'bill-user';

const storedSum = z.object({ units: z.string().regex(/^\d+$/).transform(BigInt) });

/** @throws ZodError if it is not a sum */
export function readUserSum({ body, position }: StoredBill): { at: number; units: bigint } {
  return { at: position * STEP_MS.day, units: storedSum.parse(JSON.parse(body)).units };
}

/** `at`: Unix ms of the start of a day. */
function addToUserSum(
  tx: Transaction,
  { at, userId }: { userId: string; at: number },
  units: bigint,
): void {
  const position = at / STEP_MS.day;
  const id = `${position}/${userId}`;
  const stored = tx.resource({ kind: USER_SUM, id });
  const before = stored ? storedSum.parse(JSON.parse(stored.body)).units : 0n;
  const body = JSON.stringify({ units: (before + units).toString() });
  tx.putResource({ kind: USER_SUM, id, userId, parent: '', position, body });
}

/** Spreads the rows of a step over its positions. */
function scatter(id: string): number {
  return Number.parseInt(hash('sha256', id, 'hex').slice(0, 8), 16);
}

export interface StoredBill {
  id: string;
  userId: string;
  parent: string;
  position: number;
  body: string;
}

/** @throws ZodError if it is not a row of the bill */
export function readBill({ body, parent, position, userId }: StoredBill, step: BillingStep) {
  const at = Math.floor(position / SPAN) * STEP_MS[step];
  const stored = storedBill.parse(JSON.parse(body));
  return { at, id: parent, userId, ...stored } satisfies BillRow;
}
