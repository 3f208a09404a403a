// Workers that break while they run, as real processes: none empties the queue by failing job after job.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import type { BreakingInput } from '../support/handlers/breaking.ts';
import { PlatformProcess } from '../support/processes.ts';

const recordSchema = z.looseObject({
  id: z.string(),
  status: z.string(),
  attempt: z.number().optional(),
  output: z.object({ pid: z.number() }).optional(),
  error: z.looseObject({ code: z.string() }).optional(),
});

let platform: PlatformProcess;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ['context'] });
});
afterAll(() => platform.close());

async function run(endpoint: string, input: BreakingInput) {
  const answer = await platform.post(`/v2/${endpoint}/runsync?wait=120000`, { input });
  return recordSchema.parse(await answer.json());
}

it('a worker process that has lost its GPU context is replaced before it runs another job', async () => {
  const worker = platform.startWorker('context', 'breaking.ts', '--jobs-per-thread', '2');
  const before = await run('context', {});
  const neighbour = run('context', { ms: 500 });
  const culprit = await run('context', { lose: true });
  expect(culprit).toMatchObject({ status: 'FAILED', error: { code: 'gpu_context_lost' } });
  expect(await neighbour).toMatchObject({ status: 'COMPLETED' });
  const after = await Promise.all(Array.from({ length: 20 }, () => run('context', {})));
  for (const { attempt, output, status } of after) {
    expect({ attempt, status }).toEqual({ attempt: 1, status: 'COMPLETED' });
    expect(output?.pid).not.toBe(before.output?.pid);
  }
  await worker.find(/the process has lost its GPU context/);
});
