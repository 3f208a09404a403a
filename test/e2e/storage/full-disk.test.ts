// A platform on a disk that is really full: what it still does, what it refuses, and how it comes back.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { fixture } from '../../support/processes.ts';
import { canMountDisks, SmallDisk } from '../../support/runs/small-disk.ts';
import { until } from '../../support/until.ts';
import { type CommandRun, Workplace } from '../cli/command-run.ts';

let disk: SmallDisk;
let place: Workplace;

interface Served {
  run: CommandRun;
  url: string;
}

async function serve({ reserveMb = 8 } = {}): Promise<Served> {
  const run = place.start([
    ...['serve', '--port', '0', '--data', `${disk.path}/data`, '--endpoint', 'square'],
    ...['--key-file', 'keys', '--disk-reserve', String(reserveMb)],
  ]);
  return { run, url: await run.until('stdout', /is ready at (\S+)\n/) };
}

function readKey(name: 'ADMIN' | 'WORKER'): string {
  return new RegExp(`MILLRACE_${name}_KEY=(\\S+)`).exec(place.read('keys'))?.[1] ?? '';
}

function call({ url }: Served, path: string, body?: object): Promise<Response> {
  return fetchChecked(url + path, {
    headers: { authorization: `Bearer ${readKey('ADMIN')}`, 'content-type': 'application/json' },
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
  });
}

async function readJson(response: Response): Promise<Record<string, unknown>> {
  return JSON.parse(await response.text());
}

async function submit(served: Served, input: object): Promise<string> {
  const { id } = await readJson(await call(served, '/v2/square/run', { input }));
  return String(id);
}

async function readStatus(served: Served, id: string): Promise<unknown> {
  return (await readJson(await call(served, `/v2/square/status/${id}`)))['status'];
}

/** Only a larger job than the free space of the write-ahead log makes the platform notice. */
const LARGE = { text: 'x'.repeat(6_000_000) };

describe.skipIf(!canMountDisks())('a full disk', () => {
  beforeEach(() => {
    disk = SmallDisk.mount(24);
    place = new Workplace();
  });
  afterEach(async () => {
    await place.close();
    disk.unmount();
  });

  it('makes the platform refuse new jobs, but not reads, cancels and purges, until space is free', async () => {
    const served = await serve();
    const [first, second] = [await submit(served, { n: 1 }), await submit(served, { n: 2 })];
    await until(async () => disk.freeBytes < 16 * 1_048_576);
    disk.fill();
    const refused = await call(served, '/v2/square/run', { input: LARGE });
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).not.toBeNull();
    // The reserve is not for new jobs, however small.
    expect((await call(served, '/v2/square/run', { input: {} })).status).toBe(503);
    expect(await readStatus(served, first)).toBe('IN_QUEUE');
    expect((await call(served, `/v2/square/cancel/${first}`, {})).status).toBe(200);
    expect(await readStatus(served, first)).toBe('CANCELLED');
    const purged = await call(served, '/v2/square/purge-queue', {});
    expect(await purged.json()).toEqual({ removed: 1, status: 'completed' });
    expect(await readStatus(served, second)).toBe('CANCELLED');
    const notReady = await call(served, '/readyz');
    expect(notReady.status).toBe(503);
    expect((await readJson(notReady))['detail']).toMatch(/SQLITE_FULL.*\b12 MB/);
    const metrics = await (await call(served, '/metrics')).text();
    expect(metrics).toMatch(/millrace_store_failures_total\{code="SQLITE_FULL"\} 1\n/);
    expect(metrics).toContain('millrace_store_writable 0\n');
    await served.run.until('stderr', /store failed: the disk is full \(SQLITE_FULL\)/);
    disk.empty();
    await until(async () => (await call(served, '/readyz')).status === 200);
    expect((await call(served, '/v2/square/run', { input: {} })).status).toBe(200);
    await served.run.until('stderr', /disk has space again/);
  });

  it('is reported by /readyz even without a reserve', async () => {
    const served = await serve({ reserveMb: 0 });
    disk.fill();
    await until(async () => (await call(served, '/readyz')).status === 503);
    const notReady = await readJson(await call(served, '/readyz'));
    expect(notReady['detail']).toContain('SQLITE_FULL');
    disk.empty();
    await until(async () => (await call(served, '/readyz')).status === 200);
  });

  it('does not prevent a start, and waiting jobs still run', async () => {
    const before = await serve();
    const [first, second] = [await submit(before, { n: 3 }), await submit(before, { n: 4, ms: 0 })];
    await until(async () => disk.freeBytes < 16 * 1_048_576);
    await before.run.end('SIGTERM');
    disk.fill();
    const served = await serve();
    expect(await readStatus(served, first)).toBe('IN_QUEUE');
    expect((await call(served, '/v2/square/run', { input: {} })).status).toBe(503);
    expect((await call(served, '/readyz')).status).toBe(503);
    expect((await call(served, `/v2/square/cancel/${first}`, {})).status).toBe(200);
    const where = ['--url', served.url, '--endpoint', 'square', '--key', readKey('WORKER')];
    place.start(['worker', fixture('square.ts'), ...where]);
    await until(async () => (await readStatus(served, second)) === 'COMPLETED');
    const record = await readJson(await call(served, `/v2/square/status/${second}`));
    expect(record['output']).toEqual({ n: 4, square: 16 });
    expect((await served.run.end('SIGTERM')).code).toBe(0);
  });

  it('loses no acknowledged data, also with kill -9', async () => {
    const before = await serve();
    const first = await submit(before, { n: 5 });
    await until(async () => disk.freeBytes < 16 * 1_048_576);
    disk.fill();
    // The first that finds the disk full.
    expect((await call(before, `/v2/square/cancel/${first}`, {})).status).toBe(200);
    await before.run.end('SIGKILL');
    disk.fill();
    const served = await serve();
    expect(await readStatus(served, first)).toBe('CANCELLED');
    expect((await call(served, '/readyz')).status).toBe(503);
  });
});
