// A real worker under its supervisor, against a server that speaks RunPod's worker protocol.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { listChildren } from '../../support/process-tree.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { chooseSeed } from '../../support/random.ts';
import {
  type RunPodRun,
  RunPodWorker,
  type RunPodWorkerOptions,
  runOnRunPod,
} from '../../support/runs/runpod-run.ts';
import {
  type RunPodRoute,
  RunPodServer,
  type RunPodServerOptions,
} from '../../support/runs/runpod-server.ts';

const record = z.object({ output: z.object({ pid: z.number() }) });
const closers: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function start(options: RunPodWorkerOptions = {}, about: RunPodServerOptions = {}) {
  const server = await RunPodServer.start(about);
  closers.push(() => server.close());
  const worker = await RunPodWorker.start(server, { handler: 'recycled.ts', ...options });
  closers.push(() => worker.close());
  return { server, worker: worker.process };
}

/** The worker has them. */
async function untilPinged(server: RunPodServer, jobIds: string[]): Promise<void> {
  const isNamed = (url: string) => jobIds.every((id) => decodeURIComponent(url).includes(id));
  await server.until(() =>
    server.of('ping').some(({ url }) => isNamed(url.split('job_id=')[1] ?? '')),
  );
}

const status = (status: number, headers = {}) => ({ kind: 'status', status, headers }) as const;
const lost = { kind: 'reset', when: 'after' } as const;
const cut = { kind: 'reset', when: 'before' } as const;
const busy = status(429, { 'retry-after': '0' });

/** Each kind of fault alone, with more jobs: test/soak/runpod.test.ts. */
const FAULTS: (Omit<RunPodRun, 'jobs' | 'seed'> & { name: string })[] = [
  {
    name: 'connections cut before the server has acted',
    faults: {
      take: { share: 0.2, kinds: [cut] },
      stream: { share: 0.1, kinds: [cut] },
      done: { share: 0.3, kinds: [cut] },
      stop: { share: 0.3, kinds: [cut] },
      ping: { share: 0.3, kinds: [cut] },
    },
  },
  {
    name: 'answers to streams and results lost',
    faults: { stream: { share: 0.1, kinds: [lost] }, done: { share: 0.3, kinds: [lost] } },
  },
  {
    name: '502, 429 and 400',
    faults: {
      take: { share: 0.3, kinds: [status(502), busy, status(400)] },
      stream: { share: 0.1, kinds: [status(502), busy] },
      done: { share: 0.3, kinds: [status(502), busy] },
      stop: { share: 0.3, kinds: [status(502)] },
      ping: { share: 0.3, kinds: [status(502)] },
    },
  },
  {
    name: 'bad elements in batches, stops that come late',
    hasBadElements: true,
    hasLateStops: true,
  },
  { name: 'jobs delivered twice', isTwice: true },
];

const JOBS = 30;
/** Where nothing depends on the supervisor. */
const ALONE = ['--unsupervised'];

describe('a worker on RunPod', () => {
  it.each(FAULTS)('answers every job with all chunks in order: $name', async (run) => {
    const seed = chooseSeed(1);
    const { struck, ...result } = await runOnRunPod({ ...run, jobs: JOBS, seed });
    console.log(`SEED=${seed}: ${struck} faults`);
    expect(result).toEqual({ answered: JOBS, wrong: [], exitCode: 0 });
    if (run.faults) expect(struck).toBeGreaterThan(3);
  });

  it('runs a job that arrives after SIGTERM before it exits', async () => {
    const { server, worker } = await start({ args: ALONE }, { holdMs: 20_000 });
    await server.until(() => server.of('take').length === 1);
    worker.child.kill('SIGTERM');
    await worker.find(/worker draining/);
    server.submit('late', {});
    expect(await server.result('late')).toMatchObject({ output: { pid: expect.any(Number) } });
    expect(await worker.exited).toBe(0);
  });

  it('posts an error for a job that does not end before it exits', async () => {
    const { server, worker } = await start({ args: [...ALONE, '--drain-ms', '300'] });
    server.submit('slow', { ms: 60_000 });
    await server.until(() => (server.jobs.get('slow')?.deliveries ?? 0) > 0);
    await worker.find(/worker ready/);
    expect(await worker.end()).toBe(0);
    const { error } = await server.result('slow');
    expect(JSON.parse(String(error))).toMatchObject({ error_code: 'released_drain' });
  });

  it('aborts a stopped job and posts no result for it', async () => {
    const { server, worker } = await start({ args: ALONE });
    server.submit('endless', { ms: 60_000 });
    await untilPinged(server, ['endless']);
    server.stop('endless');
    await worker.find(/attempt ended by the platform/);
    server.submit('next', {});
    await server.result('next');
    expect(server.job('endless').results).toEqual([]);
  });

  it('posts errors for the jobs of a killed worker process, and runs later jobs', async () => {
    const { server, worker } = await start({ args: ['--jobs-per-thread', '3'] });
    for (const id of ['a', 'b', 'c']) server.submit(id, { ms: 60_000 });
    await untilPinged(server, ['a', 'b', 'c']);
    const [child] = listChildren(worker.child.pid ?? 0);
    process.kill(child ?? 0, 'SIGKILL');
    for (const id of ['a', 'b', 'c']) {
      const { error } = await server.result(id);
      expect(JSON.parse(String(error))).toMatchObject({ error_code: 'worker_crashed' });
    }
    server.submit('d', {});
    expect(await server.result('d')).toMatchObject({ output: {} });
  });

  it('delivers an outcome that an earlier worker left behind', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-state-'));
    closers.push(() => rm(folder, { recursive: true }));
    const args = ['--state-dir', folder];
    const isAway = (route: RunPodRoute) => (route === 'done' ? status(502) : undefined);
    const { server, worker } = await start({ args }, { fault: isAway });
    server.submit('kept', {});
    await server.until(() => server.of('done').length > 1);
    worker.kill();
    await worker.exited;
    server.fault = undefined;
    const next = await RunPodWorker.start(server, { handler: 'recycled.ts', args });
    closers.push(() => next.close());
    expect(await server.result('kept')).toMatchObject({ output: { pid: expect.any(Number) } });
    server.submit('more', {});
    await server.result('more');
    expect(await next.process.end()).toBe(0);
    expect(server.job('kept')).toMatchObject({ deliveries: 1, results: [expect.anything()] });
  });

  it('logs the lines of a job with its ID in the form of RunPod’s log viewer', async () => {
    const { server, worker } = await start({ args: ALONE });
    server.submit('broken', { fail: true });
    await server.result('broken');
    expect(await worker.end()).toBe(0);
    const lines = worker.output.split('\n').filter((line) => line.startsWith('{'));
    expect(lines.map((line) => JSON.parse(line))).toContainEqual({
      requestId: 'broken',
      message: expect.stringContaining('the GPU is in a bad state'),
      level: 'WARN',
    });
  });

  it('exits to have its pod replaced if the handler requests a refresh', async () => {
    const { server, worker } = await start();
    server.submit('last', { refresh: true, fail: true });
    expect(await server.result('last')).toMatchObject({ stopPod: true, error: expect.any(String) });
    expect(await worker.exited).toBe(0);
  });

  it('exits with code 4 and a log line if a handler finds its machine unfit', async () => {
    const { server, worker } = await start({ args: ALONE, env: { TEST_NO_WEIGHTS: '1' } });
    expect(await worker.exited).toBe(4);
    expect(worker.output).toContain("check 'weights' failed: there are none");
    const [ping, ...more] = server.of('ping');
    expect(ping?.url).toContain('status=unhealthy&check=weights&reason=');
    expect([...more, ...server.of('take')]).toEqual([]);
  });

  it('exits on a machine with too little memory', async () => {
    const env = { RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'false', RUNPOD_MIN_MEMORY_GB: '9999' };
    const { server, worker } = await start({ env });
    expect(await worker.exited).toBe(4);
    expect(server.of('ping')[0]?.url).toContain('status=unhealthy&check=memory&reason=');
    expect(server.of('take')).toEqual([]);
  });

  it('refuses an invalid CUDA version as wrong usage', async () => {
    const env = { RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'false', RUNPOD_MIN_CUDA_VERSION: 'newest' };
    const { worker } = await start({ env });
    expect(await worker.exited).toBe(2);
    expect(worker.output).toContain('RUNPOD_MIN_CUDA_VERSION: must be a version');
  });

  it('requires an address for results in its environment', async () => {
    const { worker } = await start({ env: { RUNPOD_WEBHOOK_POST_OUTPUT: '' } });
    expect(await worker.exited).toBe(2);
    expect(worker.output).toContain('RUNPOD_WEBHOOK_POST_OUTPUT is required');
  });
});

describe('a worker on Millrace', () => {
  it('starts a new process for the next job if the handler requests a refresh', async () => {
    const platform = await PlatformProcess.start({ endpoints: ['recycled'] });
    closers.push(() => platform.close());
    const worker = platform.startWorker('recycled', 'recycled.ts');
    const run = async () => {
      const answer = await platform.post('/v2/recycled/runsync', { input: { refresh: true } });
      return record.parse(await answer.json()).output.pid;
    };
    const pids = [await run(), await run(), await run()];
    expect(new Set(pids).size).toBe(3);
    expect(await worker.end()).toBe(0);
  });

  it('does not start on an unfit machine', async () => {
    const platform = await PlatformProcess.start({ endpoints: ['recycled'] });
    closers.push(() => platform.close());
    const worker = platform.startWorker('recycled', 'recycled.ts', '--min-memory', '1000000');
    expect(await worker.exited).toBe(4);
    expect(worker.output).toContain("check 'memory' failed");
  });
});
