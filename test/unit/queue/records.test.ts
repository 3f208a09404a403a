import { describe, expect, it } from 'vitest';
import { delayTime, executionTime } from '../../../src/queue/records.ts';
import { makeJob } from '../../support/store/job-states.ts';

it('ends the delay of a job when it starts', () => {
  const times = { queuedAt: 1_000, startedAt: 1_100, endedAt: null };
  expect(delayTime(makeJob({ status: 'IN_PROGRESS', ...times }), 5_000)).toBe(100);
  expect(delayTime(makeJob({ status: 'IN_QUEUE', ...times }), 5_000)).toBe(4_000);
});

describe('times of a record after the clock was set back', () => {
  const queuedAt = 1_000;

  it('are 0 for a job that waits or has just started', () => {
    const waiting = makeJob({ status: 'IN_QUEUE', queuedAt });
    expect(delayTime(waiting, 999)).toBe(0);
    expect(delayTime(waiting, 1_001)).toBe(1);
    const started = makeJob({ status: 'IN_PROGRESS', queuedAt, startedAt: 990, executionMs: null });
    expect(delayTime(started, 999)).toBe(0);
    expect(executionTime(started, 980)).toBe(0);
    expect(executionTime(started, 999)).toBe(9);
  });
});
