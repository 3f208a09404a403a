// Why the platform cannot listen, in the words of its options.
import { expect, it } from 'vitest';
import { explainListenError } from '../../../src/platform/listeners.ts';

const describe = (error: unknown) => (error instanceof Error ? error.message : undefined);
const fail = (code: string) => Object.assign(new Error(`listen ${code}`), { code });

it.each([
  ['EADDRINUSE', 8_000, /^port: 8000 on ::1 is in use; stop the program/],
  [
    'EACCES',
    443,
    /^port: 443 on ::1 is not permitted; choose one from 1024 on, .*CAP_NET_BIND_SERVICE$/,
  ],
  ['EACCES', 8_000, /^port: 8000 on ::1 is not permitted$/],
  ['EADDRNOTAVAIL', 8_000, /^host: ::1 is not an address of this machine$/],
])('%s on port %i', (code, port, message) => {
  expect(describe(explainListenError(fail(code), { host: '::1', port }))).toMatch(message);
});

it('names the port for other nodes', () => {
  const forwarding = { listen: { host: '10.0.0.7', port: 8_091 } };
  const explain = (port: number) => {
    const error = Object.assign(fail('EADDRINUSE'), { port });
    return describe(explainListenError(error, { host: '::1', port: 0, forwarding }));
  };
  expect(explain(8_091)).toMatch(/^nodes\.listen: 8091 on 10\.0\.0\.7 is in use; stop the program/);
  expect(explain(0)).toMatch(/^port: 0 on ::1 is in use/);
});

it('keeps another error', () => {
  const error = fail('EMFILE');
  expect(explainListenError(error, { host: '::1', port: 1 })).toBe(error);
});
