import { expect, it } from 'vitest';
import { checkAdvertised, checkSecrets } from '../../../../src/platform/nodes/node-options.ts';

it.each([
  ['too short', 'x'.repeat(31)],
  ['with a space, which HTTP would cut', `${'x'.repeat(40)} `],
  ['with a character that no header can have', `${'x'.repeat(40)}\u20ac`],
  ['longer than a head may be', 'x'.repeat(5_000)],
])('refuses a secret %s, without naming it', (_name, secret) => {
  const check = () => checkSecrets(['y'.repeat(32), secret]);
  expect(check).toThrow(/^nodes\.secrets: needs at least one secret, each of 32 to 1024 visible/);
});

it('accepts several secrets', () => {
  expect(() => checkSecrets(['y'.repeat(32), '+/=aZ09-'.repeat(8)])).not.toThrow();
});

it.each([
  ['http://10.0.0.1:8080', ['http:', 'https:']],
  ['https://node-1.example.com/base', ['http:', 'https:']],
  ['grpcs://node-1.example.com:8090', ['grpc:', 'grpcs:']],
] as const)('advertises %s', (url, schemes) => {
  expect(() => checkAdvertised('nodes.advertiseUrl', url, schemes)).not.toThrow();
});

it.each([
  ['node-1:8080', ['http:', 'https:']],
  ['grpc://node-1:8080', ['http:', 'https:']],
  ['http://user@node-1', ['http:', 'https:']],
  ['http://node-1/?a=1', ['http:', 'https:']],
  ['http://node-1/\u20ac', ['http:', 'https:']],
  [`http://node-1/${'x'.repeat(512)}`, ['http:', 'https:']],
  ['grpc://node-1:8090/path', ['grpc:', 'grpcs:']],
] as const)('does not advertise %s', (url, schemes) => {
  const scheme = schemes[0] === 'grpc:' ? 'grpc or grpcs' : 'http or https';
  expect(() => checkAdvertised('nodes.advertiseUrl', url, schemes)).toThrow(
    `nodes.advertiseUrl: must be an ${scheme} URL of at most 512 ASCII characters`,
  );
});
