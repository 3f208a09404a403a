// Table tests of the decision on the memory use of a process.
import { describe, expect, it } from 'vitest';
import { decideOnMemory, describeExcess } from '../../../src/worker/memory-guard.ts';

const limitBytes = 1_000 * 2 ** 20;

/** A process that uses `percent` of the limit. */
function use(percent: number, running: number, { active = running, ended = 1 } = {}) {
  return { rssBytes: (limitBytes / 100) * percent, limitBytes, running, active, ended };
}

describe('memory use', () => {
  it.each([
    ['of 80 % and no running job', use(80, 0), 'none'],
    ['of 80 % and running jobs', use(80, 3), 'none'],
    ['above 80 % and no running job', use(80.1, 0), 'recycle'],
    ['above 80 % before the first job', use(80.1, 0, { ended: 0 }), 'none'],
    ['above 80 % and a waiting job', use(80.1, 0, { active: 1 }), 'hold'],
    ['above 80 % and a running job', use(80.1, 1), 'hold'],
    ['of 100 % and running jobs', use(100, 3), 'hold'],
    ['above 100 % and one running job', use(100.1, 1), 'stop'],
    ['above 100 %, one running and one waiting job', use(100.1, 1, { active: 2 }), 'stop'],
    ['above 100 % and two running jobs', use(100.1, 2), 'suspect'],
    ['above 100 % and no running job', use(150, 0), 'recycle'],
  ])('%s: %j', (_, current, action) => {
    expect(decideOnMemory(current)).toBe(action);
  });

  it.each([
    ['the same job ran below the limit', use(99, 1), 'hold', 'stop'],
    ['no job ran below the limit', use(70, 0), 'none', 'stop'],
    ['the job is already being stopped', use(120, 1), 'stop', 'stop'],
    ['another job ran beside it until now', use(99, 2), 'hold', 'suspect'],
    ['another job has ended meanwhile', use(99, 1, { ended: 0 }), 'hold', 'suspect'],
    ['the job started above the limit', use(110, 0), 'recycle', 'suspect'],
    ['all jobs were already released', use(110, 2), 'suspect', 'suspect'],
  ] as const)('above the limit with one running job, if %s', (...row) => {
    const [, before, action, expected] = row;
    expect(decideOnMemory(use(101, 1), { use: before, action })).toBe(expected);
  });

  it('is reported with use and limit above the limit', () => {
    const text = 'the process uses 1100 MB of memory, the limit is 1000 MB';
    expect(describeExcess(use(110, 1))).toBe(text);
  });
});
