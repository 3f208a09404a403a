// How long the platform was away: each run reads the note of the previous one.
import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { createLog } from '../../../src/base/log.ts';
import { Absence } from '../../../src/queue/absence.ts';
import { Queue } from '../../../src/queue/queue.ts';
import { openSqliteStore } from '../../../src/store/sqlite.ts';

const log = createLog({ level: 'silent' });

function open() {
  const clock = new ManualClock();
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const start = async () => {
    const absence = new Absence({ store, clock, log });
    await absence.end();
    return absence;
  };
  return { clock, store, start };
}

it('the first run and a run after a crash follow an absence', async () => {
  const { clock, start } = open();
  expect((await start()).until).toBe(clock.now());
  await clock.advance(60_000);
  expect((await start()).until).toBe(clock.now());
});

it('a run that starts within 2 s of a stop keeps the end of the previous absence', async () => {
  const { clock, start } = open();
  const first = await start();
  await clock.advance(60_000);
  await first.begin();
  await clock.advance(2_000);
  const second = await start();
  expect(second.until).toBe(first.until);
  await second.begin();
  await clock.advance(2_001);
  expect((await start()).until).toBe(clock.now());
});

it('a clock that was set back counts as an absence', async () => {
  const { clock, start } = open();
  const first = await start();
  await clock.advance(60_000);
  await first.begin();
  clock.now = () => 1_000;
  expect((await start()).until).toBe(1_000);
});

it('a queue writes its shutdown note when it closes', async () => {
  const { clock, start, store } = open();
  const queue = new Queue({ store, clock, log });
  await queue.start();
  const startedAt = clock.now();
  await clock.advance(60_000);
  await queue.close();
  await queue.close();
  expect((await start()).until).toBe(startedAt);
});
