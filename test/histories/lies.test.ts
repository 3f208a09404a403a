// A proxy falsifies the answers of a real platform. The checker reports the rule that each lie breaks.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PlatformProcess } from '../support/processes.ts';
import type { History } from './history.ts';
import { Liar, type Lie } from './liar.ts';
import { LIES } from './lies.ts';
import { check } from './rules.ts';
import { record } from './run.ts';
import { addUsers, OWN_ENDPOINTS, PLATFORM_ARGS, RecordedWorker, type User } from './stand.ts';
import { type StoryName, TWIN } from './stories.ts';

let platform: PlatformProcess;
let users: readonly [User, User];
const ends = new AsyncDisposableStack();

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: OWN_ENDPOINTS, args: PLATFORM_ARGS });
  ends.defer(() => platform.close());
  users = await addUsers(platform);
  const workers = ['work', TWIN].map((endpoint) => {
    const place = { id: `w-${endpoint}`, folder: platform.folder };
    return ends.use(new RecordedWorker(platform.url, { ...users[0], endpoint }, place));
  });
  await Promise.all(workers.map((worker) => worker.untilReady()));
});
afterAll(() => ends.disposeAsync());

interface StoryRun {
  lie: Lie;
  story: StoryName;
  seed: number;
  settleMs: number;
}

/** Records the story of one client whose calls go through the proxy. */
async function recordStory({ lie, seed, settleMs, story }: StoryRun): Promise<History> {
  await using liar = await Liar.start(platform.url, lie);
  return await record({
    // A purge ends the jobs of all stories at its endpoint, so this story gets the other one.
    users: story === 'purge' ? users.toReversed() : users,
    ...{ seed, clients: 1, stories: [story], isOneRound: true, areWorkersSteady: true },
    ...{ urls: () => [liar.url], passWebhooks: (url) => liar.passWebhooks(url) },
    ...{ loadMs: 3_000, settleMs, requestLimitMs: 10_000 },
  });
}

describe('a proxy that', () => {
  it('tells no lie breaks no rule', async () => {
    const stories = [...new Set(Object.values(LIES).map(([, story]) => story))];
    const honest = {
      lie: (_asked, forward) => forward(),
      settleMs: 30_000,
    } satisfies Partial<StoryRun>;
    const histories = stories.map((story, index) =>
      recordStory({ ...honest, story, seed: 100 + index }),
    );
    for (const history of await Promise.all(histories)) expect(check(history)).toEqual([]);
  });

  it.concurrent.each(Object.entries(LIES).map(([rule, lie], index) => ({ rule, lie, index })))(
    '$lie.0 breaks the rule $rule',
    async ({ index, lie: [, story, create], rule }) => {
      const run = { lie: create(), story, seed: index + 1, settleMs: 2_500 };
      const found = check(await recordStory(run)).map((violation) => violation.rule);
      // Some lies have more than one consequence.
      expect(found[0]).toBe(rule);
    },
  );
});
