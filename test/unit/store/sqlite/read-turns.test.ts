// Large reads that start together, and the other work that runs meanwhile.
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { openSqlite } from '../../../../src/store/sqlite/sqlite.ts';
import type { Step } from '../../../../src/store/store.ts';

const MB = 1_048_576;

function* readZeros(bytes: number): Step<number> {
  const rows = yield { sql: 'select zeroblob(?) as bytes', params: [bytes] };
  return rows.length;
}

function openDriver() {
  const { driver } = openSqlite({ path: ':memory:' });
  onTestFinished(() => driver.close());
  return driver;
}

it('lets other work in between large reads', async () => {
  const driver = openDriver();
  let done = 0;
  const reads = Array.from({ length: 20 }, () =>
    driver.read(() => readZeros(5 * MB)).then(() => done++),
  );
  for (let turn = 1; turn <= 5; turn++) {
    await nextTurn();
    expect(done).toBeLessThanOrEqual(turn + 1);
  }
  await Promise.all(reads);
});

it('keeps large reads in their order', async () => {
  const driver = openDriver();
  const order: number[] = [];
  const reads = Array.from({ length: 10 }, (_, n) =>
    driver.read(() => readZeros(5 * MB)).then(() => order.push(n)),
  );
  await Promise.all(reads);
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

it('does not delay small reads', async () => {
  const driver = openDriver();
  let done = 0;
  for (let n = 0; n < 1_000; n++) {
    driver
      .read(() => readZeros(100))
      .then(
        () => done++,
        () => {},
      );
  }
  await nextTurn();
  expect(done).toBe(1_000);
});
