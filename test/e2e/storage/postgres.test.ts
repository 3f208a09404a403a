// A platform on a Postgres database: what it has acknowledged outlives its processes, its connection and the server.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { PostgresProxy } from '../../support/network/postgres-proxy.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { chooseSeed } from '../../support/random.ts';
import { runUnderKills } from '../../support/runs/kill-run.ts';
import { until } from '../../support/until.ts';

const jobRef = z.object({ id: z.string() });

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/postgres.test.ts');

describe.skipIf(isLeftOut)('a platform on Postgres', () => {
  let server: PostgresServer;
  let proxy: PostgresProxy;

  beforeAll(async () => {
    server = await PostgresServer.start({ settings: { fsync: 'on', full_page_writes: 'on' } });
    proxy = await PostgresProxy.start(server.port);
  });
  afterAll(async () => {
    await proxy?.close();
    await server?.stop();
  });

  it('ends 60 jobs once with the right result while everything is killed and cut', async () => {
    const seed = chooseSeed(1);
    const store = proxy.redirect(await server.createDatabase());
    const cutAt = (fault: 'before' | 'after') => async () => {
      proxy.fault = fault;
      // A platform whose first commit is cut ends, as it should.
      await until(() => proxy.fault === undefined);
    };
    const end = (how: 'crash' | 'kill') => async () => {
      await server[how]();
      await server.resume();
    };
    const { kills, repeated, ...result } = await runUnderKills({
      ...{ jobs: 60, kills: 6, limitMs: 200_000, seed },
      platformArgs: ['--store', store],
      faults: [cutAt('after'), end('crash'), cutAt('before'), end('kill')],
    });
    console.log(`SEED=${seed}: ${JSON.stringify(kills)}, ${proxy.struck} commits cut`);
    expect(proxy.struck).toBeGreaterThan(0);
    expect(repeated).toBeGreaterThan(0);
    expect(result).toEqual({ acknowledged: 60, wrong: [], changed: [], exitCodes: [0, 0] });
  });

  it('says why it is not ready while the database is away, and goes on afterwards', async () => {
    const store = await server.createDatabase();
    const platform = await PlatformProcess.start({
      endpoints: ['square'],
      args: ['--store', store],
    });
    try {
      const submitted = await platform.post('/v2/square/run', { input: { n: 1 } });
      const { id } = jobRef.parse(await submitted.json());
      const metrics = await (await platform.fetch('/metrics')).text();
      const bytes = /^millrace_store_bytes\{file="database"\} (\d+)$/m.exec(metrics)?.[1];
      expect(Number(bytes)).toBeGreaterThan(100_000);
      expect(metrics).not.toContain('file="wal"');
      await server.crash();
      const away = await platform.fetch('/readyz');
      expect(away.status).toBe(503);
      expect(await away.json()).toMatchObject({
        detail:
          'no connection to the database: no server listens there; start it, or check host and port (ECONNREFUSED)',
      });
      expect(await (await platform.fetch('/metrics')).text()).toContain(
        'millrace_store_writable 0\n',
      );
      await server.resume();
      await until(async () => (await platform.fetch('/readyz')).status === 200, { everyMs: 50 });
      const job = await (await platform.fetch(`/v2/square/status/${id}`)).text();
      expect(job).toContain('"status":"IN_QUEUE"');
    } finally {
      await platform.close();
    }
  });
});
