// The database files of a platform: damage is found and named, deletions are erased, copies can be restored.
import { cpSync, existsSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { until } from '../../support/until.ts';
import { type CommandRun, Workplace } from '../cli/command-run.ts';

let place: Workplace;

beforeEach(() => {
  place = new Workplace();
});
afterEach(() => place.close());

interface Served {
  run: CommandRun;
  url: string;
}

async function serve(...args: string[]): Promise<Served> {
  const run = place.start([
    ...['serve', '--port', '0', '--data', 'data', '--endpoint', 'echo'],
    ...['--key-file', 'keys', '--disk-reserve', '0', ...args],
  ]);
  return { run, url: await run.until('stdout', /is ready at (\S+)\n/) };
}

function call({ url }: Served, path: string, method = 'GET', body?: object): Promise<Response> {
  const key = /MILLRACE_ADMIN_KEY=(\S+)/.exec(place.read('keys'))?.[1] ?? '';
  return fetchChecked(url + path, {
    method,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
}

async function submit(served: Served, text: string): Promise<string> {
  const answer = await call(served, '/v2/echo/run', 'POST', { input: { text } });
  return String(JSON.parse(await answer.text()).id);
}

function has(text: string): boolean {
  const files = ['data/millrace.db', 'data/millrace.db-wal'].map((name) => place.path(name));
  return files.filter(existsSync).some((file) => readFileSync(file).includes(text));
}

/** Overwrites pages in the middle of the file, where nothing is read at the start. */
function damage(): void {
  const path = place.path('data/millrace.db');
  const bytes = readFileSync(path);
  const at = bytes.lastIndexOf('damage-me');
  bytes.fill(0xee, Math.floor(at / 4_096) * 4_096 - 8_192, Math.floor(at / 4_096) * 4_096 + 4_096);
  writeFileSync(path, bytes);
}

describe('damaged pages', () => {
  let origin: Workplace;

  beforeAll(async () => {
    origin = new Workplace();
    place = origin;
    const before = await serve();
    for (let i = 0; i < 3; i++) await submit(before, 'damage-me'.repeat(5_000));
    await before.run.end('SIGTERM');
    damage();
  });

  afterAll(() => origin.close());

  function copyDamaged(): void {
    for (const name of ['data', 'keys']) {
      cpSync(origin.path(name), place.path(name), { recursive: true });
    }
  }

  it('are detected after the start, and reported in the log and by /readyz', async () => {
    copyDamaged();
    const served = await serve();
    const line = await served.run.until('stderr', /.*the database is damaged.*/);
    expect(line).toContain('millrace store check');
    const ready = await call(served, '/readyz');
    expect(ready.status).toBe(200);
    expect(await ready.text()).toContain(
      'the database is damaged, or files of large inputs or outputs are missing; run `millrace store check`',
    );
  });

  it('are not detected with --store-check-ms 0', async () => {
    copyDamaged();
    const served = await serve('--store-check-ms', '0');
    await sleep(500);
    expect((await served.run.end('SIGTERM')).stderr).not.toContain('damaged');
  });

  it.each([[[]], [['--quick']]])('are listed by store check %s, with exit code 1', async (more) => {
    copyDamaged();
    const checked = await place.run(['store', 'check', '--data', 'data', ...more]);
    expect(checked.code).toBe(1);
    expect(checked.stdout).not.toBe('');
    expect(checked.stderr).toContain('is damaged. Stop the platform');
    const json = await place.run(['store', 'check', '--data', 'data', '--json', ...more]);
    expect(JSON.parse(json.stdout)).toMatchObject({ isSound: false, problems: expect.any(Array) });
  });

  it('prevent the start and the check with a remedy, if they are in the header', async () => {
    await (await serve()).run.end('SIGTERM');
    const bytes = readFileSync(place.path('data/millrace.db'));
    bytes.fill(0xee, 0, 64);
    writeFileSync(place.path('data/millrace.db'), bytes);
    const refused = await place.run(['serve', '--port', '0', '--data', 'data']);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/--data: .*the database is damaged \(SQLITE_NOTADB\)/);
    expect(refused.stderr).not.toContain('    at ');
    const checked = await place.run(['store', 'check', '--data', 'data']);
    expect(checked).toMatchObject({ code: 1 });
    expect(checked.stdout).toContain('SQLITE_NOTADB');
  });
});

describe('an empty or missing database beside a write-ahead log', () => {
  it.each(['empty', 'missing'])(
    'prevents the start if it is %s, and the log is kept',
    async (how) => {
      const before = await serve('--erase-after-ms', '3600000');
      await submit(before, 'precious');
      await before.run.end('SIGKILL');
      const [file, log] = [place.path('data/millrace.db'), place.path('data/millrace.db-wal')];
      const bytes = readFileSync(file);
      const logBytes = statSync(log).size;
      if (how === 'empty') truncateSync(file, 0);
      else place.remove('data/millrace.db');
      const refused = await place.run(['serve', '--port', '0', '--data', 'data']);
      expect(refused.code).toBe(1);
      expect(refused.stderr).toContain(`its write-ahead log ${log} holds ${logBytes} bytes`);
      expect(statSync(log).size).toBe(logBytes);
      writeFileSync(file, bytes);
      const served = await serve();
      expect(await (await call(served, '/v2/echo/health')).text()).toContain('"inQueue":1');
    },
  );
});

describe('millrace store', () => {
  it('checks, describes and backs up a database that a platform uses; the copy can be restored', async () => {
    const served = await serve();
    const id = await submit(served, 'kept');
    const checked = await place.run(['store', 'check', '--data', 'data']);
    expect(checked).toMatchObject({ code: 0 });
    expect(checked.stdout).toContain('no damage found');
    const info = await place.run(['store', 'info', '--data', 'data', '--json']);
    expect(JSON.parse(info.stdout)).toMatchObject({
      pageBytes: 4_096,
      rows: { job: 1, endpoint: 1, api_key: 2 },
      jobs: { IN_QUEUE: 1 },
    });
    const shown = await place.run(['store', 'info', '--data', 'data']);
    expect(shown.stdout).toContain('1: 1 IN_QUEUE');
    expect(await place.run(['store', 'backup', 'copy.db', '--data', 'data'])).toMatchObject({
      code: 0,
    });
    expect(statSync(place.path('copy.db')).mode & 0o777).toBe(0o600);
    const again = await place.run(['store', 'backup', 'copy.db', '--data', 'data']);
    expect(again).toMatchObject({ code: 1, stdout: '' });
    expect(again.stderr).toContain('copy.db exists already');
    await served.run.end('SIGTERM');
    writeFileSync(place.path('data/millrace.db'), readFileSync(place.path('copy.db')));
    const restored = await serve();
    const found = await (await call(restored, `/v2/echo/status/${id}`)).text();
    expect(found).toContain('IN_QUEUE');
  });

  it('names missing and invalid options', async () => {
    const missing = await place.run(['store', 'check', '--data', 'none']);
    expect(missing.code).toBe(1);
    expect(missing.stderr).toContain('none/millrace.db does not exist');
    expect(existsSync(place.path('none'))).toBe(false);
    for (const args of [[], ['fly'], ['backup'], ['check', 'more']]) {
      expect(await place.run(['store', ...args])).toMatchObject({ code: 2, stdout: '' });
    }
  });
});

describe('deleted data', () => {
  it.each(['expiry', 'purge', 'deletion of the endpoint'])(
    'is gone from the files of an idle platform after %s',
    async (how) => {
      const fast = ['--erase-after-ms', '100', '--retain-run-ms', '1'];
      const served = await serve(...fast);
      const id = await submit(served, `secret-${'x'.repeat(20_000)}-end`);
      expect(has('secret-xxx')).toBe(true);
      if (how === 'purge') await call(served, '/v2/echo/purge-queue', 'POST');
      else if (how === 'expiry') await call(served, `/v2/echo/cancel/${id}`, 'POST');
      else await call(served, '/v1/endpoints/echo', 'DELETE');
      await until(() => !(has('secret-xxx') || has('xxx-end')), { everyMs: 50 });
    },
  );
});
