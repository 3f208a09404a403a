// Why the platform cannot listen, in the words of its options.
import { expect, it } from 'vitest';
import { explainListenError } from '../../../src/platform/listeners.ts';

const fail = (code: string) => Object.assign(new Error(`listen ${code}`), { code });

it.each([
  ['EADDRINUSE', 8_000, /^8000 on ::1 is in use; stop the program/],
  ['EACCES', 443, /^443 on ::1 is not permitted; choose one from 1024 on, .*CAP_NET_BIND_SERVICE$/],
  ['EACCES', 8_000, /^8000 on ::1 is not permitted$/],
  ['EADDRNOTAVAIL', 8_000, /^::1 is not an address of this machine$/],
])('%s on port %i', (code, port, message) => {
  expect(explainListenError(fail(code), { host: '::1', port })).toMatchObject({ message });
});

it('another error stays', () => {
  const error = fail('EMFILE');
  expect(explainListenError(error, { host: '::1', port: 1 })).toBe(error);
});
