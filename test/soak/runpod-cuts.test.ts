// RunPod workers whose connections break: each job ends once, with its output, and with all chunks or a line in its
// log that says how many are missing. Set RUNPOD_PYTHON to a Python with runpod-python to run the real workers; by
// default the stand-in runs.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { TcpProxy } from '../support/network/tcp-proxy.ts';
import { PlatformProcess } from '../support/processes.ts';
import { chooseSeed, createRandom } from '../support/random.ts';
import { PythonWorker } from '../support/workers/python-worker.ts';

const JOBS = 300;
const WORKERS = 3;
/** The share of requests and answers that are cut. */
const CUT_SHARE = 0.06;
const BASE = '/runpod/v2/py';
const QUICK = ['--lease-ms', '1500', '--renew-every-ms', '300', '--retry-base-ms', '10'];
/** Longer than any job needs, shorter than its time limit. */
const LIMIT_MS = 180_000;
const PYTHON = process.env['RUNPOD_PYTHON'];

const ref = z.object({ id: z.string() });
const record = z.looseObject({ status: z.string(), attempt: z.number() });
const stream = z.looseObject({ stream: z.array(z.object({ output: z.unknown() })) });
const closers: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function start() {
  const seed = chooseSeed();
  const random = createRandom(seed);
  const platform = await PlatformProcess.start({ endpoints: ['py'], args: QUICK });
  closers.push(() => platform.close());
  const proxy = await TcpProxy.start(platform.url);
  closers.push(() => proxy.close());
  return { platform, proxy, random, seed };
}

function describeWorker(url: string, key: string, pod: string): Record<string, string> {
  return {
    RUNPOD_WEBHOOK_GET_JOB: `${url}${BASE}/job-take/$ID?`,
    RUNPOD_WEBHOOK_POST_OUTPUT: `${url}${BASE}/job-done/$RUNPOD_POD_ID/$ID?`,
    RUNPOD_WEBHOOK_POST_STREAM: `${url}${BASE}/job-stream/$RUNPOD_POD_ID/$ID?`,
    RUNPOD_WEBHOOK_PING: `${url}${BASE}/ping/$RUNPOD_POD_ID?every=1000`,
    RUNPOD_PING_INTERVAL: '1000',
    RUNPOD_AI_API_KEY: key,
    RUNPOD_POD_ID: pod,
    RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'true',
    RUNPOD_LOG_LEVEL: 'ERROR',
  };
}

function startWorker(environment: Record<string, string>): void {
  if (PYTHON === undefined) {
    const worker = new PythonWorker({ environment, concurrency: 3, aggregates: true, handler });
    closers.push(() => worker.die());
    return;
  }
  const child: ChildProcess = spawn(PYTHON, ['test/support/workers/runpod-worker.py'], {
    // A group of its own: the pings come from a process of their own.
    ...{ detached: true, stdio: 'ignore', env: { ...process.env, ...environment } },
  });
  const ended = once(child, 'exit');
  closers.push(async () => {
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    await ended;
  });
}

async function* handler({ input }: { input: unknown }) {
  const { count, n } = z.object({ n: z.number(), count: z.number() }).parse(input);
  for (const value of valuesOf(n, count)) {
    await sleep(5);
    yield value;
  }
}

function valuesOf(n: number, count: number) {
  return Array.from({ length: count }, (_, index) => ({ n, index }));
}

async function submit(platform: PlatformProcess, input: object): Promise<string> {
  return ref.parse(await (await platform.post(`${BASE}/run`, { input })).json()).id;
}

async function readRecord(platform: PlatformProcess, id: string) {
  return record.parse(await (await platform.fetch(`/v2/py/status/${id}`)).json());
}

/** Follows the job, and checks what it says of itself. @returns its record and what is wrong with it */
async function follow(platform: PlatformProcess, id: string, n: number, count: number) {
  const chunks: unknown[] = [];
  const until = Date.now() + LIMIT_MS;
  // Every second client reads chunks only after the end.
  while (n % 2 === 0 && Date.now() < until) {
    if (!(await readRecord(platform, id)).status.startsWith('IN_')) break;
    await sleep(100);
  }
  for (;;) {
    const answer = await platform.fetch(`${BASE}/stream/${id}`);
    const { status, stream: more } = record
      .pick({ status: true })
      .extend(stream.shape)
      .parse(await answer.json());
    chunks.push(...more.map(({ output }) => output));
    if (more.length === 0 && !String(status).startsWith('IN_')) break;
    if (Date.now() > until) return { id, wrong: `is ${status} after ${LIMIT_MS} ms` };
    await sleep(20);
  }
  const job = await readRecord(platform, id);
  return { id, ...job, wrong: await findFlaw(platform, job, { id, n, count, chunks }) };
}

async function findFlaw(
  platform: PlatformProcess,
  job: z.infer<typeof record>,
  asked: { id: string; n: number; count: number; chunks: unknown[] },
): Promise<string | undefined> {
  const values = valuesOf(asked.n, asked.count).map((value) => JSON.stringify(value));
  const code = z.looseObject({ code: z.unknown() }).safeParse(job['error']).data?.code;
  // An attempt is not repeated if a client has received chunks of it, or if it was the last of three.
  const isLast = asked.chunks.length > 0 || job.attempt === 3;
  if (job.status === 'FAILED' && code === 'worker_crashed' && isLast) return undefined;
  if (job.status !== 'COMPLETED') return `${job.status}: ${JSON.stringify(job['error'])}`;
  if (JSON.stringify(job['output']) !== `[${values.join(',')}]`) {
    return `output ${JSON.stringify(job['output'])}`;
  }
  const seen = asked.chunks.map((chunk) => JSON.stringify(chunk));
  const missing = values.filter((value) => !seen.includes(value)).length;
  if (missing === 0 && seen.length === values.length) return undefined;
  const log = await (await platform.fetch(`/v2/py/logs/${asked.id}`)).text();
  if (log.includes(`The stream lacks ${missing} of ${values.length} chunks`)) return undefined;
  return `chunks ${seen.join()}; log ${log}`;
}

it('ends each of 300 jobs once and right, although connections break', async () => {
  const { platform, proxy, random, seed } = await start();
  for (let n = 0; n < WORKERS; n += 1) {
    startWorker(describeWorker(proxy.url, platform.workerKey, `pod-${n}`));
  }
  proxy.weather = () => {
    if (random() >= CUT_SHARE) return undefined;
    const direction = random() < 0.5 ? 'request' : 'answer';
    return { kind: 'cut', direction, afterBytes: Math.floor(random() * 600) };
  };
  const asked = Array.from({ length: JOBS }, (_, n) => ({ n, count: Math.floor(random() * 6) }));
  const jobs = await Promise.all(
    asked.map(async ({ count, n }) =>
      follow(platform, await submit(platform, { n, count }), n, count),
    ),
  );

  const wrong = jobs.filter((job) => job.wrong !== undefined);
  const again = jobs.filter((job) => 'attempt' in job && job.attempt > 1).length;
  const failed = jobs.filter((job) => 'status' in job && job.status === 'FAILED').length;
  console.log(
    `SEED=${seed}: ${proxy.struck} cuts, ${again} jobs ran again, ${failed} failed with a reason`,
  );
  expect(wrong).toEqual([]);
  expect(proxy.struck).toBeGreaterThan(30);
  const after = await Promise.all(jobs.map(({ id }) => readRecord(platform, id)));
  expect(after.map(({ status }) => status)).toEqual(
    jobs.map((job) => 'status' in job && job.status),
  );
});

it('runs a job again that went to a take of a broken connection, while the worker takes again and pings', async () => {
  const { platform, proxy } = await start();
  const environment = describeWorker(proxy.url, platform.workerKey, 'pod-kept');
  const url = `${platform.url}${BASE}/job-take/pod-kept?&job_in_progress=0`;
  const headers = { authorization: platform.workerKey, 'content-type': 'application/json' };
  // Nobody reads the answer of this take, and its connection stays open.
  const kept = request(url, { headers });
  kept.on('error', () => undefined).end();
  closers.push(() => kept.destroy());
  startWorker(environment);
  await platform.process.find(/(violates the protocol)/);
  const ids = await Promise.all(
    Array.from({ length: 20 }, (_, n) => submit(platform, { n, count: 3 })),
  );

  const jobs = await Promise.all(ids.map((id, n) => follow(platform, id, n, 3)));

  expect(jobs.filter(({ wrong }) => wrong !== undefined)).toEqual([]);
});
