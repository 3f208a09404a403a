// Workers that speak RunPod's protocol at a real platform: the stand-in for a Python one, and a worker of
// ours that was told to; through a restart of the platform, lost results and a death without a word.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { fixture, PlatformProcess, Process } from '../../support/processes.ts';
import { createRandom } from '../../support/random.ts';
import { PythonWorker, type PythonWorkerOptions } from '../../support/workers/python-worker.ts';

const ENDPOINT = 'py';
const jobRef = z.object({ id: z.string() });
const jobRecord = z.looseObject({ status: z.string(), attempt: z.number() });
const closers: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Leases of a second and a half: a worker is missed after as long as three of its pings take. */
const QUICK = ['--lease-ms', '1500', '--renew-every-ms', '300', '--retry-base-ms', '10'];

async function startPlatform(args: string[] = QUICK): Promise<PlatformProcess> {
  const platform = await PlatformProcess.start({ endpoints: [ENDPOINT], args });
  closers.push(() => platform.close());
  return platform;
}

/** As an operator asks for it. */
async function readEnvironment(platform: PlatformProcess): Promise<Record<string, string>> {
  const where = ['--runpod', '--url', platform.url, '--ping-seconds', '1'];
  const env = { MILLRACE_KEY: platform.workerKey };
  const command = new Process(['endpoints', 'env', ENDPOINT, ...where], { env });
  expect(await command.exited).toBe(0);
  const lines = command.output.trim().split('\n');
  return Object.fromEntries(lines.map((line) => line.split(/=(.*)/s).slice(0, 2)));
}

async function startWorker(
  platform: PlatformProcess,
  options: Omit<PythonWorkerOptions, 'environment'>,
): Promise<PythonWorker> {
  const environment = await readEnvironment(platform);
  const worker = new PythonWorker({ environment, ...options });
  closers.push(() => worker.die());
  return worker;
}

async function submit(platform: PlatformProcess, input: object): Promise<string> {
  const answer = await platform.post(`/v2/${ENDPOINT}/run`, { input });
  return jobRef.parse(await answer.json()).id;
}

async function untilEnded(platform: PlatformProcess, id: string) {
  for (;;) {
    const answer = await platform.fetch(`/v2/${ENDPOINT}/status/${id}`);
    const record = jobRecord.parse(await answer.json());
    if (!record.status.startsWith('IN_')) return record;
    await sleep(20);
  }
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await sleep(10);
}

describe('a Python worker at this platform', () => {
  it('delivers the job that it ran while the platform was killed and started again', async () => {
    const platform = await startPlatform();
    let finish = () => {};
    const worker = await startWorker(platform, {
      // Of two slots one is free: what it polls for meanwhile must not cost it the other's job.
      concurrency: 2,
      aggregates: true,
      async *handler() {
        yield 'before';
        await new Promise<void>((resolve) => {
          finish = resolve;
        });
        yield 'after';
      },
    });
    const id = await submit(platform, {});
    await until(() => worker.jobIds.length === 1);
    await sleep(200);

    await platform.kill();
    await platform.restart();
    // Longer than a lease: it has to be kept by its worker's pings.
    await sleep(2_500);
    finish();

    expect(await untilEnded(platform, id)).toMatchObject({
      status: 'COMPLETED',
      attempt: 1,
      output: ['before', 'after'],
    });
    expect(worker.ran).toEqual([id]);
  });

  it('learns of a job that was cancelled just before the platform was killed', async () => {
    const platform = await startPlatform();
    const worker = await startWorker(platform, {
      handler: (_job, { signal }) =>
        new Promise((resolve) => signal.addEventListener('abort', resolve)),
    });
    const id = await submit(platform, {});
    await until(() => worker.jobIds.length === 1);

    await platform.fetch(`/v2/${ENDPOINT}/cancel/${id}`, { method: 'POST' });
    await platform.kill();
    await platform.restart();

    await until(() => worker.stopped.length > 0 || worker.jobIds.length === 0);
    expect(worker.stopped).toEqual([id]);
    expect(await untilEnded(platform, id)).toMatchObject({ status: 'CANCELLED' });
  });

  it('that dies without a word loses its job to another', async () => {
    const platform = await startPlatform();
    const dying = await startWorker(platform, { handler: () => new Promise(() => {}) });
    const id = await submit(platform, {});
    await until(() => dying.jobIds.length === 1);
    void dying.die();

    await startWorker(platform, { handler: () => 'mine' });

    expect(await untilEnded(platform, id)).toMatchObject({
      status: 'COMPLETED',
      attempt: 2,
      output: 'mine',
    });
  });

  it('keeps a job that is longer than many leases', async () => {
    const platform = await startPlatform();
    const worker = await startWorker(platform, { handler: () => sleep(6_000, 'long') });

    const id = await submit(platform, {});

    expect(await untilEnded(platform, id)).toMatchObject({ attempt: 1, output: 'long' });
    expect(worker.ran).toHaveLength(1);
  });

  it('is not given up while the platform cannot be reached, and its result is not lost', async () => {
    const platform = await startPlatform();
    const worker = await startWorker(platform, { handler: () => sleep(400, 'late') });
    const id = await submit(platform, {});
    await until(() => worker.jobIds.length === 1);

    // The result is posted into nothing, and dropped.
    await platform.kill();
    await until(() => worker.dropped.length === 1);
    await platform.restart();

    expect(await untilEnded(platform, id)).toMatchObject({ status: 'COMPLETED', output: 'late' });
    expect(worker.ran).toEqual([id, `${id}-a2`]);
  });

  it('of four that drop every fourth result loses none of 60 jobs', async () => {
    const platform = await startPlatform();
    const random = createRandom(7);
    const workers = await Promise.all(
      [1, 2, 3, 4].map(() =>
        startWorker(platform, {
          concurrency: 3,
          handler: ({ input }) => sleep(Math.floor(random() * 30), input),
          losesResult: () => random() < 0.25,
        }),
      ),
    );
    const inputs = Array.from({ length: 60 }, (_, n) => ({ n }));
    const ids = await Promise.all(inputs.map((input) => submit(platform, input)));

    const records = await Promise.all(ids.map((id) => untilEnded(platform, id)));

    const dropped = workers.flatMap((worker) => worker.dropped);
    const lost = records.filter(({ status }) => status !== 'COMPLETED');
    // Only those whose result was dropped three times are allowed to fail.
    for (const { attempt, id } of lost) {
      expect(dropped.filter((name) => name.startsWith(String(id)))).toHaveLength(attempt);
    }
    const done = records.filter(({ status }) => status === 'COMPLETED');
    expect(done.map(({ id, output }) => ({ id, output }))).toEqual(
      ids.flatMap((id, n) => (lost.some((job) => job['id'] === id) ? [] : { id, output: { n } })),
    );
    expect(dropped.length).toBeGreaterThan(0);
  });
});

describe('a worker of ours that speaks the protocol', () => {
  it('serves this platform over it, too', async () => {
    const platform = await startPlatform();
    const environment = await readEnvironment(platform);
    const worker = new Process(['worker', fixture('../../../handlers/text-stream.ts')], {
      env: { ...environment, RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'true', TMPDIR: platform.folder },
    });
    closers.push(async () => {
      worker.kill();
      await worker.exited;
    });

    const ids = await Promise.all([1, 2, 3].map((n) => submit(platform, { text: `One. ${n}.` })));
    const records = await Promise.all(ids.map((id) => untilEnded(platform, id)));

    for (const record of records) {
      expect(record).toMatchObject({ status: 'COMPLETED', attempt: 1 });
      expect(record['workerId']).toBe(environment['RUNPOD_POD_ID']);
    }
  });
});
