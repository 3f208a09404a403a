import { expect, it } from 'vitest';
import { checkSecrets } from '../../../../src/platform/nodes/node-options.ts';

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
