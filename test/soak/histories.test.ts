// Records histories of platforms that fail, each with a seed of its own, and checks them.
import { expect, it } from 'vitest';
import { recordNodes } from '../histories/node-run.ts';
import { recordPlatform } from '../histories/platform-run.ts';
import { describeViolations } from '../histories/report.ts';
import { QUICK_STORIES } from '../histories/stories.ts';
import { leaveOutWithoutPostgres } from '../support/postgres.ts';
import { chooseSeed } from '../support/random.ts';
import { ALL_FAULTS } from '../support/runs/node-faults.ts';

const rounds = Number(process.env['ROUNDS'] ?? 12);
const stories = [...QUICK_STORIES, 'ttl'] as const;
const LOAD = { clients: 24, loadMs: 30_000, calmMs: 5_000, settleMs: 120_000, stories };
/** recordNodes has its own faults of workers. */
const NODE_FAULTS = ALL_FAULTS.filter((name) => !/worker|supervisor/.test(name));

const isLeftOut = leaveOutWithoutPostgres('test/soak/histories.test.ts: nodes');

it(`breaks no rule that clients of one platform see in ${rounds} rounds of faults`, async () => {
  const first = chooseSeed();
  for (let seed = first; seed < first + rounds; seed++) {
    expect(describeViolations(await recordPlatform({ ...LOAD, seed }))).toEqual([]);
  }
});

it.skipIf(isLeftOut)(
  `breaks no rule that clients of three nodes see in ${rounds} rounds of faults`,
  async () => {
    const first = chooseSeed();
    for (let seed = first; seed < first + rounds; seed++) {
      const load = { ...LOAD, loadMs: 60_000, seed, nodes: 3, faults: NODE_FAULTS };
      expect(describeViolations(await recordNodes(load))).toEqual([]);
    }
  },
);
