// What the page of the bill shows: its ranges, and the amounts of each step and of each resource.
import type { BillingPage, BillingRecord } from '../../../../src/client.ts';
import { platform } from '../../platform/calls.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

interface Range {
  name: string;
  step: 'hour' | 'day';
  ms: number;
}

/** The platform keeps hours for 40 days, and days for 400 days. */
export const RANGES = [
  { name: '24 hours', step: 'hour', ms: DAY_MS },
  { name: '7 days, by hour', step: 'hour', ms: 7 * DAY_MS },
  { name: '30 days', step: 'day', ms: 30 * DAY_MS },
  { name: '90 days', step: 'day', ms: 90 * DAY_MS },
  { name: '365 days', step: 'day', ms: 365 * DAY_MS },
] as const satisfies readonly Range[];

export const KINDS = { pod: 'Pods', endpoint: 'Endpoints', volume: 'Network volumes' } as const;

export interface BillChoice {
  range: Range;
  /** Undefined: all kinds. */
  kind: keyof typeof KINDS | undefined;
  /** Undefined: the user of the session's key; `*`: all users. */
  userId: string | undefined;
}

export interface Bill {
  total: BillingPage['total'];
  /** Unix ms of the start of each step, rising. */
  times: readonly number[];
  /** USD of each step. */
  costs: readonly number[];
  /** The highest cost first. */
  resources: readonly BillingRecord[];
  /** Whether there are further resources. */
  isCut: boolean;
}

/** Most resources in the table. */
const SHOWN = 500;
/** At least the steps of the longest range. */
const MOST_STEPS = 1_000;

export async function readBill(choice: BillChoice, signal: AbortSignal): Promise<Bill> {
  const { kind, range, userId } = choice;
  // Whole steps: the same bounds for both requests.
  const stepMs = range.step === 'hour' ? HOUR_MS : DAY_MS;
  const to = Math.ceil(Date.now() / stepMs) * stepMs;
  const common = { step: range.step, from: to - range.ms, to, kind, userId, signal };
  const [steps, resources] = await Promise.all([
    platform.billing.get({ ...common, group: 'step', limit: MOST_STEPS }),
    platform.billing.get({ ...common, group: 'resource', limit: SHOWN }),
  ]);
  const { from } = steps;
  const costs = new Map(steps.records.map(({ at, cost }) => [at, Number(cost)]));
  const times = Array.from({ length: range.ms / stepMs }, (_, n) => from + n * stepMs);
  return {
    total: resources.total,
    times,
    costs: times.map((at) => costs.get(at) ?? 0),
    resources: resources.records,
    isCut: resources.cursor !== undefined,
  };
}
