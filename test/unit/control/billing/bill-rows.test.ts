// Amounts, how intervals are split over hours and days, and how long the rows are kept.
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  addToBill,
  amountOf,
  formatUsd,
  kindOf,
  readBill,
  splitInterval,
  USER_SUM,
} from '../../../../src/control/billing/bill-rows.ts';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';

const HOUR_MS = 3_600_000;
const POD = { kind: 'pod', id: 'pod_1', userId: 'ada', name: 'a' } as const;

it('has exact amounts at any price and length', () => {
  const third = amountOf({ from: 0, to: 1, price: 999_999_999_999, gpus: 8 });
  expect(third).toEqual({ ms: 1, gpuMs: 8, busyGpuMs: 0, units: 999_999_999_999n });
  expect(formatUsd(third.units * BigInt(HOUR_MS))).toBe('999999.999999');
  expect(formatUsd(0n)).toBe('0.000000');
  expect(formatUsd(1_800_000n)).toBe('0.000001');
  expect(formatUsd(1_799_999n)).toBe('0.000000');
});

it('splits an interval over the hours that it touches, without loss', () => {
  const parts = splitInterval(
    { from: HOUR_MS - 10, to: 3 * HOUR_MS + 5, price: 7, gpus: 2 },
    HOUR_MS,
  );
  expect([...parts].map(([at, { gpuMs, ms }]) => [at / HOUR_MS, ms, gpuMs])).toEqual([
    [0, 10, 20],
    [1, HOUR_MS, 2 * HOUR_MS],
    [2, HOUR_MS, 2 * HOUR_MS],
    [3, 5, 10],
  ]);
});

it('reads the rows of a long time together', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  let runs = 0;
  await store.write((tx) => {
    runs += 1;
    addToBill(tx, POD, [{ from: 0, to: 1_000 * HOUR_MS, price: 1, gpus: 1 }]);
  });
  expect(runs).toBe(3);
  const hours = { kind: kindOf('hour'), limit: 2_000 };
  expect(await store.read((tx) => tx.resources(hours))).toHaveLength(1_000);
});

it('adds intervals to one row for each hour and each day', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const interval = (from: number, to: number) => ({ from, to, price: 3_000_000, gpus: 1 });
  await store.write((tx) => addToBill(tx, POD, [interval(0, 10), interval(20, HOUR_MS + 1)]));
  await store.write((tx) => addToBill(tx, POD, [interval(HOUR_MS + 1, HOUR_MS + 2)]));
  const read = async (step: 'hour' | 'day') => {
    const rows = await store.read((tx) => tx.resources({ kind: kindOf(step), limit: 9 }));
    return rows.map((row) => readBill(row, step));
  };
  expect(await read('hour')).toMatchObject([
    { ...POD, at: HOUR_MS, ms: 2 },
    { ...POD, at: 0, ms: HOUR_MS - 10 },
  ]);
  expect(await read('day')).toEqual([
    {
      ...{ ...POD, at: 0, ms: HOUR_MS - 8, gpuMs: HOUR_MS - 8, busyGpuMs: 0 },
      units: BigInt(HOUR_MS - 8) * 3_000_000n,
    },
  ]);
});

describe('the retention of the bill', () => {
  const DAY_MS = 86_400_000;
  const START = Date.UTC(2026, 0, 1);

  async function openBill() {
    const clock = new ManualClock(START);
    const store = openSqliteStore({ path: ':memory:' });
    onTestFinished(() => store.close());
    const open = () => new Billing({ store, clock, pods: undefined, nameOf: () => undefined });
    const pod = { kind: 'pod', id: 'pod_1', userId: 'ada', name: 'a' } as const;
    const interval = { from: START, to: START + 1_000, price: 1, gpus: 0 };
    await store.write((tx) => addToBill(tx, pod, [interval]));
    const count = async () => {
      const kinds = ['bill-hour', 'bill-day', USER_SUM];
      const rows = await Promise.all(
        kinds.map((kind) => store.read((tx) => tx.resources({ kind, limit: 10 }))),
      );
      return rows.map(({ length }) => length);
    };
    return { clock, count, open };
  }

  it('removes hours after 40 days, and days and sums after 400', async () => {
    const { clock, count, open } = await openBill();
    const billing = open();
    await billing.removeOld();
    await clock.advance(40 * DAY_MS);
    await billing.removeOld();
    expect(await count()).toEqual([1, 1, 1]);
    await clock.advance(2 * DAY_MS);
    await billing.removeOld();
    expect(await count()).toEqual([0, 1, 1]);
    await clock.advance(360 * DAY_MS);
    await billing.removeOld();
    expect(await count()).toEqual([0, 0, 0]);
  });

  it('removes nothing early if the clock is set forward, also before the platform starts', async () => {
    const { clock, count, open } = await openBill();
    await open().removeOld();
    clock.startFrom(START + 1_000 * DAY_MS);
    const billing = open();
    await billing.removeOld();
    await clock.advance(19 * DAY_MS);
    await billing.removeOld();
    expect(await count()).toEqual([1, 1, 1]);
    // It follows at twice the speed of time, for platforms that were down.
    await clock.advance(2 * DAY_MS);
    await billing.removeOld();
    expect(await count()).toEqual([0, 1, 1]);
  });
});
