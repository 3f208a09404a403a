import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { readPostgresUrl } from '../../../../src/store/postgres/connection-url.ts';
import { CERTIFICATE } from '../../../support/certificates.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-url-'));
const ca = join(folder, 'root.crt');
writeFileSync(ca, CERTIFICATE);
afterAll(() => rmSync(folder, { recursive: true }));

describe('the URL of a Postgres database', () => {
  it('has all parts', () => {
    const url = 'postgres://ada:p%40ss@db.example.com:6432/jobs?search_path=mill&sslmode=disable';
    expect(readPostgresUrl(url, 'other')).toEqual({
      host: 'db.example.com',
      port: 6432,
      user: 'ada',
      database: 'jobs',
      password: 'p@ss',
      schema: 'mill',
      tls: expect.any(Function),
      mayBePlain: true,
      name: 'postgres://ada@db.example.com:6432/jobs',
    });
  });

  it('has defaults, and the password from elsewhere', () => {
    expect(readPostgresUrl('postgresql://', 'secret')).toMatchObject({
      host: 'localhost',
      port: 5432,
      user: 'postgres',
      database: 'postgres',
      password: 'secret',
      schema: 'public',
      mayBePlain: true,
    });
  });

  it.each([
    [
      'postgres:///jobs?host=/run/postgresql',
      '/run/postgresql',
      'postgres://postgres@/run/postgresql/jobs',
    ],
    ['postgres://ada@/jobs?host=/run', '/run', 'postgres://ada@/run/jobs'],
    ['postgres://ada:p%40ss@:6000/jobs?host=/run', '/run', 'postgres://ada@/run/jobs'],
    ['postgres://%2Frun/jobs', '/run', 'postgres://postgres@/run/jobs'],
    ['postgres://:6000/jobs', 'localhost', 'postgres://postgres@localhost:6000/jobs'],
    ['postgres://[::1]:6000/jobs', '::1', 'postgres://postgres@[::1]:6000/jobs'],
  ])('%s names the host %s', (url, host, name) => {
    expect(readPostgresUrl(url)).toMatchObject({ host, name });
  });

  it.each([
    ['prefer', { rejectUnauthorized: false }, true],
    ['require', { rejectUnauthorized: false }, false],
    ['verify-full', { rejectUnauthorized: true }, false],
    ['verify-ca', { rejectUnauthorized: true, checkServerIdentity: expect.any(Function) }, false],
    [`verify-full&sslrootcert=${ca}`, { rejectUnauthorized: true, ca: CERTIFICATE }, false],
    [
      `require&sslrootcert=${ca}`,
      { rejectUnauthorized: true, ca: CERTIFICATE, checkServerIdentity: expect.any(Function) },
      false,
    ],
  ])('sslmode %s', (mode, tls, mayBePlain) => {
    const target = readPostgresUrl(`postgres://h/d?sslmode=${mode}`);
    expect(target).toMatchObject({ mayBePlain });
    expect(target.tls()).toEqual(tls);
  });

  it('reads the root certificate anew for each connection', () => {
    const path = join(folder, 'renewed.crt');
    const copy = (text: string) => writeFileSync(path, text);
    copy(CERTIFICATE);
    const { tls } = readPostgresUrl(`postgres://h/d?sslmode=verify-full&sslrootcert=${path}`);
    const renewed = `${CERTIFICATE}\n${CERTIFICATE}`;
    copy(renewed);
    expect(tls()).toEqual({ rejectUnauthorized: true, ca: renewed });
    copy('half a certif');
    expect(tls()).toEqual({ rejectUnauthorized: true, ca: renewed });
  });

  it.each([
    ['mysql://h/d', 'must look like postgres://'],
    ['jobs', 'must look like postgres://'],
    ['postgres://h/d?sslmode=allow', 'unknown sslmode; use disable, prefer, require'],
    ['postgres://h/d?schema=x', 'unknown parameter schema; use host,'],
    ['postgres://h/d?search_path=a,b', 'search_path that is not one name'],
    ['postgres://h/d?port=99999', 'port that is not a number'],
    ['postgres://h/d%', '% that no two'],
    ['postgres://h/d?sslmode=verify-ca&sslrootcert=/none', 'sslrootcert that cannot be read'],
    [
      `postgres://h/d?sslmode=verify-ca&sslrootcert=${import.meta.filename}`,
      'sslrootcert that has no certificate in PEM: /',
    ],
  ])('%s is refused', (url, problem) => {
    expect(() => readPostgresUrl(url)).toThrow(problem);
  });
});
