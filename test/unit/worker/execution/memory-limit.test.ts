// What is done about the memory of a process, by table.
import { describe, expect, it } from 'vitest';
import { decideOnMemory, describeExcess } from '../../../../src/worker/execution/memory-limit.ts';

const limitBytes = 1_000 * 2 ** 20;

/** `percent` of the limit is taken. */
function use(percent: number, running: number, { active = running, ended = 1 } = {}) {
  return { rssBytes: (limitBytes / 100) * percent, limitBytes, running, active, ended };
}

describe('memory use of which', () => {
  it.each([
    ['80 % are taken, and nothing runs', use(80, 0), 'none'],
    ['80 % are taken, and jobs run', use(80, 3), 'none'],
    ['more is taken, and nothing runs', use(80.1, 0), 'recycle'],
    ['more is taken, and nothing has run yet', use(80.1, 0, { ended: 0 }), 'none'],
    ['more is taken, and a job waits for its turn', use(80.1, 0, { active: 1 }), 'hold'],
    ['more is taken, and a job runs', use(80.1, 1), 'hold'],
    ['all is taken, and jobs run', use(100, 3), 'hold'],
    ['more than all is taken, and one job runs', use(100.1, 1), 'stop'],
    ['more than all is taken, one job runs, one waits', use(100.1, 1, { active: 2 }), 'stop'],
    ['more than all is taken, and two jobs run', use(100.1, 2), 'suspect'],
    ['more than all is taken, and nothing runs', use(150, 0), 'recycle'],
  ])('%s: %j', (_, taken, action) => {
    expect(decideOnMemory(taken)).toBe(action);
  });

  it.each([
    ['the same one ran when all was well', use(99, 1), 'hold', 'stop'],
    ['nothing ran when all was well', use(70, 0), 'none', 'stop'],
    ['it is being stopped already', use(120, 1), 'stop', 'stop'],
    ['another one ran beside it until now', use(99, 2), 'hold', 'suspect'],
    ['another one has ended meanwhile', use(99, 1, { ended: 0 }), 'hold', 'suspect'],
    ['it began when too much was taken already', use(110, 0), 'recycle', 'suspect'],
    ['all are given back already', use(110, 2), 'suspect', 'suspect'],
  ] as const)('more than all is taken, by the only one that runs, and %s', (...row) => {
    const [, before, action, expected] = row;
    expect(decideOnMemory(use(101, 1), { use: before, action })).toBe(expected);
  });

  it('exceeds the limit is reported with use and limit', () => {
    const text = 'the process uses 1100 MB of memory, the limit is 1000 MB';
    expect(describeExcess(use(110, 1))).toBe(text);
  });
});
