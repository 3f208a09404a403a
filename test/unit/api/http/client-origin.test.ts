// The client of a request: the peer, or what trusted proxies tell. Whatever other peers send has no effect.
import { describe, expect, it } from 'vitest';
import { ClientOrigins, type ForwardedHeaders } from '../../../../src/api/http/client-origin.ts';

const PROXIES = ['10.0.0.0/8', '127.0.0.1', '2001:db8:1::/48'];

interface Asked {
  headers: Record<string, string>;
  peer?: string;
  isEncrypted?: boolean;
  forwardedHeaders?: ForwardedHeaders;
}

function find({ forwardedHeaders = 'x-forwarded', headers, isEncrypted = false, peer }: Asked) {
  const origins = new ClientOrigins({ trustedProxies: PROXIES, forwardedHeaders });
  return origins.of({ address: peer ?? '10.0.0.1', isEncrypted, headers });
}

const addressOf = (headers: Record<string, string>, peer?: string) =>
  find({ headers, ...(peer && { peer }) }).address;

const forwardedFor = (forwarded: string) =>
  find({ headers: { forwarded }, forwardedHeaders: 'forwarded' });

describe('a peer that is no trusted proxy', () => {
  const claims = {
    'x-forwarded-for': '192.0.2.1',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'bank.example',
    forwarded: 'for=192.0.2.1;proto=https;host=bank.example',
    'x-real-ip': '192.0.2.1',
    host: 'api.example',
  };

  it.each(['x-forwarded', 'forwarded'] as const)(
    'is the client, whatever %s headers it sends',
    (family) => {
      const asked = { headers: claims, peer: '203.0.113.5', forwardedHeaders: family };
      expect(find(asked)).toMatchObject({
        ...{ address: '203.0.113.5', isSecure: false, host: 'api.example', isTrustedPeer: false },
      });
      expect(find({ ...asked, isEncrypted: true })).toMatchObject({ isSecure: true });
      expect(
        find({
          ...asked,
          headers: { ...claims, 'x-forwarded-proto': 'http', forwarded: 'proto=http' },
          isEncrypted: true,
        }).isSecure,
      ).toBe(true);
    },
  );

  it.each([
    ['an IPv6 address', '2001:db8:2::1', '2001:db8:2::1'],
    ['an IPv4 address that IPv6 maps', '::ffff:203.0.113.5', '203.0.113.5'],
    ['an address with a zone', 'fe80::1%eth0', 'fe80::1%eth0'],
    ['no address, when the connection is closed', '', ''],
  ])('may have %s', (_name, peer, address) => {
    expect(find({ headers: claims, peer })).toMatchObject({ address, isTrustedPeer: false });
  });
});

describe('X-Forwarded headers of a trusted proxy', () => {
  it('name the client, its scheme and its host', () => {
    const headers = {
      ...{ 'x-forwarded-for': '203.0.113.5', 'x-forwarded-proto': 'https' },
      ...{ 'x-forwarded-host': 'api.example', host: '10.0.0.9:8000' },
    };
    expect(find({ headers })).toEqual({
      ...{ address: '203.0.113.5', isSecure: true, host: 'api.example', isTrustedPeer: true },
      path: ['203.0.113.5', '10.0.0.1'],
    });
    expect(find({ headers, peer: '::ffff:10.0.0.1' })).toMatchObject({ address: '203.0.113.5' });
  });

  it.each([
    ['the nearest address that no proxy has', '192.0.2.1, 203.0.113.5, 10.7.7.7', '203.0.113.5'],
    ['the farthest, if all are proxies', '10.1.1.1, 10.2.2.2', '10.1.1.1'],
    ['an IPv6 address behind an IPv6 proxy', '2001:db8:2::1, 2001:db8:1::7', '2001:db8:2::1'],
    ['an address with a port', '203.0.113.5:51234', '203.0.113.5'],
    ['an IPv6 address with a port', '[2001:db8:2::1]:443', '2001:db8:2::1'],
    ['a mapped address', '::ffff:203.0.113.5', '203.0.113.5'],
    ['the proxy, if the hop is no address', '192.0.2.1, unknown', '10.0.0.1'],
    [
      'the nearer proxy, if the farther hop is no address',
      '192.0.2.1, _hidden, 10.7.7.7',
      '10.7.7.7',
    ],
    ['the proxy, if the address has too many parts', '1.2.3.4.5', '10.0.0.1'],
    ['the proxy, if an octet is too large', '300.1.1.1', '10.0.0.1'],
    ['the proxy, if the brackets do not end', '[2001:db8:2::1', '10.0.0.1'],
    ['the proxy, if a zone is given', 'fe80::1%eth0', '10.0.0.1'],
    ['the proxy, if the list is empty', ' , ,', '10.0.0.1'],
    ['no more than the address, if markup follows', '203.0.113.5"><script>', '10.0.0.1'],
  ])('give %s', (_name, list, address) => {
    expect(addressOf({ 'x-forwarded-for': list })).toBe(address);
  });

  it('are read in a moment from the nearest hop on, of thousands', () => {
    const list = `192.0.2.1,${'10.1.1.1,'.repeat(100_000)}10.2.2.2`;
    expect(addressOf({ 'x-forwarded-for': list })).toBe('10.1.1.1');
    expect(addressOf({ 'x-forwarded-for': `${'x'.repeat(1_000_000)},203.0.113.5` })).toBe(
      '203.0.113.5',
    );
  });

  it.each([
    [
      'one for several hops is that of the trusted proxies',
      '1.1.1.1, 203.0.113.5, 10.7.7.7',
      'https',
      true,
    ],
    ['of a list as long, that of the client counts', '203.0.113.5, 10.7.7.7', 'https, http', true],
    ['what a client has sent does not count', '192.0.2.1, 203.0.113.5', 'https, http', false],
    ['a client cannot lengthen the list', '203.0.113.5', 'https, https, http', false],
    ['wss is https', '203.0.113.5', 'WSS', true],
    ['another word is none', '203.0.113.5', 'gopher', false],
  ])('may have several values of the scheme: %s', (_name, list, proto, isSecure) => {
    const headers = { 'x-forwarded-for': list, 'x-forwarded-proto': proto };
    expect(find({ headers })).toMatchObject({ isSecure });
  });

  it('may tell only the scheme', () => {
    expect(find({ headers: { 'x-forwarded-proto': 'https' } })).toMatchObject({
      ...{ isSecure: true, address: '10.0.0.1' },
    });
  });

  it('may tell that a client of an encrypted proxy uses http', () => {
    const headers = { 'x-forwarded-for': '203.0.113.5', 'x-forwarded-proto': 'http' };
    expect(find({ headers, isEncrypted: true })).toMatchObject({ isSecure: false });
  });

  it('apply beside Forwarded of a client, which has no effect', () => {
    const headers = { 'x-forwarded-for': '203.0.113.5', forwarded: 'for=192.0.2.1;proto=https' };
    expect(find({ headers })).toMatchObject({ address: '203.0.113.5', isSecure: false });
  });
});

describe('Forwarded of a trusted proxy', () => {
  it.each([
    ['one element', 'for=203.0.113.5;proto=https;host=api.example', '203.0.113.5'],
    ['names in any case', 'For=203.0.113.5;Proto=HTTPS;HOST=api.example', '203.0.113.5'],
    ['quoted values', 'for="203.0.113.5:80"; proto="https" ;host="api.example"', '203.0.113.5'],
    ['escaped characters', 'for="203.0.113\\.5";proto=https;host="api.example"', '203.0.113.5'],
    ['IPv6', 'host=api.example;proto=https;for="[2001:db8:2::1]:4711"', '2001:db8:2::1'],
    [
      'what other elements claim',
      'for=1.1.1.1;proto=http, for=203.0.113.5;proto=https;host=api.example',
      '203.0.113.5',
    ],
    [
      'unknown parameters',
      'for=203.0.113.5;secret="a,b;c";proto=https;host=api.example',
      '203.0.113.5',
    ],
    [
      'a proxy behind the proxy',
      'for=203.0.113.5;proto=https;host=api.example,for=10.7.7.7;by=10.0.0.1',
      '203.0.113.5',
    ],
    ['a separator at the end', 'for=203.0.113.5;proto=https;host=api.example;', '203.0.113.5'],
  ])('is read with %s', (_name, header, address) => {
    expect(forwardedFor(header)).toMatchObject({ address, isSecure: true, host: 'api.example' });
  });

  it.each([
    ['without a value', 'for=203.0.113.5, for'],
    ['with an open quote', 'for=203.0.113.5;host="x'],
    ['with a name twice in an element', 'for=192.0.2.1;for=203.0.113.5'],
    ['with spaces in a pair', 'for = 203.0.113.5'],
    ['with text after a quoted value', 'for="203.0.113.5"x'],
    ['that is long and no pair at all', 'x'.repeat(1_000_000)],
    ['of quotes', '"'.repeat(100_000)],
    ['of escapes', `for="${'\\'.repeat(100_001)}`],
  ])('is ignored: %s', (_name, header) => {
    expect(forwardedFor(header)).toMatchObject({ address: '10.0.0.1', isSecure: false });
  });

  it.each(['unknown', '_hidden', '"_gazonk:80"'])(
    'leaves the proxy if it comes from %s',
    (name) => {
      expect(forwardedFor(`for=192.0.2.1, for=${name};proto=https`)).toMatchObject({
        ...{ address: '10.0.0.1', isSecure: true },
      });
    },
  );

  it('applies beside X-Forwarded headers of a client, which have no effect', () => {
    const headers = { 'x-forwarded-for': '192.0.2.1', forwarded: 'for=203.0.113.5' };
    const origin = find({ headers, forwardedHeaders: 'forwarded' });
    expect(origin).toMatchObject({ address: '203.0.113.5', path: ['203.0.113.5', '10.0.0.1'] });
  });
});
