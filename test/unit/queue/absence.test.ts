// Which attempts may have lost what their workers sent while no platform was there: each run reads the note
// of the previous one.
import { Writable } from 'node:stream';
import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { createLog } from '../../../src/base/log.ts';
import { Queue } from '../../../src/queue/queue.ts';
import { Absence } from '../../../src/queue/recorded-time.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';

const TOO_LONG = 'restart took too long, RunPod workers may have lost chunks';

function open() {
  const clock = new ManualClock();
  const lines: string[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(String(line));
      done();
    },
  });
  const log = createLog({ level: 'warn', destination });
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const start = async ({ wasSetBack = false } = {}) => {
    const absence = new Absence({ store, clock, log });
    await absence.end({ wasSetBack });
    return absence;
  };
  return { clock, log, store, start, logged: () => lines.join('') };
}

/** A run in which two attempts begin, and whose stop bridges one of them. */
async function stop({ clock, start }: ReturnType<typeof open>) {
  const absence = await start();
  const startedAt = clock.now();
  const attempts = ['bridged', 'other'].map((token) => ({ startedAt, token }));
  await clock.advance(60_000);
  absence.bridge(['bridged']);
  await absence.begin();
  const isBroken = (next: Absence) => attempts.map((attempt) => next.isBroken(attempt));
  return { absence, isBroken };
}

it('attempts that began in this run have lost nothing', async () => {
  const opened = open();
  const { absence, isBroken } = await stop(opened);
  expect(isBroken(absence)).toEqual([false, false]);
});

it('counts an absence for all attempts after a crash', async () => {
  const { clock, start } = open();
  const first = await start();
  const startedAt = clock.now();
  await clock.advance(60_000);
  first.bridge(['bridged']);
  expect((await start()).isBroken({ startedAt, token: 'bridged' })).toBe(true);
});

it('costs nothing at a restart within 2 s for attempts whose workers resend', async () => {
  const opened = open();
  const { isBroken } = await stop(opened);
  await opened.clock.advance(2_000);
  expect(isBroken(await opened.start())).toEqual([false, true]);
  expect(opened.logged()).not.toContain(TOO_LONG);
});

it('requires the platform to be reachable again within 2 s', async () => {
  const opened = open();
  const { isBroken } = await stop(opened);
  await opened.clock.advance(1_500);
  const next = await opened.start();
  await opened.clock.advance(501);
  next.reached();
  expect(isBroken(next)).toEqual([true, true]);
  next.reached();
  expect(opened.logged().split(TOO_LONG)).toHaveLength(2);
  expect(opened.logged()).toContain('"attempts":1');
});

it('counts the time from the moment the workers were drained', async () => {
  const { clock, start } = open();
  const first = await start();
  const attempt = { startedAt: clock.now(), token: 'bridged' };
  await clock.advance(60_000);
  first.bridge(['bridged']);
  await clock.advance(1_500);
  await first.begin();
  await clock.advance(501);
  expect((await start()).isBroken(attempt)).toBe(true);
});

it('bridges an attempt once, not permanently', async () => {
  const opened = open();
  const { isBroken } = await stop(opened);
  const second = await opened.start();
  second.bridge([]);
  await second.begin();
  expect(isBroken(await opened.start())).toEqual([true, true]);
});

it('counts a clock that was set back as an absence', async () => {
  const opened = open();
  const { isBroken } = await stop(opened);
  expect(isBroken(await opened.start({ wasSetBack: true }))).toEqual([true, true]);
  const other = open();
  const stopped = await stop(other);
  const now = other.clock.now() - 1_000;
  other.clock.now = () => now;
  expect(stopped.isBroken(await other.start())).toEqual([true, true]);
});

it('writes the shutdown note when the queue closes', async () => {
  const { clock, log, start, store } = open();
  const queue = new Queue({ store, clock, log });
  await queue.start();
  const startedAt = clock.now();
  await clock.advance(60_000);
  queue.bridge(['bridged']);
  await queue.close();
  await queue.close();
  const next = await start();
  expect(next.isBroken({ startedAt, token: 'bridged' })).toBe(false);
});
