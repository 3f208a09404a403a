// Workers that break while they run, as real processes: none empties the queue by failing job after job.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
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
  const args = ['--retry-base-ms', '1'];
  platform = await PlatformProcess.start({ endpoints: ['context', 'mount'], args });
});
afterAll(() => platform.close());

async function run(endpoint: string, input: BreakingInput) {
  const answer = await platform.post(`/v2/${endpoint}/runsync?wait=120000`, { input });
  return recordSchema.parse(await answer.json());
}

it('replaces a worker process that has lost its GPU context before it runs another job', async () => {
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

const readiness = z.looseObject({
  ready: z.boolean(),
  workers: z.array(z.looseObject({ restarts: z.number() })),
});

it('fails few jobs of a worker that has lost its mount, and goes on when the mount is back', async () => {
  const folder = join(platform.folder, 'mount');
  const file = join(folder, 'weights');
  const mount = () => {
    mkdirSync(folder);
    writeFileSync(file, '');
  };
  mount();
  const worker = platform.startWorker('mount', 'breaking.ts', '--health-port', '0');
  const port = await worker.find(/"port":(\d+),"msg":"health port listening"/);
  const read = async (path: string) => (await fetch(`http://127.0.0.1:${port}${path}`)).text();
  expect((await run('mount', { file })).status).toBe('COMPLETED');
  rmSync(folder, { recursive: true });
  const ids: string[] = [];
  for (let job = 0; job < 40; job += 1) {
    const answer = await platform.post('/v2/mount/run', { input: { file } });
    ids.push(recordSchema.parse(await answer.json()).id);
  }
  const readStatuses = () =>
    Promise.all(
      ids.map(async (id) => {
        const answer = await platform.fetch(`/v2/mount/status/${id}`);
        return recordSchema.parse(await answer.json()).status;
      }),
    );
  await worker.find(/jobs keep failing, slowing down/);
  const { ready } = readiness.parse(JSON.parse(await read('/readyz')));
  expect(ready).toBe(false);
  expect(await read('/metrics')).toMatch(/^millrace_worker_breaker_open\S* 1$/m);
  await worker.find(/job after job failed with the same error: handler_error: ENOENT/);
  // A new process, which goes on with the waits of the one before it.
  await worker.find(/jobs kept failing before the start, slowing down/);
  expect((await readStatuses()).filter((status) => status === 'IN_QUEUE').length).toBeGreaterThan(
    30,
  );
  mount();
  await worker.find(/jobs complete again/);
  await expect.poll(readStatuses, { timeout: 20_000 }).not.toContain('IN_QUEUE');
  expect(readiness.parse(JSON.parse(await read('/readyz'))).ready).toBe(true);
});
