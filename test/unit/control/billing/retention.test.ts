// How long the rows of the bill are kept, also if the clock is far ahead.
import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { addToBill, USER_SUM } from '../../../../src/control/billing/bill-rows.ts';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';

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
