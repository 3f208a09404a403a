// Which proxy each URL takes, by the variables of the environment.
import { describe, expect, it } from 'vitest';
import { describeProxy, readProxies } from '../../../../src/base/net/outgoing-proxy.ts';

const SECURE = 'http://secure.proxy:3128/';
const PLAIN = 'http://plain.proxy:3128/';

function choose(url: string, environment: Record<string, string>): string | undefined {
  return readProxies(environment)(new URL(url))?.href;
}

describe('the proxy of a URL', () => {
  const both = { HTTPS_PROXY: SECURE, HTTP_PROXY: PLAIN };
  it.each([
    ['https://a.test/x', SECURE],
    ['grpcs://a.test:9', SECURE],
    ['http://a.test', PLAIN],
    ['grpc://a.test:9', PLAIN],
    ['https://10.0.0.1', SECURE],
    ['http://localhost:8000', undefined],
    ['http://LOCALHOST./', undefined],
    ['http://a.localhost', undefined],
    ['http://127.9.9.9', undefined],
    ['http://[::1]:8000', undefined],
    ['https://[::ffff:127.0.0.1]', undefined],
    ['http://localhost.test', PLAIN],
  ])('of %s is %s', (url, expected) => {
    expect(choose(url, both)).toBe(expected);
  });

  it.each<[Record<string, string>, string | undefined]>([
    [{}, undefined],
    [{ HTTPS_PROXY: '' }, undefined],
    [{ HTTP_PROXY: PLAIN }, undefined],
    [{ https_proxy: SECURE, HTTPS_PROXY: PLAIN }, SECURE],
    [{ https_proxy: '', HTTPS_PROXY: SECURE }, SECURE],
    [{ ALL_PROXY: PLAIN }, PLAIN],
    [{ all_proxy: PLAIN, HTTPS_PROXY: SECURE }, SECURE],
    [{ HTTPS_PROXY: 'secure.proxy:3128' }, SECURE],
    [{ HTTPS_PROXY: 'https://u:p@secure.proxy' }, 'https://u:p@secure.proxy/'],
  ])('of an https URL with %j is %s', (environment, expected) => {
    expect(choose('https://a.test', environment)).toBe(expected);
  });

  it.each([
    ['*', 'https://a.test', true],
    ['a.test', 'https://a.test', true],
    ['A.TEST', 'https://a.test', true],
    ['a.test', 'https://b.a.test', true],
    ['.a.test', 'https://b.a.test', true],
    ['.a.test', 'https://a.test', true],
    ['*.a.test', 'https://b.a.test', true],
    ['a.test', 'https://ba.test', false],
    ['b.test, a.test', 'https://a.test', true],
    ['b.test a.test', 'https://a.test', true],
    ['a.test:443', 'https://a.test', true],
    ['a.test:8443', 'https://a.test', false],
    ['a.test:8443', 'https://a.test:8443', true],
    ['10.0.0.0/8', 'https://10.1.2.3', true],
    ['10.0.0.0/8', 'https://11.1.2.3', false],
    ['10.0.0.0/8', 'https://a.test', false],
    ['10.0.0.0/99', 'https://10.1.2.3', false],
    ['10.1.2.3', 'https://10.1.2.3', true],
    ['2.3', 'https://10.1.2.3', false],
    ['2001:db8::1', 'https://[2001:db8:0::1]', true],
    ['[2001:db8::1]:443', 'https://[2001:db8::1]', true],
    ['2001:db8::/32', 'https://[2001:db8::5]', true],
    ['', 'https://a.test', false],
    ['.', 'https://a.test', false],
    [':443', 'https://a.test', false],
  ])('with NO_PROXY %j: %s goes directly: %s', (exceptions, url, isDirect) => {
    const environment = { HTTPS_PROXY: SECURE, NO_PROXY: exceptions };
    expect(choose(url, environment)).toBe(isDirect ? undefined : SECURE);
  });

  it.each(['socks5://u:secret@proxy:1080', 'http://', 'http://u:secret@:x'])(
    'cannot be %s; the error hides its password',
    (value) => {
      const fails = () => choose('https://a.test', { HTTPS_PROXY: value });
      expect(fails).toThrow(/^HTTPS_PROXY must be the http or https URL of a proxy$/);
      expect(choose('http://localhost', { ALL_PROXY: value })).toBeUndefined();
    },
  );

  it('is named in errors without its password', () => {
    const proxy = readProxies({ HTTPS_PROXY: 'http://u:secret@p.test:8080' });
    expect(describeProxy(proxy(new URL('https://a.test')))).toBe(
      ', through the proxy http://p.test:8080',
    );
  });
});
