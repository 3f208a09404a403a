// Workers that speak RunPod's protocol at a real platform: the stand-in for a Python one, and a worker of
// ours that was told to; through a restart of the platform, lost results and a death without a word.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { fixture, PlatformProcess, Process } from '../../support/processes.ts';
import { createRandom } from '../../support/random.ts';
import { until } from '../../support/until.ts';
import { PythonWorker, type PythonWorkerOptions } from '../../support/workers/python-worker.ts';

/** The platform serves all tests: each has an endpoint of its own. */
const ENDPOINTS = Array.from({ length: 8 }, (_, n) => `py-${n}`);
const [FIRST = ''] = ENDPOINTS;
const unused = [...ENDPOINTS];
const jobRef = z.object({ id: z.string() });
const jobRecord = z.looseObject({ status: z.string(), attempt: z.number() });

let platform: PlatformProcess;
let endpoint: string;
let environment: Record<string, string>;
let pods = 0;
const closers: (() => unknown)[] = [];

/** Leases of a second and a half: a worker is missed after as long as three of its pings take. */
const QUICK = ['--lease-ms', '1500', '--renew-every-ms', '300', '--retry-base-ms', '10'];

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ENDPOINTS, args: QUICK });
  environment = await readEnvironment();
});

afterAll(() => platform.close());

beforeEach(() => {
  endpoint = unused.shift() ?? '';
});

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Of a worker of the first endpoint, as an operator asks for it. */
async function readEnvironment(): Promise<Record<string, string>> {
  const where = ['--runpod', '--url', platform.url, '--ping-seconds', '1'];
  const env = { MILLRACE_KEY: platform.workerKey };
  const command = new Process(['endpoints', 'env', FIRST, ...where], { env });
  expect(await command.exited).toBe(0);
  const lines = command.output.trim().split('\n');
  return Object.fromEntries(lines.map((line) => line.split(/=(.*)/s).slice(0, 2)));
}

/** Of another worker, of the test's endpoint. */
function describeWorker(): Record<string, string> {
  const own = Object.entries(environment).map(([name, value]) => [
    name,
    value.replace(`/${FIRST}/`, `/${endpoint}/`),
  ]);
  return { ...Object.fromEntries(own), RUNPOD_POD_ID: `pod-${++pods}` };
}

function startWorker(options: Omit<PythonWorkerOptions, 'environment'>): PythonWorker {
  const worker = new PythonWorker({ environment: describeWorker(), ...options });
  closers.push(() => worker.die());
  return worker;
}

async function submit(input: object): Promise<string> {
  const answer = await platform.post(`/v2/${endpoint}/run`, { input });
  return jobRef.parse(await answer.json()).id;
}

async function untilEnded(id: string) {
  return until(
    async () => {
      const answer = await platform.fetch(`/v2/${endpoint}/status/${id}`);
      const record = jobRecord.parse(await answer.json());
      return !record.status.startsWith('IN_') && record;
    },
    { everyMs: 50 },
  );
}

describe('a Python worker', () => {
  it('delivers a result after the platform is killed and restarted', async () => {
    let finish = () => {};
    const worker = startWorker({
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
    const id = await submit({});
    await until(() => worker.jobIds.length === 1);
    await sleep(200);

    await platform.kill();
    await platform.restart();
    // Longer than a lease: it has to be kept by its worker's pings.
    await sleep(2_500);
    finish();

    expect(await untilEnded(id)).toMatchObject({
      status: 'COMPLETED',
      attempt: 1,
      output: ['before', 'after'],
    });
    expect(worker.ran).toEqual([id]);
  });

  it('stops a job that was cancelled just before the platform was killed', async () => {
    const worker = startWorker({
      handler: (_job, { signal }) =>
        new Promise((resolve) => signal.addEventListener('abort', resolve)),
    });
    const id = await submit({});
    await until(() => worker.jobIds.length === 1);

    await platform.fetch(`/v2/${endpoint}/cancel/${id}`, { method: 'POST' });
    await platform.kill();
    await platform.restart();

    await until(() => worker.stopped.length > 0 || worker.jobIds.length === 0);
    expect(worker.stopped).toEqual([id]);
    expect(await untilEnded(id)).toMatchObject({ status: 'CANCELLED' });
  });

  it('loses its job to another worker if it dies', async () => {
    const dying = startWorker({ handler: () => new Promise(() => {}) });
    const id = await submit({});
    await until(() => dying.jobIds.length === 1);
    void dying.die();

    startWorker({ handler: () => 'mine' });

    expect(await untilEnded(id)).toMatchObject({
      status: 'COMPLETED',
      attempt: 2,
      output: 'mine',
    });
  });

  it('keeps a job that takes longer than many leases', async () => {
    const worker = startWorker({ handler: () => sleep(4_000, 'long') });

    const id = await submit({});

    expect(await untilEnded(id)).toMatchObject({ attempt: 1, output: 'long' });
    expect(worker.ran).toHaveLength(1);
  });

  it('keeps its job and result while the platform is unreachable', async () => {
    const worker = startWorker({ handler: () => sleep(400, 'late') });
    const id = await submit({});
    await until(() => worker.jobIds.length === 1);

    // The result is posted into nothing, and dropped.
    await platform.kill();
    await until(() => worker.dropped.length === 1);
    await platform.restart();

    expect(await untilEnded(id)).toMatchObject({ status: 'COMPLETED', output: 'late' });
    expect(worker.ran).toEqual([id, `${id}-a2`]);
  });

  it('loses none of 60 jobs if it drops every fourth result', async () => {
    const random = createRandom(7);
    const workers = [1, 2, 3, 4].map(() =>
      startWorker({
        concurrency: 3,
        handler: ({ input }) => sleep(Math.floor(random() * 30), input),
        losesResult: () => random() < 0.25,
      }),
    );
    const inputs = Array.from({ length: 60 }, (_, n) => ({ n }));
    const ids = await Promise.all(inputs.map((input) => submit(input)));

    const records = await Promise.all(ids.map((id) => untilEnded(id)));

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

describe('a Millrace worker with --protocol runpod', () => {
  it('serves a Millrace platform', async () => {
    const own = describeWorker();
    const worker = new Process(['worker', fixture('../../../handlers/text-stream.ts')], {
      env: { ...own, RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'true', TMPDIR: platform.folder },
    });
    closers.push(async () => {
      worker.kill();
      await worker.exited;
    });

    const ids = await Promise.all([1, 2, 3].map((n) => submit({ text: `One. ${n}.` })));
    const records = await Promise.all(ids.map((id) => untilEnded(id)));

    for (const record of records) {
      expect(record).toMatchObject({ status: 'COMPLETED', attempt: 1 });
      expect(record['workerId']).toBe(own['RUNPOD_POD_ID']);
    }
  });
});
