// Names resolved against a real DNS server on loopback, a hosts file and search domains.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  createNameResolver,
  listCandidates,
  type NameResolverOptions,
  parseHosts,
  parseSearchRules,
} from '../../../../src/base/net/name-resolver.ts';
import { startNameServer } from '../../../support/network/name-server.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-names-'));
afterAll(() => rmSync(folder, { recursive: true }));
const missing = join(folder, 'missing');

function resolve(name: string, options: NameResolverOptions): Promise<string[]> {
  const lookUp = createNameResolver({ hostsPath: missing, searchPath: missing, ...options });
  return new Promise((done, fail) => {
    lookUp(name, { all: true }, (error, addresses) => {
      if (error) fail(error);
      else done(addresses.map(({ address }) => address));
    });
  });
}

function write(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

describe('a name', () => {
  it('is resolved by the name servers', async () => {
    await using server = await startNameServer({ records: { 'hooks.example': '192.0.2.7' } });
    expect(await resolve('Hooks.Example', { servers: [server.address] })).toEqual(['192.0.2.7']);
  });

  it('is an error if it is unknown', async () => {
    await using server = await startNameServer();
    const servers = [server.address];
    await expect(resolve('no.example', { servers })).rejects.toMatchObject({ code: 'ENOTFOUND' });
  });

  it('fails at the deadline if its server is silent, and delays no other name', async () => {
    const silent = Array.from({ length: 100 }, (_, number) => `n${number}.silent.example`);
    const records = { 'hooks.example': '192.0.2.7' };
    await using server = await startNameServer({ records, silent });
    const options = { servers: [server.address], timeoutMs: 2_000 };
    const waiting = silent.map((name) =>
      resolve(name, options).catch((error: Error) => error.name),
    );
    let ended = 0;
    for (const each of waiting) void each.then(() => ended++);
    expect(await resolve('hooks.example', options)).toEqual(['192.0.2.7']);
    expect(ended).toBe(0);
    expect(new Set(await Promise.all(waiting))).toEqual(new Set(['NameTimeoutError']));
  });

  it('is never queried if the hosts file has it; changes of the file count', async () => {
    await using server = await startNameServer();
    const hostsPath = write('hosts', '192.0.2.1 printer.example printer # upstairs\n::5 printer\n');
    const options = { servers: [server.address], hostsPath };
    expect(await resolve('PRINTER', options)).toEqual(['192.0.2.1', '::5']);
    expect(await resolve('printer.example.', options)).toEqual(['192.0.2.1']);
    expect(server.asked).toEqual([]);
  });

  it.each(['localhost', 'api.localhost'])('is loopback: %s', async (name) => {
    expect(await resolve(name, { servers: ['127.0.0.1:1'] })).toEqual(['127.0.0.1', '::1']);
  });

  it('is completed with the search domains', async () => {
    const records = { 'hooks.prod.svc.example': '192.0.2.8' };
    await using server = await startNameServer({ records });
    const searchPath = write('resolv', 'search svc.example prod.svc.example\noptions ndots:2\n');
    const options = { servers: [server.address], searchPath };
    expect(await resolve('hooks', options)).toEqual(['192.0.2.8']);
    expect(server.asked).toEqual(['hooks.svc.example', 'hooks.prod.svc.example']);
  });
});

describe('the queried names', () => {
  const rules = { search: ['a.example', 'b.example'], ndots: 2 };

  it.each([
    ['short', ['short.a.example', 'short.b.example', 'short']],
    ['one.dot', ['one.dot.a.example', 'one.dot.b.example', 'one.dot']],
    [
      'two.dots.example',
      ['two.dots.example', 'two.dots.example.a.example', 'two.dots.example.b.example'],
    ],
    ['complete.', ['complete.']],
  ])('for %s', (name, expected) => {
    expect(listCandidates(name, rules)).toEqual(expected);
  });
});

describe('the files', () => {
  it('are read leniently', () => {
    expect([...parseHosts('\n# no\nnonsense host\n127.0.0.1\tA b#c\n')]).toEqual([
      ['a', ['127.0.0.1']],
      ['b', ['127.0.0.1']],
    ]);
    expect(
      parseSearchRules('domain one.example\nsearch Two.example .\noptions ndots:99 x'),
    ).toEqual({
      search: ['two.example'],
      ndots: 15,
    });
    expect(parseSearchRules('')).toEqual({ search: [], ndots: 1 });
  });
});
