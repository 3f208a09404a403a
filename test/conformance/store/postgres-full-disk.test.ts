// A platform on a Postgres server whose disk is really full.
import { randomBytes } from 'node:crypto';
import { chmodSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { openPlatform } from '../../../src/platform/platform.ts';
import type { RunningPlatform } from '../../../src/platform/running-platform.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { canMountDisks, SmallDisk } from '../../support/runs/small-disk.ts';

const isLeftOut =
  leaveOutWithoutPostgres('test/conformance/store/postgres-full-disk.test.ts') || !canMountDisks();

const WAIT = { timeout: 30_000 };
const jobRef = z.object({ id: z.string() });
const health = z.looseObject({ jobs: z.looseObject({ inQueue: z.number() }) });

describe.skipIf(isLeftOut)('a platform on a Postgres server with a full disk', () => {
  let disk: SmallDisk;
  let server: PostgresServer;
  let platform: RunningPlatform;
  const acknowledged: string[] = [];

  beforeAll(async () => {
    disk = SmallDisk.mount(120);
    // The server runs as another user.
    chmodSync(disk.path, 0o755);
    const settings = { fsync: 'on', full_page_writes: 'on', max_wal_size: '32MB' };
    server = await PostgresServer.start({ settings, parent: disk.path });
    platform = await openPlatform({
      ...{ store: server.url(), storeLimits: { waitMs: 200 } },
      ...{ access: 'keyless-loopback', endpoints: ['square'] },
    });
  });
  afterAll(async () => {
    await platform?.close();
    disk?.empty();
    await server?.stop();
    disk?.unmount();
  });

  const call = (path: string, body?: object) =>
    fetch(platform.url + path, {
      headers: { 'content-type': 'application/json' },
      ...(body && { method: 'POST', body: JSON.stringify(body) }),
    });
  /** @returns the status and the code of the answer */
  const submit = async (input: object): Promise<string> => {
    const answer = await call('/v2/square/run', { input });
    const body: unknown = await answer.json();
    if (answer.ok) acknowledged.push(jobRef.parse(body).id);
    return `${answer.status} ${answer.ok ? '' : z.looseObject({ code: z.string() }).parse(body).code}`;
  };
  const submitLarge = () => submit({ text: randomBytes(50_000).toString('hex') });
  const expectAll = async () => {
    for (const id of acknowledged) {
      const status = await call(`/v2/square/status/${id}`);
      expect(await status.json()).toMatchObject({ id, status: 'IN_QUEUE' });
    }
    const { jobs } = health.parse(await (await call('/v2/square/health')).json());
    expect(jobs.inQueue).toBe(acknowledged.length);
  };

  it('refuses jobs without space, answers reads, and goes on when space is free', async () => {
    for (let n = 0; n < 10; n++) expect(await submitLarge()).toBe('200 ');
    disk.fill();
    await vi.waitFor(async () => expect(await submitLarge()).toBe('503 unavailable'), WAIT);
    await expectAll();
    const ready = await call('/readyz');
    expect(await ready.json()).toMatchObject({
      warnings: ['the database has refused commits: the disk of its server is full (53100)'],
    });
    expect(server.isRunning).toBe(true);
    disk.empty();
    expect(await submitLarge()).toBe('200 ');
    await expectAll();
  });

  it('keeps what it has acknowledged when the write-ahead log fills the disk and ends the server', async () => {
    disk.fill();
    // A call whose commit was under way is answered only when the server is back.
    const held: Promise<string>[] = [];
    const endServer = async () => {
      // Asks for the next segment of the log.
      await server.query('select pg_switch_wal()').catch(() => {});
      held.push(submit({}));
      expect(server.isRunning).toBe(false);
    };
    await vi.waitFor(endServer, WAIT);
    expect(await submit({})).toBe('503 unavailable');
    const ready = await call('/readyz');
    expect(await ready.text()).toContain('no connection to the database: ');
    disk.empty();
    await server.resume();
    await vi.waitFor(async () => expect((await call('/readyz')).status).toBe(200), WAIT);
    expect(['200 ', '503 unavailable']).toEqual(expect.arrayContaining(await Promise.all(held)));
    expect(await submitLarge()).toBe('200 ');
    await expectAll();
  });
});
