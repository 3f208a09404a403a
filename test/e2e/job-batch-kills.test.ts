// SIGKILLs the platform while clients submit several jobs with each request: every job whose ID a client has got exists
// afterwards, and of each request all jobs exist or none.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { PlatformProcess } from '../support/processes.ts';
import { chooseSeed, createRandom } from '../support/random.ts';

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
