// Which ticks make a job: after an absence of any length, by `catchUp`, within their bounds.
import { describe, expect, it } from 'vitest';
import { decideDueTicks, LATE_MS } from '../../../../src/queue/schedules/due-ticks.ts';
import type { StoredSchedule } from '../../../../src/wire/resources/schedule.ts';
import { createRandom } from '../../../support/random.ts';

const MINUTE = 60_000;
const T0 = Date.UTC(2026, 0, 1);

type Scheduled = StoredSchedule & { nextAt: number };

function schedule(changed: Partial<Scheduled> = {}): Scheduled {
  return {
    id: 'sch_1',
    userId: 'ann',
    createdAt: new Date(T0).toISOString(),
    name: 's',
    endpointId: 'e',
    cron: null,
    timeZone: 'UTC',
    every: MINUTE,
    phase: 0,
    at: null,
    until: null,
    maxJobs: null,
    catchUp: 'one',
    catchUpMax: 100,
    overlap: 'allow',
    jitter: 0,
    paused: false,
    input: {},
    policy: {},
    webhook: null,
    nextAt: T0,
    revision: 0,
    openJobs: [],
    jobs: 0,
    skipped: { missed: 0, overlap: 0, queue_full: 0 },
    lastTicks: [],
    ...changed,
  };
}

const minutes = (...numbers: number[]) => numbers.map((number) => T0 + number * MINUTE);

describe('decideDueTicks', () => {
  it.each([
    ['nothing before the tick', {}, -1, { jobs: [], nextAt: T0 }],
    ['the tick at its time', {}, 0, { jobs: minutes(0), nextAt: T0 + MINUTE }],
    [
      'nothing after the clock was set back',
      { nextAt: T0 + MINUTE },
      -3_600_000,
      { jobs: [], nextAt: T0 + MINUTE },
    ],
    [
      'the last of those that are due',
      {},
      10.5 * MINUTE,
      {
        jobs: minutes(10),
        nextAt: T0 + 11 * MINUTE,
        missed: { count: 10, lastAt: T0 + 9 * MINUTE },
      },
    ],
    [
      'one after a short absence, however short the interval, with skip',
      { every: 1_000, catchUp: 'skip' },
      30_000,
      { jobs: [T0 + 30_000], nextAt: T0 + 31_000, missed: { count: 30, lastAt: T0 + 29_000 } },
    ],
    [
      'nothing that is more than a minute late with skip',
      { every: 60 * MINUTE, catchUp: 'skip' },
      LATE_MS + 1,
      { jobs: [], nextAt: T0 + 60 * MINUTE, missed: { count: 1, lastAt: T0 } },
    ],
    [
      'the last one with skip, if it is not late',
      { catchUp: 'skip' },
      10.5 * MINUTE,
      {
        jobs: minutes(10),
        nextAt: T0 + 11 * MINUTE,
        missed: { count: 10, lastAt: T0 + 9 * MINUTE },
      },
    ],
    [
      'all missed ones with all',
      { catchUp: 'all' },
      3.5 * MINUTE,
      { jobs: minutes(0, 1, 2, 3), nextAt: T0 + 4 * MINUTE },
    ],
    [
      'the last missed ones up to catchUpMax',
      { catchUp: 'all', catchUpMax: 2 },
      4.5 * MINUTE,
      {
        jobs: minutes(3, 4),
        nextAt: T0 + 5 * MINUTE,
        missed: { count: 3, lastAt: T0 + 2 * MINUTE },
      },
    ],
    [
      'no tick after until',
      { until: new Date(T0 + MINUTE).toISOString(), catchUp: 'all' },
      5 * MINUTE,
      { jobs: minutes(0, 1), nextAt: null },
    ],
    [
      'no more than maxJobs',
      { maxJobs: 5, jobs: 3, catchUp: 'all' },
      5 * MINUTE,
      { jobs: minutes(0, 1), nextAt: T0 + 2 * MINUTE },
    ],
    [
      'a single time that was missed',
      { every: null, at: new Date(T0).toISOString() },
      90 * MINUTE,
      { jobs: minutes(0), nextAt: null },
    ],
    [
      'a cron expression',
      { every: null, cron: '0 3 * * *', timeZone: 'Europe/Berlin', nextAt: T0 + 2 * 60 * MINUTE },
      26 * 60 * MINUTE,
      {
        jobs: [T0 + 26 * 60 * MINUTE],
        nextAt: T0 + 50 * 60 * MINUTE,
        missed: { count: 1, lastAt: T0 + 2 * 60 * MINUTE },
      },
    ],
    [
      'the last one of a cron expression after a month of seconds',
      { every: null, cron: '* * * * * *' },
      31 * 24 * 60 * MINUTE,
      {
        jobs: [T0 + 31 * 24 * 60 * MINUTE],
        nextAt: T0 + 31 * 24 * 60 * MINUTE + 1_000,
        missed: { count: 1_001, lastAt: T0 + 31 * 24 * 60 * MINUTE - 1_000 },
      },
    ],
  ] as const)('makes %s', (_, changed, afterMs, expected) => {
    const decided = decideDueTicks(schedule(changed), T0 + afterMs);
    expect(decided).toEqual({ missed: undefined, ...expected });
  });

  it('goes on with the next decision after 64 jobs', () => {
    const all = schedule({ catchUp: 'all' });
    const now = T0 + 200 * MINUTE;
    const first = decideDueTicks(all, now);
    expect(first.missed).toEqual({ count: 101, lastAt: T0 + 100 * MINUTE });
    const second = decideDueTicks({ ...all, nextAt: first.nextAt ?? 0 }, now);
    expect(second.missed).toBeUndefined();
    const made = [...first.jobs, ...second.jobs];
    expect(made).toEqual(Array.from({ length: 100 }, (_, index) => T0 + (101 + index) * MINUTE));
    expect(second.nextAt).toBe(now + MINUTE);
  });

  // A year of ticks, one by one, is the model.
  it.each(['skip', 'one', 'all'] as const)(
    'decides each tick once, whenever it looks, with %s',
    (catchUp) => {
      const random = createRandom(7);
      for (let round = 0; round < 200; round++) {
        const every = 1_000 * (1 + Math.floor(random() * 600));
        const state = schedule({
          every,
          catchUp,
          catchUpMax: 3,
          nextAt: T0 - (T0 % every) + every,
        });
        const first = state.nextAt;
        let now = T0;
        const made: number[] = [];
        let missed = 0;
        for (let look = 0; look < 12; look++) {
          now += Math.floor(random() ** 3 * 3_600_000);
          for (;;) {
            const decided = decideDueTicks(state, now);
            made.push(...decided.jobs);
            missed += decided.missed?.count ?? 0;
            expect(decided.jobs.length).toBeLessThanOrEqual({ skip: 1, one: 1, all: 3 }[catchUp]);
            state.nextAt = decided.nextAt ?? 0;
            if (state.nextAt > now) break;
          }
        }
        expect(made).toEqual([...new Set(made)].toSorted((a, b) => a - b));
        expect(made.length + missed).toBe(now < first ? 0 : Math.floor((now - first) / every) + 1);
      }
    },
  );
});
