import { expect, it } from 'vitest';
import { readToken, stripSessionCookie } from '../../../../src/api/http/session-cookie.ts';

it.each([
  ['a=1; millrace_session=t; b=2', 'a=1; b=2'],
  ['__Host-millrace_session=t; a=1', 'a=1'],
  ['millrace_session=t; __Host-millrace_session=u', undefined],
  ['millrace_sessions=t', 'millrace_sessions=t'],
])('passes the session of %j to no server behind the platform', (cookie, left) => {
  expect(stripSessionCookie(cookie)).toBe(left);
});

it.each([
  ['millrace_session=t', false, 't'],
  ['__Host-millrace_session=t', true, 't'],
  // A page of a related host could have set it.
  ['millrace_session=t', true, undefined],
  ['__Host-millrace_session=t; __Host-millrace_session=u', true, undefined],
  ['__Host-millrace_session=t', false, undefined],
])('reads from %j over TLS (%s) the token %s', (cookie, isSecure, token) => {
  expect(readToken(cookie, { isSecure })).toBe(token);
});
