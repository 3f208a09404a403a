// `millrace serve` as a process: its keys, its lock, its end, and what a killed one leaves.

import { generateKeyPairSync } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { get } from 'node:https';
import { DatabaseSync } from 'node:sqlite';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ApiError, createClient } from '../../../src/client.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../support/certificates.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { until } from '../../support/until.ts';
import { type CommandRun, Workplace } from './command-run.ts';

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
    'serve',
    '--port',
    '0',
    '--data',
    'data',
    '--endpoint',
    'echo',
    ...args,
  ]);
  return { run, url: await run.until('stdout', /is ready at (\S+)\n/) };
}

async function readKeys(run: CommandRun) {
  const admin = await run.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
  const worker = await run.until('stdout', /MILLRACE_WORKER_KEY=(\S+)\n/);
  return { admin, worker };
}

describe('--max-attempts', () => {
  it('is set for the declared endpoints, and later starts without it keep the value', async () => {
    const first = await serve('--max-attempts', '1');
    const { admin } = await readKeys(first.run);
    const readEndpoint = async ({ url }: Served): Promise<unknown> =>
      (
        await fetchChecked(`${url}/v1/endpoints/echo`, { headers: { authorization: admin } })
      ).json();

    expect(await readEndpoint(first)).toMatchObject({ maxAttempts: 1 });
    await first.run.end('SIGTERM');
    expect(await readEndpoint(await serve())).toMatchObject({ maxAttempts: 1 });
  });
});

describe('keys', () => {
  it('are printed on the first start only', async () => {
    const first = await serve();
    const { admin } = await readKeys(first.run);
    await first.run.end('SIGTERM');
    const second = await serve();
    const client = createClient({
      fetch: fetchChecked,
      url: second.url,
      key: admin,
      endpoint: 'echo',
    });
    expect((await client.health()).jobs.inQueue).toBe(0);
    const { stdout } = await second.run.end('SIGTERM');
    expect(stdout).not.toContain('mr_');
  });

  it('are required even for local calls, and never logged', async () => {
    const { run, url } = await serve('--log-level', 'trace');
    const { admin, worker } = await readKeys(run);
    await createClient({ fetch: fetchChecked, url, key: admin, endpoint: 'echo' }).health();
    const refused = createClient({ fetch: fetchChecked, url, endpoint: 'echo' }).health();
    await expect(refused).rejects.toThrow(ApiError);
    await expect(refused).rejects.toMatchObject({ status: 401 });
    const { code, stderr } = await run.end('SIGTERM');
    expect(code).toBe(0);
    expect(stderr).not.toContain(admin);
    expect(stderr).not.toContain(worker);
  });

  it('are written to the key file, readable by its owner only, and read from it', async () => {
    const first = await serve('--key-file', 'keys');
    expect((await first.run.end('SIGTERM')).stdout).not.toContain('mr_');
    expect((await stat(place.path('keys'))).mode & 0o777).toBe(0o600);
    const admin = /MILLRACE_ADMIN_KEY=(\S+)/.exec(await readFile(place.path('keys'), 'utf8'))?.[1];
    const second = await serve('--key-file', 'keys');
    await createClient({
      fetch: fetchChecked,
      url: second.url,
      key: admin,
      endpoint: 'echo',
    }).health();
  });
});

describe('the data folder', () => {
  it('belongs to one process: a second one exits with 1 and names the first', async () => {
    const { run } = await serve();
    const second = await place.run(['serve', '--port', '0', '--data', 'data']);
    expect(second).toMatchObject({ code: 1, stdout: '' });
    expect(second.stderr).toContain(`is in use by another process (pid ${run.child.pid})`);
  });

  it('is unlocked after kill -9, with every acknowledged job and key', async () => {
    const first = await serve();
    const { admin } = await readKeys(first.run);
    const submitted = await createClient({
      fetch: fetchChecked,
      url: first.url,
      key: admin,
      endpoint: 'echo',
    }).run({});
    await first.run.end('SIGKILL');
    const second = await serve();
    const client = createClient({
      fetch: fetchChecked,
      url: second.url,
      key: admin,
      endpoint: 'echo',
    });
    expect(await client.status(submitted.id)).toMatchObject({ status: 'IN_QUEUE' });
  });

  it('is refused with exit code 1 if a newer version wrote it', async () => {
    await (await serve()).run.end('SIGTERM');
    const database = new DatabaseSync(place.path('data/millrace.db'));
    const version = database.prepare('pragma user_version').get();
    expect(version).toMatchObject({ user_version: expect.any(Number) });
    database.exec('pragma user_version = 9999');
    database.close();
    const refused = await place.run(['serve', '--port', '0', '--data', 'data']);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('9999');
    expect(refused.stderr).not.toContain('    at ');
  });

  it('is refused with exit code 1 if it is a file', async () => {
    place.write('file', '');
    const refused = await place.run(['serve', '--port', '0', '--data', 'file']);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/--data: .*file cannot be used/);
  });
});

describe('the address', () => {
  it('is reported with exit code 1 if it is in use, and the data folder is unlocked', async () => {
    const { url } = await serve();
    const { port } = new URL(url);
    const refused = await place.run(['serve', '--port', port, '--data', 'other']);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(`--port: ${port} on 127.0.0.1 is in use`);
  });

  it('is reported with exit code 1 if this machine does not have it', async () => {
    const refused = await place.run(['serve', '--host', '192.0.2.1', '--port', '0']);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('--host: 192.0.2.1 is not an address of this machine');
  });

  it('may come from the environment', async () => {
    const env = { MILLRACE_PORT: '0', MILLRACE_DATA: 'from-env', MILLRACE_ENDPOINTS: 'a,b' };
    const run = place.start(['serve'], { env });
    expect(await run.until('stdout', /Endpoints: (.*)\n/)).toBe('a, b');
    expect((await stat(place.path('from-env'))).isDirectory()).toBe(true);
  });
});

describe('SIGUSR1', () => {
  it('opens no debugger, although scripts that rotate logs send it', async () => {
    const { run, url } = await serve();
    run.child.kill('SIGUSR1');
    const { status } = await fetchChecked(`${url}/healthz`);
    expect(status).toBe(200);
    const { code, stderr } = await run.end('SIGTERM');
    expect(code).toBe(0);
    expect(stderr).not.toContain('Debugger');
  });
});

describe('shutdown', () => {
  it('follows SIGINT, with exit code 0', async () => {
    const { run } = await serve();
    expect(await run.end('SIGINT')).toMatchObject({ code: 0 });
  });

  it('lets clients leave for --shutdown-delay-ms, which a second signal ends', async () => {
    const { run, url } = await serve('--shutdown-delay-ms', '3600000');
    const ended = run.end('SIGTERM');
    const readStatus = async (path: string) => (await fetchChecked(`${url}${path}`)).status;
    await expect.poll(() => readStatus('/readyz'), { timeout: 30_000 }).toBe(503);
    // The platform takes a signal within a second for a repetition.
    await sleep(1_100);
    expect(await readStatus('/healthz')).toBe(200);
    run.child.kill('SIGTERM');
    expect(await ended).toMatchObject({ code: 0 });
  });

  it('answers a waiting runsync and a waiting stream first', async () => {
    const { run, url } = await serve();
    const { admin } = await readKeys(run);
    const client = createClient({
      fetch: fetchChecked,
      url,
      key: admin,
      endpoint: 'echo',
      repeats: 0,
    });
    const { id } = await client.run({});
    const sync = client.runsync({ sync: true });
    const streamed = fetchChecked(`${url}/v2/echo/stream/${id}?wait=300000`, {
      headers: { authorization: `Bearer ${admin}` },
    });
    await until(async () => (await client.health()).jobs.inQueue >= 2, { everyMs: 50 });
    const ended = run.end('SIGTERM');
    expect(await sync).toMatchObject({ status: 'IN_QUEUE' });
    expect(await (await streamed).json()).toEqual([]);
    expect((await ended).code).toBe(0);
  });
});

describe('a certificate', () => {
  const tls = ['--tls-cert', 'cert.pem', '--tls-key', 'key.pem'];

  beforeEach(() => {
    place.write('cert.pem', CERTIFICATE);
    place.write('key.pem', CERTIFICATE_KEY);
  });

  it('enables HTTPS', async () => {
    const { url } = await serve(...tls);
    expect(url).toMatch(/^https:/);
    const body = await new Promise((resolve, reject) => {
      const options = { ca: CERTIFICATE };
      get(`${url}/healthz`, options, (answer) => resolve(text(answer))).on('error', reject);
    });
    expect(body).toContain('"ok"');
  });

  it('is accepted by workers that trust it', async () => {
    const { run, url } = await serve(...tls);
    const { worker } = await readKeys(run);
    place.write('echo.mjs', 'export default (job) => job.input;');
    const where = ['--url', url, '--endpoint', 'echo', '--key', worker];
    const trusting = place.start(['worker', 'echo.mjs', ...where, '--ca', 'cert.pem']);
    await trusting.until('stderr', /worker ready/);
    const other = place.start(['worker', 'echo.mjs', ...where]);
    await other.until('stderr', /the platform is unavailable.*certificate/);
  });

  it('is refused with the name of the option if it does not match its key', async () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    place.write('key.pem', String(privateKey.export({ type: 'pkcs8', format: 'pem' })));
    const { code, stderr } = await place.run(['serve', '--port', '0', '--data', 'data', ...tls]);
    expect(code).toBe(2);
    expect(stderr).toContain('--tls-key: key.pem is not the key of the certificate in cert.pem');
  });

  it('is refused with the name of the option if it is not a PEM file', async () => {
    place.write('cert.pem', 'none');
    const { code, stderr } = await place.run(['serve', '--port', '0', ...tls]);
    expect(code).toBe(2);
    expect(stderr).toContain('--tls-cert: cert.pem is not a PEM file');
  });
});
