// What an error says about a redirect, which no client follows.
import { expect, it } from 'vitest';
import { describeRedirect, hintAtScheme } from '../../../../src/base/net/request-hints.ts';

const url = 'http://a.example/base/v2/e/run?token=secret';
const path = '/v2/e/run';

it.each<[string, number, string | null, string | undefined]>([
  [
    'a moved platform',
    301,
    'https://a.example/base/v2/e/run',
    'http://a.example redirects (301) to https://a.example/base; use that URL',
  ],
  [
    'a relative place',
    308,
    '/v2/e/run',
    'http://a.example redirects (308) to http://a.example; use that URL',
  ],
  [
    'another page',
    302,
    'https://sso.example/login?next=secret',
    'http://a.example redirects (302) to https://sso.example/login; use the URL of the platform itself',
  ],
  [
    'a browser, which hides it',
    0,
    null,
    'http://a.example redirects; use the URL that it redirects to',
  ],
  ['no place', 303, null, 'http://a.example redirects (303); use the URL that it redirects to'],
  ['no URL', 307, 'http://[', 'http://a.example redirects (307); use the URL that it redirects to'],
  ['an answer that is none', 304, 'https://b.example', undefined],
  ['a success', 201, 'https://b.example', undefined],
])('of %s', (_name, status, location, text) => {
  expect(describeRedirect({ status, location, url, path })).toBe(text);
});

it('cuts a long place', () => {
  const location = `https://b.example/${'x'.repeat(10_000)}`;
  expect(describeRedirect({ status: 301, location, url, path })?.length).toBeLessThan(500);
});

const failure = (message: string, code: string) => Object.assign(new Error(message), { code });
const NO_TLS = failure(
  '0A00010B:SSL routines::wrong version number',
  'ERR_SSL_WRONG_VERSION_NUMBER',
);
const LONG = failure(
  '0A0000C6:SSL routines::packet length too long',
  'ERR_SSL_PACKET_LENGTH_TOO_LONG',
);
const CUT = failure('socket hang up', 'ECONNRESET');

it.each<[string, unknown, string, string]>([
  ['a port with TLS', CUT, 'http://a', '; if the port needs TLS, use an https:// URL'],
  [
    'a port with TLS',
    failure('', 'UND_ERR_SOCKET'),
    'http://a',
    '; if the port needs TLS, use an https:// URL',
  ],
  ['a port without TLS', NO_TLS, 'https://a', '; the port does not speak TLS, use an http:// URL'],
  ['a port without TLS', LONG, 'https://a', '; the port does not speak TLS, use an http:// URL'],
  ['a broken connection', CUT, 'https://a', ''],
  ['a closed port', failure('', 'ECONNREFUSED'), 'http://a', ''],
  ['no error', 'text', 'http://a', ''],
])('gives an error of %s the right hint', (_name, cause, url, hint) => {
  expect(hintAtScheme(cause, url)).toBe(hint);
});
