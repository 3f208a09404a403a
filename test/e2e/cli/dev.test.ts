// `millrace dev`: handlers as endpoints, calls without a key, and changed files without a lost job.

import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import runpodSdk from 'runpod-sdk';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Client, createClient } from '../../../src/client.ts';
import { findFreePort } from '../../support/containers/docker-platform.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { until } from '../../support/until.ts';
import { type CommandRun, Workplace } from './command-run.ts';

/** Answers with its version; waits as long as it is told to. */
function version(name: string): string {
  return `export default async function (job) {
    if (job.input.hold) {
      console.log('holding');
      await new Promise((resolve) => setTimeout(resolve, job.input.hold));
    }
    return ${JSON.stringify(name)};
  }`;
}

const READY = /is ready at (\S+)\n/;

let place: Workplace;

beforeEach(() => {
  place = new Workplace();
  mkdirSync(place.path('handlers'));
});

afterEach(() => place.close());

interface Dev {
  run: CommandRun;
  url: string;
}

async function startDev(...args: string[]): Promise<Dev> {
  const run = place.start(['dev', 'handlers', '--port', '0', ...args]);
  return { run, url: await run.until('stdout', READY) };
}

function connect({ url }: Dev, endpoint: string): Client {
  return createClient({ fetch: fetchChecked, url, endpoint });
}

async function answerOf(client: Client, input: object = {}): Promise<unknown> {
  return (await client.runsync(input)).output;
}

/** Whether there is such an endpoint. */
function isThere(client: Client): Promise<boolean> {
  return client.health().then(
    () => true,
    () => false,
  );
}

/** Asks again until the answer is that; the test's own timeout is the limit. */
async function untilAnswer(client: Client, wanted: string): Promise<void> {
  await until(async () => (await answerOf(client)) === wanted, { everyMs: 50 });
}

describe('--retries and --max-attempts', () => {
  it.each([
    ['--retries', '0'],
    ['--max-attempts', '1'],
  ])('set %s %s for the endpoint of each handler', async (...flags) => {
    place.write('handlers/failing.mjs', 'export default () => { throw new Error("no"); };');
    const dev = await startDev(...flags);
    const record = await connect(dev, 'failing').runsync({});
    expect(record).toMatchObject({ status: 'FAILED', error: { attempts: [{ attempt: 1 }] } });
  });

  it('exclude each other', async () => {
    place.write('handlers/any.mjs', 'export default () => 1;');
    const both = ['--retries', '1', '--max-attempts', '2'];
    const { code, stderr } = await place.run(['dev', 'handlers', '--port', '0', ...both]);
    expect([code, stderr]).toEqual([2, expect.stringContaining('--retries and --max-attempts')]);
  });
});

describe('handlers', () => {
  it('are endpoints, and the printed commands work as they are', async () => {
    place.write('handlers/echo.mjs', '// { "hello": "you" }\nexport default (job) => job.input;');
    const stream = '// {}\nexport default function* () { yield "a"; yield "b"; }';
    place.write('handlers/stream.ts', stream);
    const { run } = await startDev();
    const [echo = '', , last = ''] = run.stdout.match(/^ {2}curl.*$/gm) ?? [];
    const shell = (command: string) => execFileSync('sh', ['-c', command], { encoding: 'utf8' });
    expect(JSON.parse(shell(echo))).toMatchObject({ output: { hello: 'you' } });
    expect(shell(last)).toContain('data: {"output":"a","metrics":{}}');
  });

  it('say in the record of a job that they cannot be loaded, and run it once they are fixed', async () => {
    place.write('handlers/broken.mjs', "throw new Error('no luck');");
    const client = connect(await startDev(), 'broken');
    const { id } = await client.run({});
    const { waitReason } = await client.status(id);
    expect(waitReason).toMatchObject({
      code: 'handler_not_loaded',
      message: expect.stringMatching(
        /no luck[\s\S]*The next one starts when the handler changes\.$/,
      ),
    });
    place.write('handlers/broken.mjs', version('fixed'));
    await until(async () => (await client.status(id)).status === 'COMPLETED', { everyMs: 50 });
  });

  it('are reported once if they cannot be loaded, and the others are served', async () => {
    place.write('handlers/broken.mjs', "import './none.mjs';");
    place.write('handlers/good.mjs', version('one'));
    const dev = await startDev();
    expect(dev.run.stdout).toMatch(/^broken .*no worker/m);
    expect(dev.run.stderr).toContain('none.mjs');
    const errors = dev.run.stderr.split('\n').filter((line) => line.includes("cannot find '"));
    expect(errors).toHaveLength(1);
    expect(await answerOf(connect(dev, 'good'))).toBe('one');
  });

  it('are named while their setup takes long', async () => {
    const setup = 'export const setup = () => new Promise((ready) => setTimeout(ready, 60_000));';
    place.write('handlers/heavy.mjs', `${setup}\nexport default () => 1;`);
    const run = place.start(['dev', 'handlers', '--port', '0']);
    await run.until('stderr', /heavy.*handlers still loading/);
    const { code, stderr } = await run.end('SIGTERM');
    expect(code).toBe(0);
    expect(stderr).not.toContain('waiting for running jobs');
  });

  it('have their endpoints once the platform is ready', async () => {
    place.write('handlers/early.mjs', version('one'));
    const port = await findFreePort();
    const run = place.start(['dev', 'handlers', '--port', String(port)]);
    const url = `http://127.0.0.1:${port}`;
    const isReady = () =>
      fetch(`${url}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
    await until(isReady, { everyMs: 2 });
    await connect({ run, url }, 'early').run({});
  });

  it('are refused if they have the same name; both are named', async () => {
    place.write('handlers/twice.js', '');
    place.write('handlers/twice.ts', '');
    const { code, stderr } = await place.run(['dev', 'handlers', '--port', '0']);
    expect(code).toBe(2);
    expect(stderr).toMatch(/twice\.js and .*twice\.ts are both named "twice"/);
  });
});

describe('the output', () => {
  it('has a line for each request and each attempt, and the stack of a failure', async () => {
    const handler = `function check(n) { throw new TypeError('no ' + n); }
      export default function* (job) { yield 1; yield 2; if (job.input.n) check(job.input.n); }`;
    place.write('handlers/count.mjs', handler);
    const dev = await startDev('--retries', '1');
    const client = connect(dev, 'count');
    const { id } = await client.runsync({});
    await dev.run.until('stdout', new RegExp(`job count/${id} COMPLETED, \\d+ ms, 2 chunks\n`));
    await dev.run.until('stdout', /^\S+ POST \/v2\/count\/runsync 200, \d+ ms\n/m);
    await client.runsync({ n: 7 });
    const stack =
      ' {4}TypeError: no 7\\n {8}at check \\(handlers/count.mjs:1:\\d+\\)\\n.*count.mjs.*\\n';
    const retried = 'attempt 1 failed and is retried, \\d+ ms, 2 chunks\\n';
    await dev.run.until('stdout', new RegExp(`${retried}${stack}\\d`));
    await dev.run.until('stdout', new RegExp(`FAILED, \\d+ ms, 2 chunks\\n${stack}\\d`));
    expect(dev.run.stderr).not.toContain('attempt failed');
  });

  it('has only failures with --quiet', async () => {
    const handler = 'export default (job) => { if (job.input.n) throw new Error("no"); };';
    place.write('handlers/some.mjs', handler);
    const dev = await startDev('--retries', '0', '--quiet');
    await connect(dev, 'some').runsync({});
    await connect(dev, 'some').runsync({ n: 1 });
    await dev.run.until('stdout', /some\/\S+ FAILED.*\n {4}Error: no\n/);
    expect(dev.run.stdout).not.toMatch(/COMPLETED|runsync 200/);
  });

  it('names the URL of a new handler', async () => {
    place.write('handlers/first.mjs', version('one'));
    const dev = await startDev();
    place.write('handlers/second.mjs', `// {"hello":1}\n${version('two')}`);
    const command = await dev.run.until('stdout', /^second .*second.mjs\n {2}(curl .*)$/m);
    const answer = execFileSync('sh', ['-c', command], { encoding: 'utf8' });
    expect(JSON.parse(answer)).toMatchObject({ output: 'two' });
  });
});

describe('a change', () => {
  let shared: Workplace;
  let dev: Dev;

  beforeAll(async () => {
    shared = new Workplace();
    mkdirSync(shared.path('handlers'));
    shared.write('handlers/first.mjs', version('one'));
    const run = shared.start(['dev', 'handlers', '--port', '0']);
    dev = { run, url: await run.until('stdout', READY) };
  });

  afterAll(() => shared.close());

  /** Resolves when the endpoint of the new file serves. */
  async function addHandler(name: string, source: string): Promise<Client> {
    shared.write(`handlers/${name}.mjs`, source);
    const client = connect(dev, name);
    await until(() => isThere(client), { everyMs: 50 });
    await answerOf(client);
    return client;
  }

  it('loses no job, and running jobs end on the old version', async () => {
    const client = await addHandler('work', version('one'));
    const running = client.runsync({ hold: 2_000 });
    await dev.run.until('stderr', /holding/);
    shared.write('handlers/work.mjs', version('two'));
    await untilAnswer(client, 'two');
    expect(await running).toMatchObject({ status: 'COMPLETED', output: 'one', attempt: 1 });
  });

  it('loses none of many jobs submitted meanwhile', async () => {
    const client = await addHandler('many', version('one'));
    const submit = () => Promise.all(Array.from({ length: 50 }, () => client.runsync({ hold: 1 })));
    const before = submit();
    shared.write('handlers/many.mjs', version('two'));
    const after = submit();
    await dev.run.until('stderr', /"endpoint":"many".*reloaded/);
    const records = [...(await before), ...(await after), ...(await submit())];
    expect(new Set(records.map(({ status }) => status))).toEqual(new Set(['COMPLETED']));
    expect(records.at(-1)?.output).toBe('two');
  });

  it('reloads the handler also in a module that it imports', async () => {
    mkdirSync(shared.path('handlers/lib'));
    shared.write('handlers/lib/name.mjs', "export default 'one';");
    const source = "import name from './lib/name.mjs';\nexport default () => name;";
    const client = await addHandler('importing', source);
    expect(await answerOf(client)).toBe('one');
    shared.write('handlers/lib/name.mjs', "export default 'two';");
    await untilAnswer(client, 'two');
  });

  it('leaves the old version running if it breaks a handler, until it is fixed', async () => {
    const client = await addHandler('mended', version('one'));
    shared.write('handlers/mended.mjs', 'export default {;');
    await dev.run.until('stderr', /mended\.mjs:1: .*\. Still serving the previous version\./);
    expect(await answerOf(client)).toBe('one');
    shared.write('handlers/mended.mjs', version('two'));
    await untilAnswer(client, 'two');
  });

  it('reloads the handler also if it comes again and again, faster than the handler loads', async () => {
    await addHandler('busy', version('one'));
    const slow = 'export const setup = () => new Promise((ready) => setTimeout(ready, 500));';
    const isReloaded = () => /"endpoint":"busy".*handler reloaded/.test(dev.run.stderr);
    for (let n = 0; n < 60 && !isReloaded(); n += 1) {
      shared.write('handlers/busy.mjs', `${slow}\n${version(String(n))}`);
      await sleep(250);
    }
    expect(isReloaded()).toBe(true);
  });

  it('adds an endpoint if it adds a handler, and drains the worker of one that it removes', async () => {
    const added = await addHandler('added', version('added'));
    await dev.run.until('stderr', /"endpoint":"added".*handler added/);
    expect(await answerOf(added)).toBe('added');
    rmSync(shared.path('handlers/added.mjs'));
    await dev.run.until('stderr', /"endpoint":"added".*handler removed/);
    await until(async () => (await added.health()).workers.idle <= 0, { everyMs: 50 });
    expect(await answerOf(connect(dev, 'first'))).toBe('one');
  });
});

it('replaces a dead worker, and returns its job to the queue at once', async () => {
  const dies = `import { existsSync, writeFileSync } from 'node:fs';
    export default function (job) {
      if (existsSync(job.input.mark)) return 'second life';
      writeFileSync(job.input.mark, '');
      process.kill(process.pid, 'SIGKILL');
    }`;
  place.write('handlers/work.mjs', dies);
  const dev = await startDev();
  const client = connect(dev, 'work');
  const record = await client.runsync({ mark: place.path('mark') });
  expect(record).toMatchObject({ status: 'COMPLETED', output: 'second life', attempt: 2 });
  expect(dev.run.stderr).toContain('worker process exited');
});

describe('dev mode without a key', () => {
  let shared: Workplace;
  let dev: Dev;

  beforeAll(async () => {
    shared = new Workplace();
    shared.write('work.mjs', version('one'));
    const run = shared.start(['dev', 'work.mjs', '--port', '0']);
    dev = { run, url: await run.until('stdout', READY) };
  });

  afterAll(() => shared.close());

  /** Not by fetch: it would set or refuse some of these headers itself. */
  function statusOf(headers: Record<string, string>, path = '/v2/work/health', method = 'GET') {
    return new Promise<number | undefined>((resolve, reject) => {
      request(dev.url + path, { headers, method }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      })
        .on('error', reject)
        .end();
    });
  }

  it.each([
    ['no special header', {}],
    ['Host: localhost', { Host: 'localhost:8000' }],
    ['Sec-Fetch-Site: none', { 'Sec-Fetch-Site': 'none' }],
    ['any key', { Authorization: 'Bearer rpa_SOME_KEY' }],
  ])('answers a call with %s', async (_, headers) => {
    expect(await statusOf(headers)).toBe(200);
  });

  it.each([
    ['a foreign Host', { Host: 'queue.example.com' }],
    ['a foreign Origin', { Origin: 'https://example.com' }],
    ['the Origin of a file', { Origin: 'null' }],
    ['a cross-site Sec-Fetch-Site', { 'Sec-Fetch-Site': 'cross-site' }],
    ['X-Forwarded-For', { 'X-Forwarded-For': '127.0.0.1' }],
    ['Forwarded', { Forwarded: 'for=127.0.0.1' }],
    ['Via', { Via: '1.1 proxy' }],
  ])('refuses a call with %s', async (_, headers) => {
    expect(await statusOf(headers)).toBe(401);
  });

  it('serves the public runpod-sdk, which insists on a key', async () => {
    const sdk = runpodSdk('rpa_SOME_KEY', { baseUrl: `${dev.url}/runpod/v2` });
    const record = await sdk.endpoint('work')?.runSync({ input: {} });
    expect(record).toMatchObject({ status: 'COMPLETED', output: 'one' });
  });

  it('refuses calls to worker routes', async () => {
    expect(await statusOf({}, '/v2/work/worker/take', 'POST')).toBe(401);
  });
});

it('--cors * is refused where calls need no key', async () => {
  place.write('handlers/work.mjs', version('one'));
  const { code, stderr } = await place.run(['dev', 'handlers', '--port', '0', '--cors', '*']);
  expect([code, stderr]).toEqual([2, expect.stringContaining('--cors: calls from this machine')]);
});

it('requires the printed key for every call on a public address', async () => {
  place.write('handlers/work.mjs', version('one'));
  const dev = await startDev('--host', '0.0.0.0');
  const key = await dev.run.until('stdout', /API key: (\S+)/);
  expect((await fetchChecked(`${dev.url}/v2/work/health`)).status).toBe(401);
  expect(
    await answerOf(createClient({ fetch: fetchChecked, url: dev.url, key, endpoint: 'work' })),
  ).toBe('one');
});

describe('the end of dev', () => {
  it('waits for running jobs, then removes the workers and the temporary folder', async () => {
    place.write('handlers/work.mjs', version('one'));
    const { run, url } = await startDev();
    const client = createClient({ fetch: fetchChecked, url, endpoint: 'work', repeats: 0 });
    const running = client.runsync({ hold: 500 });
    await run.until('stderr', /holding/);
    const { code, stderr } = await run.end('SIGTERM');
    expect(code).toBe(0);
    expect(stderr).toContain('waiting for running jobs');
    expect(await running).toMatchObject({ status: 'COMPLETED' });
    const left = readdirSync(place.temporary).filter((name) => name.startsWith('millrace'));
    expect(left).toEqual([]);
  });

  it('leaves no worker behind after SIGKILL', async () => {
    const tell = `setInterval(() => {}, 1000);\nexport default () => process.pid;`;
    place.write('handlers/work.mjs', tell);
    const dev = await startDev();
    const pid = Number(await answerOf(connect(dev, 'work')));
    await dev.run.end('SIGKILL');
    const isAlive = () => {
      try {
        return process.kill(pid, 0);
      } catch {
        return false;
      }
    };
    await until(() => !isAlive());
  });

  it('keeps the jobs for the next start with --data', async () => {
    place.write('handlers/work.mjs', version('one'));
    const first = await startDev('--data', 'kept');
    const { id } = await connect(first, 'work').runsync({});
    await first.run.end('SIGINT');
    const second = await startDev('--data', 'kept');
    expect(await connect(second, 'work').status(id)).toMatchObject({ output: 'one' });
  });
});
