import { Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';
import { StoreHealth } from '../../../../src/store/disk/store-failures.ts';

function openHealth() {
  const lines: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(JSON.parse(String(line)));
      done();
    },
  });
  const clock = new ManualClock();
  const health = new StoreHealth({ clock, log: createLog({ destination }) });
  const fail = (code: string) =>
    health.noteFailure({ code, operation: 'write', error: new Error('no') });
  const shown = () => lines.map(({ code, suppressed }) => [code, suppressed]);
  return { clock, fail, health, lines, shown };
}

it('logs each code once a minute, with the count of suppressed failures in the next line', async () => {
  const { clock, fail, health, shown } = openHealth();
  for (let i = 0; i < 5; i++) fail('SQLITE_FULL');
  fail('SQLITE_CORRUPT');
  expect(shown()).toEqual([
    ['SQLITE_FULL', undefined],
    ['SQLITE_CORRUPT', undefined],
  ]);
  await clock.advance(60_000);
  fail('SQLITE_FULL');
  expect(shown().slice(2)).toEqual([['SQLITE_FULL', 4]]);
  expect([...health.counts]).toEqual([
    ['SQLITE_FULL', 6],
    ['SQLITE_CORRUPT', 1],
  ]);
});

it('logs the count also when no failure follows', async () => {
  const { clock, fail, health, shown } = openHealth();
  for (let i = 0; i < 2; i++) fail('SQLITE_FULL');
  fail('SQLITE_CORRUPT');
  health.flush();
  expect(shown()).toHaveLength(2);
  await clock.advance(60_000);
  health.flush();
  health.flush();
  expect(shown().slice(2)).toEqual([['SQLITE_FULL', 1]]);
});

it.each([
  ['SQLITE_FULL', 'free space'],
  ['SQLITE_IOERR_WRITE', 'free space'],
  ['SQLITE_IOERR_WRITE', 'check the disk'],
  ['SQLITE_CORRUPT', 'millrace store check'],
  ['SQLITE_READONLY', 'mounted read-only'],
  ['SQLITE_NOMEM', '(SQLITE_NOMEM); check the disk'],
  ['SQLITE_BUSY', 'another program'],
  ['SQLITE_LOCKED', 'another program'],
])('names the remedy for %s: %s', (code, advice) => {
  const { fail, lines } = openHealth();
  fail(code);
  expect(lines[0]?.['msg']).toContain(advice);
  expect(lines[0]?.['operation']).toBe('write');
});
