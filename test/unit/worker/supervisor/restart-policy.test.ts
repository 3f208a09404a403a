import { describe, expect, it } from 'vitest';
import {
  DEFAULT_RESTART_POLICY,
  judgeProcessEnd,
  NO_RESTARTS,
  type ProcessLife,
  type RestartRecord,
} from '../../../../src/worker/supervisor/restart-policy.ts';

const policy = {
  ...DEFAULT_RESTART_POLICY,
  startAttempts: 3,
  pace: { baseMs: 500, maxMs: 30_000, jitter: 0 },
};
const crashed = (livedMs: number): ProcessLife => ({
  wasReady: true,
  livedMs,
  hasCompleted: false,
  ranSolo: false,
  isFinal: false,
  isRefused: false,
  isRecycled: false,
});
const unready: ProcessLife = { ...crashed(10), wasReady: false };
const recycled: ProcessLife = { ...crashed(10), isRecycled: true };
const refused = (livedMs: number): ProcessLife => ({ ...crashed(livedMs), isFinal: true });
const final: ProcessLife = { ...unready, isFinal: true };

/** The verdicts over one process after the other. */
function judgeAll(lives: readonly ProcessLife[], from: RestartRecord = NO_RESTARTS) {
  let record = from;
  return lives.map((life) => {
    const { isGivenUp, waitMs, ...verdict } = judgeProcessEnd(record, life, policy);
    record = verdict.record;
    return isGivenUp ? 'given up' : waitMs;
  });
}

describe('the process after an ended worker process', () => {
  it('starts at once after the first crash', () => {
    expect(judgeAll([crashed(10)])).toEqual([0]);
  });

  it('waits longer after each early crash and is never abandoned for it', () => {
    const lives = Array.from({ length: 12 }, () => crashed(59_999));
    expect(judgeAll(lives)).toEqual([
      0, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000, 30_000,
    ]);
  });

  it('starts at once after a process that ran for a minute', () => {
    expect(judgeAll([crashed(10), crashed(10), crashed(60_000), crashed(10)])).toEqual([
      0, 500, 0, 500,
    ]);
  });

  it('starts at once after a process that had completed a job', () => {
    const useful = { ...crashed(10), hasCompleted: true };
    expect(judgeAll([crashed(10), crashed(10), crashed(10), useful, crashed(10)])).toEqual([
      0, 500, 1_000, 0, 500,
    ]);
  });

  it('waits no longer after the crash of a job that runs alone because it is a suspect', () => {
    const suspect = { ...crashed(10), ranSolo: true };
    expect(judgeAll([suspect, suspect, crashed(10), suspect, crashed(10), suspect])).toEqual([
      0, 0, 0, 0, 500, 500,
    ]);
  });

  it('is abandoned at once if the platform has refused the key, also after processes that took jobs', () => {
    expect(judgeAll([crashed(60_000), { ...unready, isRefused: true }])).toEqual([0, 'given up']);
  });

  it('is abandoned after several processes in a row ended before they took jobs', () => {
    expect(judgeAll([unready, unready, unready, unready])).toEqual([
      500,
      1_000,
      'given up',
      'given up',
    ]);
  });

  it('restarts the count after a process that took jobs', () => {
    expect(judgeAll([unready, unready, crashed(10), unready, unready])).toEqual([
      500, 1_000, 0, 500, 1_000,
    ]);
  });

  it('is abandoned at once if another process would fail too', () => {
    expect(judgeAll([final])).toEqual(['given up']);
  });

  it('starts at once after each recycled process', () => {
    expect(
      judgeAll([recycled, recycled, recycled, crashed(10), crashed(10), recycled, crashed(10)]),
    ).toEqual([0, 0, 0, 0, 500, 0, 0]);
  });

  it('is abandoned if two processes that took jobs soon report that no other process can succeed', () => {
    expect(judgeAll([refused(3_600_000), refused(10)])).toEqual([0, 'given up']);
    expect(judgeAll([refused(10), crashed(10), refused(10)])).toEqual([0, 500, 1_000]);
    expect(judgeAll([refused(10), refused(60_000), refused(60_000)])).toEqual([0, 0, 0]);
  });

  it('starts again if that worked before', () => {
    expect(judgeAll([crashed(10), final, final, final])).toEqual([0, 500, 1_000, 'given up']);
  });
});
