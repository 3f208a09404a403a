// The minimum of workers by time: windows that overlap, their ends, and clock changes.
import { Cron } from 'croner';
import { expect, it, vi } from 'vitest';
import {
  findMinimum,
  findWindowFaults,
  listMinimumChanges,
} from '../../../../src/control/scaling/worker-windows.ts';

const HOUR = 3_600_000;
const at = (iso: string) => Date.parse(iso);
const office = {
  cron: '0 8 * * MON-FRI',
  timeZone: 'Europe/Berlin',
  workersMin: 2,
  forMs: 10 * HOUR,
};
const rush = { cron: '0 10 * * *', timeZone: 'UTC', workersMin: 4, forMs: HOUR };
const limits = (changes: object = {}) => ({
  ...{ workersMin: 1, workersMax: 5, workersSchedule: [office, rush] },
  ...changes,
});

it.each([
  ['2026-01-15T06:59:59.999Z', 1, '2026-01-15T07:00:00Z'],
  ['2026-01-15T07:00:00.000Z', 2, '2026-01-15T10:00:00Z'],
  ['2026-01-15T07:00:00.001Z', 2, '2026-01-15T10:00:00Z'],
  ['2026-01-15T10:30:00.000Z', 4, '2026-01-15T11:00:00Z'],
  ['2026-01-15T16:59:59.999Z', 2, '2026-01-15T17:00:00Z'],
  ['2026-01-15T17:00:00.000Z', 1, '2026-01-16T07:00:00Z'],
  // A Saturday.
  ['2026-01-17T08:00:00.000Z', 1, '2026-01-17T10:00:00Z'],
])('at %s the minimum is %i, and a window changes at %s', (now, workersMin, nextAt) => {
  const found = findMinimum(limits(), at(now));
  expect(found).toEqual({ workersMin, isRaised: workersMin > 1, nextAt: at(nextAt) });
});

it('never exceeds the maximum, and never falls below the minimum of the endpoint', () => {
  const open = at('2026-01-15T10:30:00Z');
  expect(findMinimum(limits({ workersMax: 3 }), open).workersMin).toBe(3);
  expect(findMinimum(limits({ workersMin: 5 }), open)).toMatchObject({
    ...{ workersMin: 5, isRaised: false },
  });
  expect(findMinimum(limits({ workersSchedule: [] }), open)).toEqual({
    ...{ workersMin: 1, isRaised: false, nextAt: Number.POSITIVE_INFINITY },
  });
});

it.each([
  // The clock goes from 2:00 to 3:00: a window that begins in the gap begins at its end, and lasts as long as always.
  ['2026-03-28T12:00:00Z', ['2026-03-29T01:00:00.000Z', '2026-03-29T03:00:00.000Z']],
  // The clock goes from 3:00 back to 2:00: the window begins the first time.
  ['2026-10-24T12:00:00Z', ['2026-10-25T00:30:00.000Z', '2026-10-25T02:30:00.000Z']],
])('begins once at a clock change after %s', (now, changes) => {
  const night = { cron: '30 2 * * *', timeZone: 'Europe/Berlin', workersMin: 2, forMs: 2 * HOUR };
  const found = listMinimumChanges(limits({ workersSchedule: [night] }), at(now)).slice(0, 2);
  expect(found.map((change) => new Date(change.at).toISOString())).toEqual(changes);
  expect(found.map(({ workersMin }) => workersMin)).toEqual([2, 1]);
});

it('lists the next changes of the minimum, not the beginnings and ends that change nothing', () => {
  const small = { ...rush, cron: '30 * * * *', workersMin: 1, forMs: 60_000 };
  const found = listMinimumChanges(
    limits({ workersSchedule: [office, rush, small] }),
    at('2026-01-15T12:00:00Z'),
  );
  expect(found.map((change) => [new Date(change.at).toISOString(), change.workersMin])).toEqual([
    ['2026-01-15T17:00:00.000Z', 1],
    ['2026-01-16T07:00:00.000Z', 2],
    ['2026-01-16T10:00:00.000Z', 4],
    ['2026-01-16T11:00:00.000Z', 2],
    ['2026-01-16T17:00:00.000Z', 1],
  ]);
});

it('looks at a bounded number of beginnings and ends, each once', () => {
  const always = { cron: '* * * * *', timeZone: 'Asia/Tokyo', workersMin: 2, forMs: 24 * HOUR };
  const given = limits({ workersSchedule: Array.from({ length: 16 }, () => always) });
  const search = vi.spyOn(Cron.prototype, 'nextRun');
  const now = at('2026-01-15T12:00:30Z');
  expect(listMinimumChanges(given, now)).toEqual([]);
  expect(search.mock.calls.length).toBeLessThan(100);
  search.mockClear();
  listMinimumChanges(given, now + 1);
  findMinimum(given, now + 2);
  expect(search).not.toHaveBeenCalled();
  search.mockRestore();
});

it('names the window and the member that is wrong', () => {
  const workersSchedule = [
    office,
    { ...office, cron: '99 8 * * *' },
    { ...office, timeZone: 'Berlin' },
    { ...office, workersMin: 6 },
  ];
  expect(findWindowFaults(limits({ workersSchedule }))).toEqual([
    expect.stringMatching(/^workersSchedule\[1\]\.cron: /),
    'workersSchedule[2].timeZone: must be an IANA time zone, such as Europe/Berlin or UTC',
    'workersSchedule[3].workersMin: must not be greater than workersMax',
  ]);
});
