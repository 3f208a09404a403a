// What an error says about a redirect, which no client follows.
import { expect, it } from 'vitest';
import { describeRedirect } from '../../../../src/base/net/redirect.ts';

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

it('of a long place is cut', () => {
  const location = `https://b.example/${'x'.repeat(10_000)}`;
  expect(describeRedirect({ status: 301, location, url, path })?.length).toBeLessThan(500);
});
