// Which time of a container is billed.
import { describe, expect, it } from 'vitest';
import {
  type MeterState,
  measure,
  openMeter,
  type Sight,
} from '../../../../src/control/pods/pod-meter.ts';

const RATE = { price: 2_000_000, gpus: 1 };
const NEW = openMeter(1_000);
const RUNNING: MeterState = { ...NEW, ...RATE, until: 2_000, run: '1/2000' };

const running = { generation: 1, state: 'running', startedAt: 2_000, endedAt: null } as const;
const exited = { ...running, state: 'exited', endedAt: 9_000 } as const;

function sight(given: Partial<Sight>): Sight {
  const usual = { seen: undefined, lastAt: undefined, skippedMs: 0, isDue: false, rate: RATE };
  return { ...usual, at: 10_000, ...given };
}

describe('a container that runs', () => {
  it('is billed from its start, not from when it was seen', () => {
    expect(measure(NEW, sight({ seen: running }))).toEqual({ meter: RUNNING, intervals: [] });
  });

  it('changes nothing until its time is due', () => {
    const again = sight({ seen: running, at: 20_000 });
    expect(measure(RUNNING, again).meter).toBe(RUNNING);
    expect(measure(RUNNING, { ...again, isDue: true })).toEqual({
      meter: { ...RUNNING, until: 10_000 },
      intervals: [{ from: 2_000, to: 10_000, ...RATE }],
    });
  });

  it('is not decided up to now, because the clock of its machine may be behind', () => {
    const due = measure(RUNNING, sight({ seen: running, at: 20_000, isDue: true }));
    const end = { ...running, state: 'exited', endedAt: 15_000 } as const;
    const { intervals } = measure(due.meter, sight({ seen: end, at: 21_000, lastAt: 20_000 }));
    expect(intervals).toEqual([{ from: 10_000, to: 15_000, ...RATE }]);
  });

  it('is left to the clock of the earlier platform, which was ahead', () => {
    const ahead = { ...RUNNING, until: 18_000 };
    const due = sight({ seen: running, at: 20_000, isDue: true });
    expect(measure(ahead, due)).toEqual({ meter: ahead, intervals: [] });
  });

  it('begins another interval when its price changes', () => {
    const dearer = { ...RATE, price: 3_000_000 };
    const { intervals, meter } = measure(RUNNING, sight({ seen: running, rate: dearer }));
    expect(intervals).toEqual([{ from: 2_000, to: 10_000, ...RATE }]);
    expect(meter).toEqual({ ...RUNNING, ...dearer, until: 10_000 });
  });

  it('is billed from when it was seen if its start lies before time that is decided', () => {
    const { meter } = measure({ ...NEW, until: 15_000 }, sight({ seen: running, at: 20_000 }));
    expect(meter.until).toBe(20_000);
  });

  it('may have started a moment before its record, by the clock of its machine', () => {
    const { meter } = measure({ ...NEW, until: 2_400 }, sight({ seen: running }));
    expect(meter.until).toBe(2_400);
  });
});

describe('a container that has exited', () => {
  it('is billed up to its end', () => {
    const { intervals, meter } = measure(RUNNING, sight({ seen: exited }));
    expect(intervals).toEqual([{ from: 2_000, to: 9_000, ...RATE }]);
    expect(meter).toMatchObject({ run: null, ended: '1/2000', until: 9_000 });
  });

  it('is billed once, however often it is seen', () => {
    const { meter } = measure(RUNNING, sight({ seen: exited }));
    expect(measure(meter, sight({ seen: exited, at: 90_000 }))).toEqual({ meter, intervals: [] });
  });

  it('is billed whole if the platform saw neither start nor end', () => {
    const { intervals } = measure(NEW, sight({ seen: exited }));
    expect(intervals).toEqual([{ from: 2_000, to: 9_000, ...RATE }]);
  });

  it('is billed up to when it was last seen if its clock was set back', () => {
    const back = { ...exited, endedAt: 100 };
    const { intervals } = measure(RUNNING, sight({ seen: back, lastAt: 80_000, at: 90_000 }));
    expect(intervals).toEqual([{ from: 2_000, to: 80_000, ...RATE }]);
  });

  it.each([9_000, 12_000])('ends by the clock of its machine, behind or ahead: %i', (endedAt) => {
    const end = { ...exited, endedAt };
    const { intervals } = measure(RUNNING, sight({ seen: end, lastAt: 9_900 }));
    expect(intervals).toEqual([{ from: 2_000, to: endedAt, ...RATE }]);
  });
});

describe('a container whose end nobody saw', () => {
  const dead = { ...exited, endedAt: null } as const;

  it('is billed up to when it was last seen to run', () => {
    const { intervals } = measure(RUNNING, sight({ seen: dead, lastAt: 7_000 }));
    expect(intervals).toEqual([{ from: 2_000, to: 7_000, ...RATE }]);
  });

  it.each([NEW, RUNNING])('costs nothing more if this process never saw it run', (meter) => {
    const found = measure(meter, sight({ seen: dead, at: 3_600_000 }));
    expect(found).toMatchObject({ intervals: [], meter: { run: null, ended: '1/2000' } });
  });
});

describe('a container that is gone', () => {
  it('is billed up to when it was last seen', () => {
    const { intervals } = measure(RUNNING, sight({ lastAt: 7_000 }));
    expect(intervals).toEqual([{ from: 2_000, to: 7_000, ...RATE }]);
  });

  it('costs nothing more if this process never saw it', () => {
    const { intervals, meter } = measure(RUNNING, sight({}));
    expect(intervals).toEqual([]);
    expect(meter).toMatchObject({ run: null, until: 2_000 });
  });

  it('is followed by the run of the next one', () => {
    const next = { ...running, startedAt: 8_000 };
    const { intervals, meter } = measure(RUNNING, sight({ seen: next, lastAt: 7_000 }));
    expect(intervals).toEqual([{ from: 2_000, to: 7_000, ...RATE }]);
    expect(meter).toMatchObject({ run: '1/8000', until: 8_000 });
  });
});

describe('a clock that is set forward', () => {
  it('adds no time to a run', () => {
    const { intervals, meter } = measure(
      RUNNING,
      sight({ seen: running, lastAt: 5_000, at: 3_610_000, skippedMs: 3_600_000 }),
    );
    expect(intervals).toEqual([{ from: 3_602_000, to: 3_610_000, ...RATE }]);
    expect(meter.until).toBe(3_610_000);
  });
});

it('goes on from now if a clock that was far ahead has moved the meter', () => {
  const ahead = { ...RUNNING, until: 90_000_000_000 };
  const { intervals, meter } = measure(ahead, sight({ seen: running, at: 20_000 }));
  expect(intervals).toEqual([]);
  expect(meter).toEqual({ ...RUNNING, until: 20_000 });
  const later = { ...exited, endedAt: 50_000 };
  expect(measure(meter, sight({ seen: later, at: 60_000 })).intervals).toEqual([
    { from: 20_000, to: 50_000, ...RATE },
  ]);
});

it('bills nothing for a container that waited for a node and was stopped', () => {
  const waiting = { ...running, state: 'starting', startedAt: null } as const;
  const first = measure(NEW, sight({ seen: waiting, at: 1_100 }));
  const stopped = { ...exited, startedAt: null, endedAt: 3_600_000 };
  const last = measure(first.meter, sight({ seen: stopped, at: 3_600_000 }));
  expect([...first.intervals, ...last.intervals]).toEqual([]);
});
