// Commands whose standard output or standard error fails: the disk is full, or the reader has gone.
import { resolve } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createClient } from '../../../src/client.ts';
import { findFreePort } from '../../support/network/free-port.ts';
import { type CommandRun, Workplace } from './command-run.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../../bin/millrace.js');
const HANDLER = `import { writeSync } from 'node:fs';
export default async function (job) {
  console.log('to console');
  console.error('x'.repeat(10_000));
  process.stdout.write('to stdout\\n');
  process.stderr.write('to stderr\\n');
  return {};
}`;

let place: Workplace;

beforeEach(() => {
  place = new Workplace();
});

afterEach(() => place.close());

/** Runs the command with both streams on a full disk. */
function startOnFullDisk(args: readonly string[], env: Record<string, string> = {}): CommandRun {
  const line = ['exec "$@" > /dev/full 2> /dev/full', 'sh', process.execPath, LAUNCHER, ...args];
  return place.start(['-c', ...line], { command: 'sh', env });
}

/** Runs the command with streams that nobody reads. */
function startUnread(args: readonly string[], env: Record<string, string> = {}): CommandRun {
  const run = place.start(args, { env });
  run.child.stdout.destroy();
  run.child.stderr.destroy();
  return run;
}

/** Until it answers with a value. */
async function poll(run: CommandRun, ask: () => Promise<unknown>): Promise<void> {
  for (;;) {
    if (run.child.exitCode !== null) throw new Error(`ended with ${run.child.exitCode}`);
    if (await ask().catch(() => undefined)) return;
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

const untilHealthy = (url: string, run: CommandRun) =>
  poll(run, async () => (await fetch(`${url}/healthz`)).ok);

/** A write fails a moment later than its caller goes on. */
function untilCounted(run: CommandRun, stream: string, url: string, headers = {}): Promise<void> {
  const counted = new RegExp(
    `^millrace_output_failures_total\\{stream="${stream}".*\\} [1-9]`,
    'm',
  );
  return poll(run, async () => counted.test(await (await fetch(url, { headers })).text()));
}

async function serve(start = (args: readonly string[]) => place.start(args)) {
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const run = start([
    ...['serve', '--port', String(port), '--data', 'data', '--key-file', 'keys'],
    ...['--endpoint', 'e'],
  ]);
  await untilHealthy(url, run);
  const readKey = (role: string) =>
    new RegExp(`MILLRACE_${role}_KEY=(\\S+)`).exec(place.read('keys'))?.[1] ?? '';
  const client = createClient({ url, key: readKey('ADMIN'), endpoint: 'e' });
  const env = { MILLRACE_URL: url, MILLRACE_ENDPOINT: 'e' };
  const workerEnv = { ...env, MILLRACE_KEY: readKey('WORKER') };
  return { run, url, client, workerEnv, env: { ...env, MILLRACE_KEY: readKey('ADMIN') } };
}

const STARTS = [
  ['on a full disk', startOnFullDisk],
  ['that nobody reads', startUnread],
] as const;

it.each(STARTS)(
  'runs the jobs of a worker with streams %s, and counts the writes',
  async (_, start) => {
    const { client, workerEnv } = await serve();
    place.write('handler.mjs', HANDLER);
    const port = await findFreePort();
    const worker = start(['worker', 'handler.mjs', '--health-port', String(port)], workerEnv);
    for (let job = 0; job < 2; job++) {
      expect(await client.runsync({})).toMatchObject({ status: 'COMPLETED', attempt: 1 });
    }
    expect(worker.child.exitCode).toBeNull();
    await untilCounted(worker, 'stderr', `http://127.0.0.1:${port}/metrics`);
  },
);

it.each(STARTS)(
  'goes on with a platform with streams %s, and counts the writes',
  async (_, start) => {
    const { env, run, url } = await serve(start);
    const headers = { authorization: `Bearer ${env.MILLRACE_KEY}` };
    await untilCounted(run, 'stdout', `${url}/metrics`, headers);
    run.child.kill();
    await run.ended;
  },
);

it.each(STARTS)('runs jobs in `millrace dev` with streams %s', async (_, start) => {
  place.write('handler.mjs', HANDLER);
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const dev = start(['dev', 'handler.mjs', '--port', String(port)]);
  await untilHealthy(url, dev);
  const client = createClient({ url, endpoint: 'handler' });
  // The endpoint exists once the handler is loaded.
  await poll(dev, () => client.health());
  expect(await client.runsync({})).toMatchObject({ status: 'COMPLETED', attempt: 1 });
});

it('ends a list quietly with code 141 if its reader has gone, as after SIGPIPE', async () => {
  const { env } = await serve();
  const list = place.start(['endpoints', 'list'], { env });
  list.child.stdout.destroy();
  expect(await list.ended).toMatchObject({ code: 141, stderr: '' });
});

it('says in one line that the disk of the output of a list is full', async () => {
  const { env } = await serve();
  const line = ['exec "$@" > /dev/full', 'sh', process.execPath, LAUNCHER, 'endpoints', 'list'];
  const list = await place.run(['-c', ...line], { command: 'sh', env });
  expect(list).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^millrace: standard output cannot be written: ENOSPC.*\n$/),
  });
});

it('submits all jobs of `jobs submit --each` after its reader has gone', async () => {
  const { client, env } = await serve();
  place.write('jobs.ndjson', '{"n":1}\n'.repeat(500));
  const submit = place.start(['jobs', 'submit', '--each', 'jobs.ndjson'], { env });
  submit.child.stdout.destroy();
  expect(await submit.ended).toMatchObject({
    code: 0,
    stderr: 'millrace jobs submit: 500 jobs submitted, 0 refused\n',
  });
  expect((await client.health()).jobs.inQueue).toBe(500);
});
