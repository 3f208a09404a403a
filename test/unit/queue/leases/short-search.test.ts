// A take whose search for jobs of groups was cut short asks again at once, but not if its worker may take nothing anyway.
import { setImmediate as turn } from 'node:timers/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { ENDPOINT, Hand, Platform } from '../../../support/queue-platform.ts';

const ITERATIONS = 200;
/** So few that the store searches again and again. */
const FEW = { windowJobs: 3, readyJobs: 6, endedJobs: 2 };

it('waits with a worker that has to run a job alone, and does not search on meanwhile', async () => {
  const store = openSqliteStore({ path: ':memory:', live: FEW });
  const platform = new Platform({ store, endpoint: { groupConcurrency: 1 } });
  onTestFinished(() => platform.close());
  await platform.start();
  const hand = async (id: string) => {
    const made = new Hand(() => platform.queue.link(ENDPOINT), { id, slots: 20 });
    await made.hello();
    return made;
  };
  const busy = await hand('busy');
  await platform.submit({ group: 'g' });
  const running = await busy.takeOne();
  // Each of them may have ended their worker, so it runs alone from now on.
  for (let count = 0; count < 4; count++) await platform.submit();
  const crashing = await hand('crashing');
  for (let count = 0; count < 4; count++) await crashing.takeOne();
  await crashing.bye('crashed');
  for (let count = 0; count < 60; count++) await platform.submit({ group: 'g' });
  await busy.renew([running]);

  const writes = vi.spyOn(platform.store, 'write');
  const open = busy.take({ max: 8, waitMs: 5_000 });
  for (let count = 0; count < ITERATIONS; count++) await turn();
  expect(writes.mock.calls.length).toBeLessThan(4);
  await platform.clock.advance(5_000);
  expect(await open).toEqual([]);
});
