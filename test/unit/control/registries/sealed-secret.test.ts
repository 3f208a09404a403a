import { randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import {
  SecretSealer,
  UnopenedSecretError,
} from '../../../../src/control/registries/sealed-secret.ts';

it('a secret with a shorter tag, which is easier to guess, is not opened', () => {
  const sealer = new SecretSealer([randomBytes(32)]);
  const sealed = sealer.seal('', ['ada']);
  expect(sealer.open(sealed, ['ada'])).toBe('');
  const bytes = Buffer.from(sealed.data, 'base64');
  for (const length of [4, 8, 12, 15]) {
    const data = bytes.subarray(0, length).toString('base64');
    expect(() => sealer.open({ ...sealed, data }, ['ada'])).toThrow(UnopenedSecretError);
  }
});
