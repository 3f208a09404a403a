// When schedules have their ticks: through the changes of clocks, and what is refused.
import { describe, expect, it } from 'vitest';
import {
  checkTiming,
  findDueTicks,
  findNextTick,
  listNextTicks,
} from '../../../../src/queue/schedules/tick-times.ts';
import type { ScheduleTiming } from '../../../../src/wire/resources/schedule.ts';

const NO_TIMING: ScheduleTiming = {
  ...{ cron: null, timeZone: 'UTC', every: null, phase: 0, at: null, until: null },
};

function list(cron: string, timeZone: string, from: string, count: number): string[] {
  const listed: string[] = [];
  let time: number | undefined = Date.parse(from);
  while (listed.length < count && time !== undefined) {
    time = findNextTick({ ...NO_TIMING, cron, timeZone }, time);
    if (time !== undefined) listed.push(new Date(time).toISOString().slice(5, 16));
  }
  return listed;
}

const NEW_YORK = 'America/New_York';

describe('a cron expression', () => {
  // At 2:00 on 8 March 2026 the clock goes to 3:00; at 2:00 on 1 November it goes back to 1:00.
  it.each([
    [
      'comes at the end of the gap',
      '30 2 * * *',
      '2026-03-07T12:00:00Z',
      ['03-08T07:00', '03-09T06:30'],
    ],
    [
      'comes at the end of the gap with a list of hours',
      '0 2,14 * * *',
      '2026-03-08T00:00:00Z',
      ['03-08T07:00', '03-08T18:00', '03-09T06:00'],
    ],
    [
      'comes once if its time comes twice',
      '30 1 * * *',
      '2026-10-31T12:00:00Z',
      ['11-01T05:30', '11-02T06:30'],
    ],
    [
      'leaves the gap out with a step',
      '*/30 1-3 * * *',
      '2026-03-08T00:00:00Z',
      ['03-08T06:00', '03-08T06:30', '03-08T07:00', '03-08T07:30', '03-09T05:00'],
    ],
    [
      'comes each hour in spring',
      '0 * * * *',
      '2026-03-08T05:30:00Z',
      ['03-08T06:00', '03-08T07:00', '03-08T08:00'],
    ],
    [
      'comes each hour in autumn',
      '0 * * * *',
      '2026-11-01T04:30:00Z',
      ['11-01T05:00', '11-01T06:00', '11-01T07:00', '11-01T08:00'],
    ],
    [
      'counts both hours with a step',
      '*/30 1-2 * * *',
      '2026-11-01T04:30:00Z',
      ['11-01T05:00', '11-01T05:30', '11-01T06:00', '11-01T06:30', '11-01T07:00', '11-01T07:30'],
    ],
  ])('%s', (_, cron, from, expected) => {
    expect(list(cron, NEW_YORK, from, expected.length)).toEqual(expected);
  });

  it('comes at the end of a gap of half an hour, and of a missing day', () => {
    expect(list('15 2 * * *', 'Australia/Lord_Howe', '2026-10-02T16:00:00Z', 2)).toEqual([
      '10-03T15:30',
      '10-04T15:15',
    ]);
    expect(list('0 0 * * *', 'Pacific/Apia', '2011-12-29T00:00:00Z', 3)).toEqual([
      '12-29T10:00',
      '12-30T10:00',
      '12-31T10:00',
    ]);
  });

  it('has the same ticks from wherever it is asked', () => {
    const zones = [NEW_YORK, 'Australia/Lord_Howe', 'Europe/Berlin'];
    for (const cron of ['30 2 * * *', '*/20 1-3 * * *', '15 1,2 * * 0']) {
      for (const timeZone of zones) {
        const timing = { ...NO_TIMING, cron, timeZone };
        const [from, to] = [Date.UTC(2026, 2, 5), Date.UTC(2026, 3, 8)];
        const { count, last: all } = findDueTicks(timing, { from, to, most: 1_000 });
        expect(count).toBe(all.length);
        let time = from - 1;
        for (const tick of all.slice(0, 60)) {
          const next = findNextTick(timing, time) ?? 0;
          expect(next).toBe(tick);
          expect(findNextTick(timing, next - 1)).toBe(next);
          expect(findDueTicks(timing, { from, to: next, most: 1 }).last).toEqual([next]);
          time = next;
        }
      }
    }
  });
});

describe('an interval', () => {
  it('has the multiples of its length, moved by its phase', () => {
    const timing = { ...NO_TIMING, every: 3_600_000, phase: 600_000 };
    const ticks = listNextTicks(timing, Date.parse('2026-01-01T00:10:00Z'));
    expect(ticks.map((at) => new Date(at).toISOString().slice(11, 16))).toEqual([
      '01:10',
      '02:10',
      '03:10',
      '04:10',
      '05:10',
    ]);
    const range = { from: ticks[1] ?? 0, to: (ticks[4] ?? 0) - 1 };
    expect(findDueTicks(timing, { ...range, most: 9 }).last).toEqual(ticks.slice(1, 4));
    expect(findDueTicks(timing, { ...range, most: 1 })).toEqual({ count: 3, last: [ticks[3]] });
  });
});

describe('checkTiming', () => {
  const now = Date.UTC(2026, 0, 1);
  it.each([
    [{}, 'cron: exactly one of'],
    [{ cron: '* * * * *', every: 60_000 }, 'cron: exactly one of'],
    [{ cron: '* * * *' }, 'cron: must have the five parts'],
    [{ cron: '2027-01-01T00:00:00' }, 'cron: must have the five parts'],
    [{ cron: '61 * * * *' }, 'cron: Invalid value for minute: 61'],
    [{ cron: '0 0 31 2 *' }, 'cron: no tick comes from now on'],
    [{ cron: '@reboot' }, 'cron: @reboot is not supported'],
    [{ cron: '* * * * *', timeZone: 'Mars/Olympus' }, 'timeZone: must be an IANA time zone'],
    [{ every: 60_000, phase: 60_000 }, 'phase: must be less than every, 60000'],
    [{ at: '2025-12-31T00:00:00Z' }, 'at: must be in the future'],
    [{ every: 60_000, until: '2025-12-31T00:00:00Z' }, 'until: no tick comes from now on'],
  ])('refuses %j', (changed, fault) => {
    expect(() => checkTiming({ ...NO_TIMING, ...changed }, now)).toThrow(fault);
  });
});
