// The health port of `millrace worker` as a process, beside `millrace serve`.

import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Client, createClient } from '../../../src/client.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { type CommandRun, Workplace } from './command-run.ts';

const handler = `import { existsSync } from 'node:fs';
export async function setup() {
  while (existsSync('hold-setup')) await new Promise((resolve) => setTimeout(resolve, 10));
}
export default async function* (job) {
  yield 'first';
  if (job.input.hold) console.log('holding');
  while (job.input.hold && existsSync('hold-job')) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  yield 'second';
}`;

const portLine = /"port":(\d+),"msg":"health port listening"/;
const readiness = z.looseObject({ ready: z.boolean(), reason: z.string().optional() });

/** The platform serves all tests: each has an endpoint of its own. */
const unused = Array.from({ length: 8 }, (_, n) => `steps-${n}`);

let shared: { place: Workplace; url: string; adminKey: string; workerKey: string };
let place: Workplace;
let client: Client;
let env: Record<string, string>;

beforeAll(async () => {
  const place = new Workplace();
  const names = unused.flatMap((name) => ['--endpoint', name]);
  const platform = place.start(['serve', '--port', '0', '--data', 'data', ...names]);
  shared = {
    place,
    url: await platform.until('stdout', /is ready at (\S+)\n/),
    adminKey: await platform.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/),
    workerKey: await platform.until('stdout', /MILLRACE_WORKER_KEY=(\S+)\n/),
  };
});

afterAll(() => shared.place.close());

beforeEach(() => {
  place = new Workplace();
  place.write('steps.mjs', handler);
  const endpoint = unused.shift() ?? '';
  const { adminKey, url, workerKey } = shared;
  client = createClient({ fetch: fetchChecked, url, key: adminKey, endpoint });
  env = { MILLRACE_URL: url, MILLRACE_ENDPOINT: endpoint, MILLRACE_KEY: workerKey };
});

afterEach(() => place.close());

async function startWorker(): Promise<{ run: CommandRun; url: string }> {
  const args = ['worker', 'steps.mjs', '--health-port', '0', '--worker-id', 'work'];
  const run = place.start(args, { env });
  const port = await run.until('stderr', portLine);
  return { run, url: `http://127.0.0.1:${port}` };
}

async function ask(url: string): Promise<{ status: number; reason: string }> {
  const answer = await fetch(`${url}/readyz`);
  const { reason = '' } = readiness.parse(await answer.json());
  return { status: answer.status, reason };
}

describe('the health port of a worker', () => {
  it('is not ready during the setup and ready after it', async () => {
    place.write('hold-setup', '');
    const { run, url } = await startWorker();
    await run.until('stderr', /outbox is in memory only/);
    const setup = { status: 503, reason: 'starting: waiting for the setup' };
    const beforeSetup = { status: 503, reason: 'starting: waiting for the process' };
    let seen = beforeSetup;
    while (seen.reason === beforeSetup.reason) {
      await sleep(20);
      seen = await ask(url);
    }
    expect(seen).toEqual(setup);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    rmSync(place.path('hold-setup'));
    await run.until('stderr', /worker ready/);
    expect(await ask(url)).toEqual({ status: 200, reason: '' });
  });

  it('counts a job in its metrics', async () => {
    const { url } = await startWorker();
    await client.runsync({});
    const text = await (await fetch(`${url}/metrics`)).text();
    const lines = text.split('\n');
    for (const line of [
      'millrace_worker_up{worker="work"} 1',
      'millrace_worker_restarts_total{worker="work"} 0',
      'millrace_worker_ready{worker="work"} 1',
      'millrace_worker_attempts_ended_total{outcome="completed",worker="work"} 1',
      'millrace_worker_queue_wait_seconds_count{worker="work"} 1',
      'millrace_worker_execution_seconds_count{outcome="completed",worker="work"} 1',
      'millrace_worker_first_chunk_seconds_count{worker="work"} 1',
      'millrace_worker_chunk_bytes_count{worker="work"} 2',
    ]) {
      expect(lines).toContain(line);
    }
    expect(text).toMatch(/^nodejs_eventloop_lag_seconds\{worker="supervisor"\} \d/m);
    expect(text).toMatch(/^nodejs_eventloop_lag_seconds\{worker="work"\} \d/m);
  });

  it('shows draining until the last job has ended, and closes with the process', async () => {
    place.write('hold-job', '');
    const { run, url } = await startWorker();
    const { id } = await client.run({ hold: true });
    await run.until('stderr', /holding/);
    run.child.kill('SIGTERM');
    await run.until('stderr', /worker draining/);
    expect(await ask(url)).toEqual({ status: 503, reason: 'draining' });
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    rmSync(place.path('hold-job'));
    expect(await run.ended).toMatchObject({ code: 0 });
    expect(await client.status(id)).toMatchObject({ status: 'COMPLETED' });
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
  });

  it('makes the worker exit with 1 and a reason if another process uses it', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const args = ['worker', 'steps.mjs', '--health-port', String(port)];
    const { code, stderr } = await place.run(args, { env });
    other.close();
    expect(code).toBe(1);
    expect(stderr).toContain(
      `--health-port: cannot listen on 127.0.0.1 port ${port}: the port is in use`,
    );
  });

  it('is set by the environment, and closed by default', async () => {
    const quiet = place.start(['worker', 'steps.mjs'], { env });
    await quiet.until('stderr', /worker ready/);
    expect(quiet.stderr).not.toMatch(portLine);
    const told = { ...env, MILLRACE_HEALTH_PORT: '0', MILLRACE_HEALTH_HOST: 'localhost' };
    const run = place.start(['worker', 'steps.mjs'], { env: told });
    const port = await run.until('stderr', portLine);
    expect(run.stderr).toContain('"host":"localhost"');
    expect((await fetch(`http://localhost:${port}/healthz`)).status).toBe(200);
  });
});
