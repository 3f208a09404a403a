// What a handler can find of the worker's key, and what becomes of processes that it leaves behind.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createClient } from '../../../src/client.ts';
import { listChildren } from '../../support/process-tree.ts';
import { until } from '../../support/until.ts';
import { type CommandRun, Workplace } from './command-run.ts';

const handler = `import { execFileSync, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
export default async function (job) {
  if (job.input.leave) {
    const child = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' });
    child.unref();
    return { child: child.pid };
  }
  return {
    own: JSON.stringify(process.env),
    child: execFileSync('env').toString(),
    started: readFileSync('/proc/self/environ', 'latin1'),
    arguments: JSON.stringify(process.argv) + readFileSync('/proc/self/cmdline', 'latin1'),
    input: job.input.stdin ? readFileSync(0, 'latin1') : '',
    greeting: process.env.GREETING,
  };
}`;

/** The platform serves all tests: each has an endpoint of its own. */
const unused = Array.from({ length: 10 }, (_, n) => `look-${n}`);

let shared: Workplace;
let place: Workplace;
let endpoint: string;
let url: string;
let grpcUrl: string;
let workerKey: string;
let adminKey: string;

beforeAll(async () => {
  shared = new Workplace();
  const names = unused.flatMap((name) => ['--endpoint', name]);
  const ports = ['--port', '0', '--grpc-port', '0'];
  const platform = shared.start(['serve', ...ports, '--data', 'data', ...names]);
  url = await platform.until('stdout', /is ready at (\S+)\n/);
  grpcUrl = await platform.until('stdout', /Workers over gRPC at (\S+)\n/);
  adminKey = await platform.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
  workerKey = await platform.until('stdout', /MILLRACE_WORKER_KEY=(\S+)\n/);
});

afterAll(() => shared.close());

beforeEach(() => {
  place = new Workplace();
  place.write('look.mjs', handler);
  endpoint = unused.shift() ?? '';
});

afterEach(() => place.close());

async function startWorker(env: Record<string, string>, ...args: string[]): Promise<CommandRun> {
  const own = { MILLRACE_URL: url, MILLRACE_ENDPOINT: endpoint, GREETING: 'hello', ...env };
  const run = place.start(['worker', 'look.mjs', ...args], { env: own });
  await run.until('stderr', /worker ready/);
  return run;
}

async function runJob(input: Record<string, unknown>): Promise<Record<string, unknown>> {
  const client = createClient({ url, key: adminKey, endpoint });
  const { output } = await client.runsync(input);
  return z.record(z.string(), z.unknown()).parse(output);
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('a handler', () => {
  it.each([
    ['in the environment', () => ({ MILLRACE_KEY: workerKey }), () => []],
    ['as an argument', () => ({}), () => ['--key', workerKey]],
  ])(
    'cannot read the RunPod key or the worker key given %s',
    async (_, giveVariable, giveArguments) => {
      await startWorker({ ...giveVariable(), RUNPOD_AI_API_KEY: 'rp-secret' }, ...giveArguments());
      const found = await runJob({ stdin: true });
      expect(found['greeting']).toBe('hello');
      expect(JSON.stringify(found)).not.toMatch(/mr_|rp-secret|MILLRACE_KEY\b/);
    },
  );

  it('finds no key in its environment or that of its children, also without a supervisor', async () => {
    await startWorker({ MILLRACE_KEY: workerKey }, '--unsupervised');
    const { own, child } = await runJob({});
    expect(JSON.stringify([own, child])).not.toContain('mr_');
  });
});

describe('a process that a handler left behind in another process group', () => {
  async function leaveChild(): Promise<number> {
    const { child } = await runJob({ leave: true });
    return z.number().parse(child);
  }

  async function untilGone(pid: number): Promise<void> {
    await until(() => !isRunning(pid));
  }

  it.each([
    ['supervised', []],
    ['unsupervised', ['--unsupervised']],
  ])('ends when its %s worker exits', async (_, args) => {
    const worker = await startWorker({ MILLRACE_KEY: workerKey }, ...args);
    const child = await leaveChild();
    expect(isRunning(child)).toBe(true);
    expect((await worker.end('SIGTERM')).code).toBe(0);
    await untilGone(child);
  });

  it('ends when its worker process is killed', async () => {
    const supervisor = await startWorker({ MILLRACE_KEY: workerKey });
    const child = await leaveChild();
    const [worker = 0] = listChildren(supervisor.child.pid ?? 0);
    process.kill(worker, 'SIGKILL');
    await untilGone(child);
  });
});

describe('a worker whose key is refused', () => {
  it.each([
    ['under a supervisor', []],
    ['alone', ['--unsupervised']],
  ])('exits with code 6 after --auth-timeout, %s', async (_, more) => {
    const env = { MILLRACE_URL: url, MILLRACE_ENDPOINT: endpoint, MILLRACE_KEY: 'mr_wrong' };
    const run = place.start(['worker', 'look.mjs', '--auth-timeout', '1', ...more], { env });
    const { code, stderr } = await run.ended;
    expect(stderr).toContain('the platform has refused the key for 1 s: ');
    expect(stderr).not.toContain('"stack"');
    expect(code).toBe(6);
  });
});

describe('a worker whose endpoint does not exist', () => {
  it.each([
    ['HTTP', () => url],
    ['gRPC', () => grpcUrl],
  ])('says so and exits with code 6 after --auth-timeout, over %s', async (_, target) => {
    const env = { MILLRACE_URL: target(), MILLRACE_ENDPOINT: 'ecko', MILLRACE_KEY: adminKey };
    const run = place.start(['worker', 'look.mjs', '--auth-timeout', '1'], { env });
    const { code, stderr } = await run.ended;
    expect(stderr).toContain('the platform has no such endpoint; correct its name, or create it: ');
    expect(stderr).toMatch(/the platform has had no such endpoint for 1 s: .*ecko not found/);
    expect(code).toBe(6);
  });
});
