// `millrace worker` as supervisor and worker process: who dies, and what comes of the jobs.
import { once } from 'node:events';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Client, createClient } from '../../../src/client.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { sayingOf, standIn } from '../../support/nvidia-smi/stand-in.ts';
import { listChildren } from '../../support/process-tree.ts';
import { type CommandRun, Workplace } from './command-run.ts';

/** Files tell the handler how long to hold, so that no test depends on how fast it is. */
const handler = `import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
export const config = { concurrency: 2 };
export default async function (job) {
  appendFileSync('runs', job.input.name + '\\n');
  if (job.input.raise) process.kill(process.pid, job.input.raise);
  if (job.input.raise) await new Promise(() => setInterval(() => {}, 1_000));
  if (job.input.block) execFileSync('sleep', ['300']);
  while (job.input.hold && !existsSync(job.input.hold)) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return { name: job.input.name, parent: process.ppid, pid: process.pid };
}`;

const JOURNAL_HEADER_BYTES = 8;
const output = z.object({ name: z.string(), parent: z.number(), pid: z.number() });
const readiness = z.looseObject({
  ready: z.boolean(),
  reason: z.string().exactOptional(),
  workers: z.array(z.looseObject({ state: z.string(), restarts: z.number() })),
});

type Platform = { run: CommandRun; url: string; adminKey: string; workerKey: string };

/** The platform serves all tests: each has an endpoint of its own. */
const ENDPOINTS = Array.from({ length: 40 }, (_, n) => `effects-${n}`);
const unused = [...ENDPOINTS];

let shared: { place: Workplace; platform: Platform };
let place: Workplace;
let platform: Platform;
let endpoint: string;
let client: Client;
let env: Record<string, string>;

async function startPlatform(place: Workplace, port = '0'): Promise<Platform> {
  const run = place.start([
    ...['serve', '--port', port, '--data', 'data', '--key-file', 'keys'],
    ...ENDPOINTS.flatMap((name) => ['--endpoint', name]),
    ...['--retry-base-ms', '1', '--lease-ms', '60000', '--renew-every-ms', '1000'],
  ]);
  const url = await run.until('stdout', /is ready at (\S+)\n/);
  const readKey = (role: string) =>
    new RegExp(`MILLRACE_${role}_KEY=(\\S+)`).exec(place.read('keys'))?.[1] ?? '';
  return { run, url, adminKey: readKey('ADMIN'), workerKey: readKey('WORKER') };
}

function use(chosen: Platform): void {
  platform = chosen;
  const { adminKey, url, workerKey } = chosen;
  client = createClient({ fetch: fetchChecked, url, key: adminKey, endpoint });
  env = { MILLRACE_URL: url, MILLRACE_ENDPOINT: endpoint, MILLRACE_KEY: workerKey };
}

beforeAll(async () => {
  const place = new Workplace();
  shared = { place, platform: await startPlatform(place) };
});

afterAll(() => shared.place.close());

beforeEach(() => {
  place = new Workplace();
  place.write('effects.mjs', handler);
  endpoint = unused.shift() ?? '';
  use(shared.platform);
});

afterEach(() => place.close());

async function startWorker(...args: string[]): Promise<CommandRun> {
  const run = place.start(['worker', 'effects.mjs', ...args], { env });
  await run.until('stderr', /worker ready/);
  return run;
}

/** Long before the test times out, so that a failure shows what the processes said. */
const PATIENCE_MS = 150_000;

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpAt = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (Date.now() > giveUpAt) throw new Error(`${condition} does not hold:\n${describeStuck()}`);
    await sleep(50);
  }
}

function describeStuck(): string {
  const runs = existsSync(place.path('runs')) ? place.read('runs') : '';
  return [`runs: ${runs.trim().split('\n')}`, ...place.outputs()].join('\n');
}

/** A job that holds until `release`; it has begun to run. */
async function startHolding(name: string) {
  const gate = place.path(`go-${name}`);
  const { id } = await client.run({ name, hold: gate });
  await until(() => countRuns(name) > 0);
  return { id, release: () => writeFileSync(gate, '') };
}

function countRuns(name: string): number {
  if (!existsSync(place.path('runs'))) return 0;
  return place
    .read('runs')
    .split('\n')
    .filter((line) => line === name).length;
}

function workerPid(run: CommandRun): number {
  const [pid, ...rest] = listChildren(run.child.pid ?? 0);
  if (pid === undefined || rest.length > 0) throw new Error(`not one worker: ${pid}, ${rest}`);
  return pid;
}

/** What the platform logged of the end of a worker process. */
function findDeath(): string | undefined {
  const lines = platform.run.stderr.split('\n').filter((line) => line.includes(`"${endpoint}"`));
  const died = /"detail":"([^"]*)","msg":"worker process exited"/;
  return lines.map((line) => died.exec(line)?.[1]).find((detail) => detail !== undefined);
}

async function waitFor(id: string, status: string) {
  await until(async () => (await client.status(id)).status === status);
  return client.status(id);
}

describe('a supervisor', () => {
  it('runs jobs in a child process', async () => {
    const run = await startWorker();
    const { output: given } = await client.runsync({ name: 'a' });
    const { parent, pid } = output.parse(given);
    expect(parent).toBe(run.child.pid);
    expect(pid).toBe(workerPid(run));
  });

  it('logs the devices first, and reports them to the platform', async () => {
    const run = await startWorker();
    const [first = ''] = run.stderr.split('\n');
    expect(JSON.parse(first)).toMatchObject({
      msg: 'supervisor started',
      devices: [[expect.stringMatching(/×/)]],
    });
  });

  it.each(['SIGKILL', 'SIGSEGV', 'SIGABRT'] as const)(
    'makes a job run again at once, before its lease expires, if its worker process ends by %s',
    async (signal) => {
      const run = await startWorker();
      const job = await startHolding('a');
      process.kill(workerPid(run), signal);
      await until(() => countRuns('a') === 2);
      job.release();
      expect(await waitFor(job.id, 'COMPLETED')).toMatchObject({ attempt: 2 });
      expect(run.stderr).toContain(`"reason":"ended by ${signal}"`);
      await until(() => findDeath() !== undefined);
      expect(findDeath()).toBe(`ended by ${signal}`);
      const metrics = await fetch(`${platform.url}/metrics`, {
        headers: { authorization: `Bearer ${platform.adminKey}` },
      });
      const crashes = `millrace_worker_crashes_total{endpoint="${endpoint}"} 1`;
      expect(await metrics.text()).toContain(crashes);
    },
  );

  it('runs good jobs before a job that has ended its process twice', async () => {
    const names = ['b0', 'b1', 'b2', 'b3'];
    const bad = await Promise.all(names.map((name) => client.run({ name, raise: 'SIGKILL' })));
    const good = Array.from({ length: 50 }, (_, n) => client.run({ name: `g${n}` }));
    await Promise.all(good);
    await startWorker();
    for (const { id } of bad) await waitFor(id, 'FAILED');
    const runs = place.read('runs').trim().split('\n');
    const before = runs.slice(
      0,
      runs.findLastIndex((name) => name.startsWith('g')),
    );
    const counts = names.map((bad) => before.filter((name) => name === bad).length);
    // Once beside another job, once alone.
    expect(Math.max(...counts)).toBeLessThanOrEqual(2);
  });

  it('leaves its job to the worker process when it is killed, which finishes it and exits', async () => {
    const run = await startWorker();
    const job = await startHolding('a');
    const pid = workerPid(run);
    run.child.kill('SIGKILL');
    await run.until('stderr', /worker draining/);
    job.release();
    expect(await waitFor(job.id, 'COMPLETED')).toMatchObject({ attempt: 1 });
    await until(() => !existsSync(`/proc/${pid}`));
  });

  it('finishes a running job after SIGTERM', async () => {
    const run = await startWorker();
    const job = await startHolding('a');
    run.child.kill('SIGTERM');
    await run.until('stderr', /worker draining/);
    job.release();
    expect(await run.ended).toMatchObject({ code: 0 });
    expect(await client.status(job.id)).toMatchObject({ status: 'COMPLETED' });
  });

  it('leaves the job to its draining worker process when it is killed', async () => {
    const run = await startWorker();
    const job = await startHolding('a');
    const pid = workerPid(run);
    run.child.kill('SIGTERM');
    await run.until('stderr', /worker draining/);
    // From then on a signal would be a second one.
    await sleep(1_100);
    run.child.kill('SIGKILL');
    await once(run.child, 'exit');
    job.release();
    expect(await waitFor(job.id, 'COMPLETED')).toMatchObject({ attempt: 1 });
    await until(() => !existsSync(`/proc/${pid}`));
  });

  it('exits at once while it waits for an nvidia-smi that hangs', async () => {
    const pidFile = place.path('smi.pid');
    const smi = { ...sayingOf('hang'), NVIDIA_SMI_PID: pidFile };
    const args = ['worker', 'effects.mjs', '--nvidia-smi', standIn];
    const run = place.start(args, { env: { ...env, ...smi } });
    await until(() => place.size('smi.pid') > 0);
    run.child.kill('SIGTERM');
    expect(await run.ended).toMatchObject({ code: 0, stderr: '' });
    process.kill(Number(place.read('smi.pid')), 'SIGKILL');
  });

  it('exits if another worker has the same ID', async () => {
    const first = await startWorker('--worker-id', 'same');
    const second = await startWorker('--worker-id', 'same');
    const { code, stderr } = await Promise.race([first.ended, second.ended]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^millrace worker: .*worker same runs as incarnation/m);
    expect((await client.runsync({ name: 'after' })).status).toBe('COMPLETED');
  });

  it('never shares a worker folder with another supervisor', async () => {
    const args = ['--state-dir', 'state', '--worker-id', 'one'];
    await startWorker(...args);
    const { code, stderr } = await place.run(['worker', 'effects.mjs', ...args], { env });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^millrace worker: --state-dir: .*another process .* uses it/m);
  });

  it('keeps a folder for each worker across restarts of the process', async () => {
    const run = await startWorker('--state-dir', 'state');
    process.kill(workerPid(run), 'SIGKILL');
    await run.until('stderr', /worker ready[\s\S]*worker ready/);
    expect(readdirSync(place.path('state'))).toHaveLength(1);
  });

  it('delivers outcomes of a killed process with the next one, without running the job twice', async () => {
    use(await startPlatform(place));
    const run = await startWorker('--state-dir', 'state', '--worker-id', 'one');
    const job = await startHolding('a');
    await platform.run.end('SIGKILL');
    job.release();
    await until(() => place.size('state/one/outbox.journal') > JOURNAL_HEADER_BYTES);
    process.kill(workerPid(run), 'SIGKILL');
    await run.until('stderr', /"reason":"ended by SIGKILL"/);
    await startPlatform(place, new URL(platform.url).port);
    expect(await waitFor(job.id, 'COMPLETED')).toMatchObject({ attempt: 1 });
    expect(countRuns('a')).toBe(1);
  });

  it('reads the weights that the last worker has named before it loads the handler', async () => {
    const library = pathToFileURL(resolve(import.meta.dirname, '../../../dist/process.js'));
    place.write('weights.bin', 'x'.repeat(1_000));
    place.write(
      'effects.mjs',
      `import { createModelProcess } from '${library}';
      console.log('handler loaded');
      const model = createModelProcess({ command: 'true', weights: ['weights.bin'] });
      export const setup = () => model.start().catch(() => {});
      export default () => 1;`,
    );
    const first = await startWorker('--state-dir', 'state');
    expect(first.stderr).not.toMatch(
      /"bytes":1000,.*"msg":"weights read ahead"[\s\S]*handler loaded/,
    );
    await first.end('SIGTERM');
    const second = await startWorker('--state-dir', 'state');
    expect(second.stderr).toMatch(/"bytes":1000,.*"msg":"weights read ahead"[\s\S]*handler loaded/);
    expect(second.stderr.match(/weights read ahead/g)).toHaveLength(1);
  });

  it('shows the restart of a worker in /readyz and in its metrics', async () => {
    place.write(
      'effects.mjs',
      `${handler}\nexport function setup() {
      if (existsSync('broken')) throw new Error('no model');
    }`,
    );
    const run = await startWorker('--health-port', '0');
    const port = await run.until('stderr', /"port":(\d+),"msg":"health port listening"/);
    const ask = async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`);
      return { status: answer.status, ...readiness.parse(await answer.json()) };
    };
    expect(await ask()).toMatchObject({ status: 200, workers: [{ state: 'ready', restarts: 0 }] });
    place.write('broken', '');
    process.kill(workerPid(run), 'SIGKILL');
    await until(async () => (await ask()).workers[0]?.state === 'restarting');
    const restarting = await ask();
    if (restarting.workers[0]?.state === 'restarting') {
      expect(restarting).toMatchObject({ status: 503, reason: expect.stringMatching(/no model/) });
    }
    place.remove('broken');
    await until(async () => (await ask()).ready);
    expect((await ask()).workers[0]?.restarts).toBeGreaterThan(0);
  });
});

describe('a job that kills its worker process', () => {
  it('fails with the history of its attempts, and parallel jobs complete', async () => {
    await startWorker();
    const innocent = await startHolding('innocent');
    const { id } = await client.run({ name: 'poison', raise: 'SIGSEGV' });
    await until(() => countRuns('innocent') >= 2);
    innocent.release();
    expect(await waitFor(innocent.id, 'COMPLETED')).toMatchObject({ status: 'COMPLETED' });
    const failed = await waitFor(id, 'FAILED');
    expect(failed.error?.code).toBe('worker_crashed');
    expect(failed.error?.message).toContain('SIGSEGV');
    expect(failed.error?.attempts?.filter(({ code }) => code === 'worker_crashed').length).toBe(3);
    expect((await client.runsync({ name: 'after' })).status).toBe('COMPLETED');
  }, 60_000);
});

describe('a handler whose thread cannot be killed', () => {
  it('ends with its process, parallel jobs are released, and the next process takes jobs', async () => {
    const run = await startWorker('--grace-ms', '100');
    const neighbour = await startHolding('neighbour');
    const before = workerPid(run);
    const { id } = await client.run(
      { name: 'blocked', block: true },
      { policy: { executionTimeout: 1_000 } },
    );
    const ended = await waitFor(id, 'TIMED_OUT');
    expect(ended.error?.code).toBe('execution_timeout');
    neighbour.release();
    await waitFor(neighbour.id, 'COMPLETED');
    await until(() => !existsSync(`/proc/${before}`));
    expect((await client.runsync({ name: 'after' })).status).toBe('COMPLETED');
  }, 60_000);
});

describe('a worker process that grows past --memory-limit', () => {
  it('fails the job and continues with the next', async () => {
    place.write(
      'effects.mjs',
      `const held = [];
      export default async function (job) {
        while (job.input.grow) {
          held.push(Buffer.alloc(8 * 2 ** 20, 1));
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
        return 'small';
      }`,
    );
    await startWorker('--memory-limit', '400');
    const { id } = await client.run({ grow: true });
    const failed = await waitFor(id, 'FAILED');
    expect(failed.error?.code).toBe('memory_limit_exceeded');
    expect((await client.runsync({})).output).toBe('small');
  }, 60_000);
});
