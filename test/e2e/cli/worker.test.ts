// `millrace worker` as a process of its own, beside `millrace serve`; and `jobs` and `logs` on both.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Client, createClient } from '../../../src/client.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { fixture } from '../../support/processes.ts';
import { until } from '../../support/until.ts';
import { type CommandEnd, type CommandRun, Workplace } from './command-run.ts';

const handler = `import { existsSync } from 'node:fs';
export default async function (job, ctx) {
  ctx.log.info({ colour: job.input.colour }, 'painting');
  if (job.input.hold) {
    console.log('holding');
    while (job.input.hold === 'gate' && !existsSync('gate')) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await new Promise((resolve) => setTimeout(resolve, Number(job.input.hold) || 0));
  }
  if (job.input.fail) throw new Error('spilt');
  return job.input;
}`;

/** One platform serves all tests: each has an endpoint of its own. */
const unused = Array.from({ length: 40 }, (_, n) => `paint-${n}`);

let shared: { place: Workplace; url: string; adminKey: string; workerKey: string };
let place: Workplace;
let endpoint: string;
let client: Client;
let env: Record<string, string>;

beforeAll(async () => {
  const place = new Workplace();
  const names = unused.flatMap((name) => ['--endpoint', name]);
  const terms = ['--port', '0', '--data', 'data', '--retry-base-ms', '1'];
  const platform = place.start(['serve', ...terms, ...names]);
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
  place.write('paint.mjs', handler);
  endpoint = unused.shift() ?? '';
  const { adminKey, url, workerKey } = shared;
  client = createClient({ fetch: fetchChecked, url, key: adminKey, endpoint });
  env = { MILLRACE_URL: url, MILLRACE_ENDPOINT: endpoint, MILLRACE_KEY: workerKey };
});

afterEach(() => place.close());

async function startWorker(...args: string[]): Promise<CommandRun> {
  const run = place.start(['worker', 'paint.mjs', ...args], { env });
  await run.until('stderr', /worker ready/);
  return run;
}

/** A process that was busy may see two signals as one: sends them until it has ended. A process that exits may die of one. */
async function repeatSignal(run: CommandRun, signal: NodeJS.Signals): Promise<CommandEnd> {
  await sleep(1_100);
  for (;;) {
    run.child.kill(signal);
    const end = await Promise.race([run.ended, sleep(10_000)]);
    if (end) return end;
  }
}

/** A command of a client, with the admin key. */
function call(...args: string[]) {
  return place.run(args, { env: { ...env, MILLRACE_KEY: shared.adminKey } });
}

describe('a worker', () => {
  it('takes its options from the environment and runs jobs', async () => {
    await startWorker();
    expect(await client.runsync({ colour: 'red' })).toMatchObject({
      status: 'COMPLETED',
      output: { colour: 'red' },
    });
  });

  it('logs JSON lines on standard error, those of a job with its ID', async () => {
    const run = await startWorker();
    const { id } = await client.runsync({ colour: 'red' });
    const line = await run.until('stderr', /\{.*painting.*\}\n/);
    expect(JSON.parse(line)).toMatchObject({ job: id, attempt: 1, colour: 'red' });
  });

  it('runs as many parallel jobs as its threads times jobs per thread', async () => {
    await startWorker('--threads', '2', '--jobs-per-thread', '2');
    await Promise.all([1, 2, 3, 4, 5].map(() => client.run({ hold: 60_000 })));
    await until(async () => (await client.health()).jobs.inProgress >= 4, { everyMs: 50 });
    expect((await client.health()).jobs).toMatchObject({ inProgress: 4, inQueue: 1 });
  });

  it('finishes its job after SIGTERM, takes no other, and exits 0', async () => {
    const run = await startWorker();
    const running = await client.run({ hold: 'gate' });
    await run.until('stderr', /holding/);
    const waiting = await client.run({});
    run.child.kill('SIGTERM');
    await run.until('stderr', /worker draining/);
    place.write('gate', '');
    expect(await run.ended).toMatchObject({ code: 0 });
    expect(await client.status(running.id)).toMatchObject({ status: 'COMPLETED' });
    expect(await client.status(waiting.id)).toMatchObject({ status: 'IN_QUEUE', attempt: 0 });
  });

  it('releases jobs that it cannot finish in time', async () => {
    const run = await startWorker('--drain-ms', '0', '--force-ms', '0');
    const { id } = await client.run({ hold: 60_000 });
    await run.until('stderr', /holding/);
    await run.end('SIGTERM');
    expect(await client.status(id)).toMatchObject({ status: 'IN_QUEUE' });
  });

  it('kills the thread of a stopped handler that does not end within --grace-ms', async () => {
    const run = await startWorker('--grace-ms', '1');
    const { id } = await client.run({ hold: 60_000 });
    await run.until('stderr', /holding/);
    await client.cancel(id);
    expect(await client.runsync({ colour: 'red' })).toMatchObject({ output: { colour: 'red' } });
  });

  it.each([
    ['SIGTERM', 1],
    ['SIGINT', 130],
  ] as const)('exits at once on a second %s', async (signal, exit) => {
    const run = await startWorker();
    const { id } = await client.run({ hold: 60_000 });
    await run.until('stderr', /holding/);
    run.child.kill(signal);
    await run.until('stderr', /worker draining/);
    expect(await repeatSignal(run, signal)).toMatchObject({ code: exit });
    // At once if the worker could still give it back, else when its lease runs out.
    await until(async () => (await client.status(id)).status === 'IN_QUEUE', { everyMs: 50 });
  });

  it('exits with 2 and the reason if its ID is invalid', async () => {
    const args = ['worker', 'paint.mjs', '--worker-id', 'a b'];
    const { code, stderr } = await place.run(args, { env });
    expect(code).toBe(2);
    expect(stderr).toMatch(/millrace worker: --worker-id: .*"a b"/);
  });

  it('exits with 5 and the reason if its handler cannot be loaded', async () => {
    place.write('broken.mjs', 'export const nothing = 1;');
    const { code, stderr } = await place.run(['worker', 'broken.mjs'], { env });
    expect(code).toBe(5);
    expect(stderr).toContain('broken.mjs: no default export');
  });

  it('exits with 2 and the reason, after one start, if its option does not fit the handler', async () => {
    const args = ['worker', fixture('batched.ts'), '--jobs-per-thread', '2'];
    const { code, stderr } = await place.run(args, { env });
    expect(code).toBe(2);
    expect(stderr).toMatch(/^millrace worker: --jobs-per-thread: .*remove the option/m);
    expect(stderr.match(/"worker failed"/g)).toHaveLength(1);
    expect(stderr).not.toMatch(/ at .*\.[jt]s:/);
  });

  it('exits with 3 if its setup throws repeatedly, and no job is lost', async () => {
    place.write(
      'unset.mjs',
      `${handler}\nexport function setup() { throw new Error('no model'); }`,
    );
    const { id } = await client.run({});
    const args = ['worker', 'unset.mjs', '--start-attempts', '2'];
    const { code, stderr } = await place.run(args, { env });
    expect(code).toBe(3);
    expect(stderr.match(/"worker failed"/g)).toHaveLength(2);
    expect(stderr).toMatch(/^millrace worker: no worker process could be started: .*no model/m);
    expect(await client.status(id)).toMatchObject({ status: 'IN_QUEUE', attempt: 0 });
  });

  it('waits for a platform that has not started yet', async () => {
    const run = place.start(['worker', 'paint.mjs', '--url', 'http://127.0.0.1:1'], { env });
    await run.until('stderr', /the platform is unavailable/);
    expect(await run.end('SIGTERM')).toMatchObject({ code: 0 });
  });

  it('rejects an invalid URL', async () => {
    const { code, stderr } = await place.run(['worker', 'paint.mjs', '--url', 'ftp://x'], { env });
    expect(code).toBe(2);
    expect(stderr).toContain('--url: ');
  });
});

/** `millrace jobs` on the endpoint of the test. */
const jobs = (...args: string[]) => call('jobs', ...args, '--endpoint', endpoint);

describe('millrace jobs', () => {
  it('submits a job, waits for it and shows its record', async () => {
    await startWorker();
    const run = await jobs('submit', '--input', '{"colour":"red"}', '--wait', '--json');
    const lines = run.stdout.trim().split('\n');
    expect(run.code).toBe(0);
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ output: { colour: 'red' } });
  });

  it('lists jobs by status, page by page', async () => {
    const { id } = await client.run({});
    const cancelled = await client.run({});
    await client.cancel(cancelled.id);
    const queued = await jobs('list', '--status', 'IN_QUEUE');
    expect(queued.stdout).toContain(id);
    expect(queued.stdout).not.toContain(cancelled.id);
    const first = JSON.parse((await jobs('list', '--limit', '1', '--json')).stdout);
    expect(first.jobs).toMatchObject([{ id: cancelled.id }]);
    const second = await jobs('list', '--cursor', first.cursor);
    expect(second.stdout).toContain(id);
    expect(second.stdout).not.toContain('more:');
  });

  it('shows, cancels and retries jobs, with the reason of a refusal', async () => {
    await startWorker();
    const { id } = await client.runsync({ fail: true });
    expect((await jobs('show', id)).stdout).toContain('spilt');
    const refused = await jobs('cancel', id);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/409.*FAILED/);
    expect((await jobs('retry', id)).stdout).toBe(`${id}  IN_QUEUE\n`);
  });

  it('purges the queue and shows its health', async () => {
    await client.run({});
    expect((await jobs('purge')).stdout).toBe('1 cancelled\n');
    const { stdout } = await jobs('health');
    expect(stdout).toContain('workers: idle 0, running 0');
  });

  it('exits with 1 without an answer and with a wrong key', async () => {
    const nobody = await jobs('health', '--url', 'http://127.0.0.1:1');
    expect(nobody.code).toBe(1);
    expect(nobody.stderr).toContain('http://127.0.0.1:1 does not respond');
    const stranger = await jobs('health', '--key', `mr_${'x'.repeat(43)}`);
    expect(stranger.code).toBe(1);
    expect(stranger.stderr).toContain('refuses the API key');
  });
});

describe('millrace jobs logs', () => {
  it('shows the handler’s log', async () => {
    await startWorker();
    const { id } = await client.runsync({ colour: 'red' });
    const { code, stdout } = await jobs('logs', id);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ msg: 'painting', colour: 'red' });
  });

  it('continues with -f until the job has ended', async () => {
    await startWorker();
    const { id } = await client.run({ hold: 300 });
    const { code, stdout } = await jobs('logs', id, '-f');
    expect(code).toBe(0);
    expect(stdout).toContain('painting');
    expect(stdout).toContain('holding');
    expect(await client.status(id)).toMatchObject({ status: 'COMPLETED' });
  });
});
