// What follows from a batch that threw and from a device without memory: tables and properties.
import { describe, expect, it } from 'vitest';
import {
  lowerLimit,
  planReruns,
  raiseLimit,
  startLimit,
} from '../../../../src/handler/batch/collector.ts';
import { fc } from '../../../support/properties.ts';

/** Names in capitals have streamed. */
function plan(left: string, size = left.length) {
  const hasStreamed = (name: string) => name !== name.toLowerCase();
  const { failed, released, reruns } = planReruns({ size, left: [...left], hasStreamed });
  return `${failed.join('')}|${released.join('')}|${reruns.map((run) => run.join('')).join(' ')}`;
}

describe('after an error of the batch function', () => {
  it.each([
    // jobs left, jobs at the start: failed | released | reruns
    ['a', 1, 'a||'],
    ['A', 1, 'A||'],
    ['', 1, '||'],
    ['ab', 2, '||a b'],
    ['abc', 3, '||ab c'],
    ['abcdefgh', 8, '||abcd efgh'],
    ['a', 8, '||a'],
    ['aB', 2, '|B|a'],
    ['AB', 2, '|AB|'],
    ['A', 2, '|A|'],
    ['aBcDe', 8, '|BD|ac e'],
  ])('%s of %i', (left, size, expected) => {
    expect(plan(left, size)).toBe(expected);
  });

  it('ends within 2n − 1 runs, and only jobs that throw alone fail', () => {
    const batches = fc.array(fc.boolean(), { minLength: 1, maxLength: 64 });
    fc.assert(
      fc.property(batches, (throwing) => {
        const failed: number[] = [];
        const completed: number[] = [];
        let runs = 0;
        const queue: (readonly number[])[] = [throwing.map((_, index) => index)];
        for (let jobs = queue.shift(); jobs; jobs = queue.shift()) {
          runs++;
          if (!jobs.some((job) => throwing[job])) {
            completed.push(...jobs);
            continue;
          }
          const plan = planReruns({ size: jobs.length, left: jobs, hasStreamed: () => false });
          failed.push(...plan.failed);
          queue.unshift(...plan.reruns);
        }
        expect(runs).toBeLessThanOrEqual(2 * throwing.length - 1);
        expect(failed).toEqual(throwing.flatMap((isCulprit, job) => (isCulprit ? [job] : [])));
        expect(completed.length + failed.length).toBe(throwing.length);
      }),
    );
  });
});

describe('the limit of the size of batches', () => {
  it('halves when memory runs out, down to one job', () => {
    let limit = startLimit(32);
    const seen: number[] = [];
    for (const size of [32, 16, 8, 4, 3, 2, 2]) {
      limit = lowerLimit(limit, size);
      seen.push(limit.jobs);
    }
    expect(seen).toEqual([16, 8, 4, 2, 1, 1, 1]);
  });

  it('grows by a quarter after enough full batches, and more slowly after each relapse', () => {
    let limit = lowerLimit(startLimit(32), 32);
    const countUntilGrowth = () => {
      const { jobs } = limit;
      let count = 0;
      while (limit.jobs === jobs) {
        limit = raiseLimit(limit, jobs, 32);
        count++;
      }
      return [count, limit.jobs];
    };
    expect(countUntilGrowth()).toEqual([64, 20]);
    limit = lowerLimit(limit, 20);
    expect(countUntilGrowth()).toEqual([128, 13]);
  });

  it('never passes maxSize, and a batch that is not full proves nothing', () => {
    const limit = lowerLimit(startLimit(2), 2);
    expect(raiseLimit(limit, 0, 2)).toBe(limit);
    let grown = limit;
    for (let count = 0; count < 1_000; count++) grown = raiseLimit(grown, grown.jobs, 2);
    expect(grown.jobs).toBe(2);
  });
});
