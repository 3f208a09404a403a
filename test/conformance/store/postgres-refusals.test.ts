// The Postgres servers that a platform refuses, with the message that the operator reads; and TLS to a server.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { explainPlatformError } from '../../../src/cli/options/platform-option.ts';
import { storeOptions } from '../../../src/cli/options/store-options.ts';
import { openPlatform } from '../../../src/platform/platform.ts';
import { Session } from '../../../src/store/postgres/session.ts';
import { Authority } from '../../support/certificates.ts';
import { findFreePort } from '../../support/network/free-port.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';

const isLeftOut = leaveOutWithoutPostgres('test/conformance/store/postgres-refusals.test.ts');

describe.skipIf(isLeftOut)('a platform on Postgres', () => {
  let server: PostgresServer;

  beforeAll(async () => {
    // Three of the connections are for superusers.
    server = await PostgresServer.start({ settings: { max_connections: '12' } });
  });
  afterAll(() => server?.stop());
  afterEach(() => vi.restoreAllMocks());

  /** Starts a platform and ends it. @returns what `check` returns, or the message for the operator */
  async function start(store: string, storePassword?: string, check = async () => 'started') {
    try {
      const storeLimits = { lockWaitMs: 300, statementTimeoutMs: 2_000, connectTimeoutMs: 5_000 };
      const platform = await openPlatform({ store, storePassword, storeLimits });
      return await check().finally(() => platform.close());
    } catch (error) {
      return String(explainPlatformError(error, storeOptions));
    }
  }

  const withUser = (user: string) => server.url().replace('postgres@', `${user}@`);

  describe('is refused with a clear error', () => {
    it('if no server listens', async () => {
      expect(await start('postgres://127.0.0.1:1/jobs')).toBe(
        'CommandError: --store: postgres://postgres@127.0.0.1:1/jobs cannot be used: ' +
          'no server listens there; start it, or check host and port (ECONNREFUSED)',
      );
    });

    it('if the database does not exist', async () => {
      expect(await start(server.url('none'))).toContain('the database does not exist; create it');
    });

    it('if the password is missing or wrong', async () => {
      await server.addUser('ada', 'right-one');
      const url = withUser('ada');
      expect(await start(url)).toContain('the server asks for a password; give one');
      const wrong = await start(url, 'wrong-one');
      expect(wrong).toContain('the server refuses the password; check it (28P01)');
      expect(wrong).not.toContain('wrong-one');
      const own = `${url}&search_path=own`;
      expect(await start(own, 'right-one')).toContain('the user may not create the schema');
    });

    it('if the server is older than version 15', async () => {
      const { execute } = Session.prototype;
      vi.spyOn(Session.prototype, 'execute').mockImplementation(function (this: Session, sql) {
        return execute.call(this, sql.replace("current_setting('server_version_num')", "'140022'"));
      });
      expect(await start(server.url())).toContain(
        'cannot be used: the server is Postgres 14; use Postgres 15 or later',
      );
    });

    it('if a newer version has written the database', async () => {
      const url = `${server.url()}&search_path=newer`;
      expect(await start(url)).toBe('started');
      await server.query('update newer.schema_version set version = 999, oldest = 998');
      expect(await start(url)).toContain('The database has schema version 999');
    });

    it('if another program has a table of the same name', async () => {
      const url = `${server.url()}&search_path=taken`;
      await server.query('create schema taken; create table taken.job (id text)');
      expect(await start(url)).toContain(
        'cannot be used: the database has tables of another program, and none of millrace; use an empty one',
      );
    });

    it('if the database is read-only', async () => {
      const url = await server.createDatabase();
      const name = new URL(url).pathname.slice(1);
      await server.query(`alter database ${name} set default_transaction_read_only = on`);
      expect(await start(url)).toContain('the database is read-only; use the primary server');
    });

    it('if the server is a standby, until it is the primary', async () => {
      await server.demote();
      expect(await start(server.url())).toContain('the database is read-only; use the primary');
      await server.promote();
      expect(await start(server.url())).toBe('started');
    });

    it('if another platform uses the database, or a program has locked a table', async () => {
      const url = server.url();
      expect(await start(url, undefined, () => start(url))).toMatch(
        /another platform uses postgres:\/\/postgres@127\.0\.0\.1:\d+\/postgres \(schema public\)/,
      );
      const other = new Client({ connectionString: url });
      await other.connect();
      await other.query('begin; lock table last_commit');
      expect(await start(url)).toContain(
        'cannot be used: a statement took too long; look for locks of other programs',
      );
      await other.end();
    });

    it('if the server has no connection left, for the user or for all', async () => {
      await server.query('create role bob login connection limit 0');
      await server.query('create role cora login');
      expect(await start(withUser('bob'))).toContain('the server has no connection left');
      const others: Client[] = [];
      const occupy = async (connectionString: string) => {
        const client = new Client({ connectionString });
        client.on('error', () => {});
        await client.connect();
        others.push(client);
      };
      while ((await occupy(withUser('cora')).catch(String)) === undefined);
      expect(await start(withUser('cora'))).toContain('the server has no connection left; raise');
      while ((await occupy(server.url()).catch(String)) === undefined);
      expect(others).toHaveLength(12);
      expect(await start(server.url())).toContain('the server has no connection left; raise');
      await Promise.all(others.map((client) => client.end()));
      await vi.waitFor(async () => expect(await start(server.url())).toBe('started'));
    });

    it('if TLS is required and the server has none', async () => {
      const url = server.url().replace('sslmode=disable', 'sslmode=require');
      expect(await start(url)).toContain(
        'the server does not offer TLS; enable it there, or use sslmode=disable in a network that you trust',
      );
    });
  });

  it('ends a statement after its maximum time also as a node', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-node-'));
    const store = await server.createDatabase();
    const platform = await openPlatform({
      ...{ store, storeLimits: { statementTimeoutMs: 300 }, endpoints: ['square'] },
      nodes: {
        url: `http://127.0.0.1:${await findFreePort()}`,
        ...{ secrets: ['s'.repeat(32)], shards: 1 },
      },
      ...{ access: 'keyless-loopback', webhooks: { secretFile: join(folder, 'webhook-secrets') } },
    });
    const other = new Client({ connectionString: store });
    try {
      await other.connect();
      await other.query('begin; lock table job');
      const answer = await fetch(`${platform.url}/v2/square/run`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ input: {} }),
        // Long before the default limit.
        signal: AbortSignal.timeout(15_000),
      });
      expect(answer.status).toBe(503);
    } finally {
      await other.end();
      await platform.close();
      rmSync(folder, { recursive: true });
    }
  });

  describe('over TLS', () => {
    let authority: Authority;
    let other: Authority;

    beforeAll(async () => {
      authority = new Authority();
      other = new Authority();
      await server.enableTls(authority.sign('localhost'));
    });
    afterAll(() => {
      for (const each of [authority, other]) each?.remove();
    });

    interface Tls {
      mode: string;
      ca?: Authority;
      host?: string;
      user?: string;
    }

    function write({ ca, host = 'localhost', mode, user = 'postgres' }: Tls): string {
      const url = new URL(server.url().replace('127.0.0.1', host).replace('postgres@', `${user}@`));
      url.searchParams.set('sslmode', mode);
      if (ca) url.searchParams.set('sslrootcert', ca.path);
      return url.href;
    }

    /** Whether the platform's connection is encrypted; or why there is none. */
    const connect = (tls: Tls, password?: string) =>
      start(write(tls), password, () =>
        server.query(`select case when ssl then 'encrypted' else 'plain' end
          from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'millrace'`),
      );

    it.each([
      ['disable', 'plain'],
      ['prefer', 'encrypted'],
      ['require', 'encrypted'],
    ])('does not check the server with sslmode=%s: %s', async (mode, expected) => {
      expect(await connect({ mode })).toBe(expected);
      expect(await connect({ mode, host: '127.0.0.1' })).toBe(expected);
    });

    it('accepts any host name with verify-ca, that of the certificate with verify-full', async () => {
      const ca = authority;
      expect(await connect({ mode: 'verify-ca', ca })).toBe('encrypted');
      expect(await connect({ mode: 'verify-ca', ca, host: '127.0.0.1' })).toBe('encrypted');
      expect(await connect({ mode: 'require', ca, host: '127.0.0.1' })).toBe('encrypted');
      expect(await connect({ mode: 'verify-full', ca })).toBe('encrypted');
      expect(await connect({ mode: 'verify-full', ca, host: '127.0.0.1' })).toContain(
        "cannot be used: the server's certificate is for another host; use the host name of the certificate, " +
          'or sslmode=verify-ca (ERR_TLS_CERT_ALTNAME_INVALID)',
      );
    });

    it.each([
      ['require', 'of another authority'],
      ['verify-ca', 'of another authority'],
      ['verify-full', 'of another authority'],
      ['verify-ca', 'of Node.js'],
      ['verify-full', 'of Node.js'],
    ])('refuses with %s a certificate that those %s did not sign', async (mode, of) => {
      const ca = of === 'of Node.js' ? {} : { ca: other };
      expect(await connect({ mode, ...ca })).toContain(
        "cannot be used: no trusted authority has signed the server's certificate; name the authority's file with " +
          'sslrootcert (',
      );
    });

    it('refuses a file that has no certificate', async () => {
      const url = new URL(write({ mode: 'verify-full' }));
      url.searchParams.set('sslrootcert', import.meta.filename);
      expect(await start(url.href)).toMatch(/sslrootcert that has no certificate/);
    });

    it('asks for a password, and for TLS where the server insists on it', async () => {
      await server.addUser('dora', 'secret-one', 'tls');
      const user = 'dora';
      const plain = await connect({ mode: 'disable', user }, 'secret-one');
      expect(plain).toContain('the server refuses this user; check the user, the database');
      const encrypted = await connect({ mode: 'require', user }, 'wrong-one');
      expect(encrypted).toContain('the server refuses the password; check it');
    });
  });
});
