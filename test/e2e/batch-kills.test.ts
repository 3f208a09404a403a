// Jobs of batches, of requests with several jobs, and of model processes, under kills. test/soak/kills.test.ts has long forms.

import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PlatformProcess } from '../support/processes.ts';
import { leaveOutWithoutPython } from '../support/python.ts';
import { chooseSeed, createRandom } from '../support/random.ts';
import { runUnderKills } from '../support/runs/kill-run.ts';
import { runWithModelKills } from '../support/runs/model-run.ts';

it('ends 120 jobs in batches once with their own result while threads and processes are killed', async () => {
  const seed = chooseSeed(1);
  console.log(`batch kills: SEED=${seed}`);
  const run = { jobs: 120, kills: 6, limitMs: 200_000, seed, handler: 'perilous-batches.ts' };
  const { kills, repeated, ...result } = await runUnderKills(run);
  console.log(`kills: ${JSON.stringify(kills)}, ${repeated} jobs delivered more than once`);
  expect(repeated).toBeGreaterThan(0);
  expect(result).toEqual({ acknowledged: 120, wrong: [], changed: [], exitCodes: [0, 0] });
});

it.skipIf(leaveOutWithoutPython('batch-kills.test.ts'))(
  'ends 100 jobs once with their own output while their model process is killed',
  async () => {
    const seed = chooseSeed(1);
    console.log(`model kills: SEED=${seed}`);
    const run = { jobs: 100, kills: 6, random: createRandom(seed) };
    const { repeated, ...result } = await runWithModelKills(run);
    expect(repeated).toBeGreaterThan(0);
    expect(result).toEqual({ kills: 6, wrong: [], exitCode: 0 });
  },
);

describe('requests with several jobs', () => {
  const ROUNDS = 4;
  const CLIENTS = 8;
  const TOGETHER = 50;

  let platform: PlatformProcess;

  beforeEach(async () => {
    platform = await PlatformProcess.start({ endpoints: ['demo'] });
  });

  afterEach(() => platform.close());

  const jobs = Array.from({ length: TOGETHER }, (_, n) => ({ input: { n } }));

  interface Answer {
    jobs: { id: string }[];
  }

  it('keeps every acknowledged job, and of each request all jobs or none', async () => {
    const seed = chooseSeed(1);
    console.log(`job-batch-kills: SEED=${seed}`);
    const random = createRandom(seed);
    const acknowledged: string[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      let isKilled = false;
      const submit = async () => {
        while (!isKilled) {
          try {
            const answer: Answer = JSON.parse(
              await (await platform.post('/v2/demo/jobs', { jobs })).text(),
            );
            acknowledged.push(...answer.jobs.map(({ id }) => id));
          } catch (error) {
            if (!isKilled) throw error;
          }
        }
      };
      const submitting = Array.from({ length: CLIENTS }, submit);
      await sleep(200 + Math.floor(random() * 600));
      isKilled = true;
      await platform.kill();
      await Promise.all(submitting);
      await platform.restart();
      const kept = await listJobs();
      expect(acknowledged.filter((id) => !kept.has(id))).toEqual([]);
      expect(kept.size % TOGETHER).toBe(0);
    }
    console.log(`job-batch-kills: ${acknowledged.length} jobs acknowledged`);
    expect(new Set(acknowledged).size).toBe(acknowledged.length);
    expect(acknowledged.length).toBeGreaterThan(ROUNDS * TOGETHER);
  });

  async function listJobs(): Promise<Set<string>> {
    const ids = new Set<string>();
    for (let cursor: string | undefined = ''; cursor !== undefined; ) {
      const from = cursor === '' ? '' : `&cursor=${cursor}`;
      const answer = await platform.fetch(`/v2/demo/jobs?limit=1000${from}`);
      const page: Answer & { cursor?: string } = JSON.parse(await answer.text());
      for (const { id } of page.jobs) ids.add(id);
      cursor = page.cursor;
    }
    return ids;
  }
});
