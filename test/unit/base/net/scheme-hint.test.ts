import { expect, it } from 'vitest';
import { hintAtScheme } from '../../../../src/base/net/scheme-hint.ts';

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
])('an error of %s has the right hint', (_name, cause, url, hint) => {
  expect(hintAtScheme(cause, url)).toBe(hint);
});
