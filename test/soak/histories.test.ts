// Records histories of platforms that fail, each with a seed of its own, and checks them.
import { expect, it } from 'vitest';
import { recordPlatform } from '../histories/platform-run.ts';
import { describeViolations } from '../histories/report.ts';
import { STORIES, type StoryName } from '../histories/stories.ts';
import { chooseSeed } from '../support/random.ts';

const rounds = Number(process.env['ROUNDS'] ?? 12);
const stories = Object.keys(STORIES).filter((name): name is StoryName => name in STORIES);
const LOAD = { clients: 24, loadMs: 30_000, calmMs: 5_000, settleMs: 120_000, stories };

it(`what clients see in ${rounds} rounds of faults breaks no rule: one platform`, async () => {
  const first = chooseSeed();
  for (let seed = first; seed < first + rounds; seed++) {
    expect(describeViolations(await recordPlatform({ ...LOAD, seed }))).toEqual([]);
  }
});
