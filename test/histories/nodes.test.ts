// The short form of test/soak/histories.test.ts for nodes: clients of nodes on a Postgres that crashes.
import { expect, it } from 'vitest';
import { leaveOutWithoutPostgres } from '../support/postgres.ts';
import { chooseSeed } from '../support/random.ts';
import { recordNodes } from './node-run.ts';
import { LIMITED_LOAD, QUICK_LOAD } from './platform-run.ts';
import { describeViolations } from './report.ts';

const isLeftOut = leaveOutWithoutPostgres('test/histories/nodes.test.ts');

it.skipIf(isLeftOut)('breaks no rule that clients of failing nodes see', async () => {
  const load = { ...QUICK_LOAD, seed: chooseSeed(1), nodes: 2 };
  const faults = ['node killed', 'Postgres crashed', 'connection cut after commit'] as const;
  expect(describeViolations(await recordNodes({ ...load, faults }))).toEqual([]);
});

it.skipIf(isLeftOut)(
  'keeps flows whole and a limit that endpoints of failing nodes share',
  async () => {
    const load = { ...LIMITED_LOAD, seed: chooseSeed(2), nodes: 2 };
    expect(describeViolations(await recordNodes({ ...load, faults: ['node killed'] }))).toEqual([]);
  },
);
