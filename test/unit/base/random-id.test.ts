import { expect, it } from 'vitest';
import { createRandomId } from '../../../src/base/random-id.ts';

it('makes different IDs of 32 hexadecimal digits', () => {
  const ids = Array.from({ length: 1_000 }, createRandomId);
  expect(new Set(ids).size).toBe(1_000);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
  // Each digit has each value somewhere.
  for (let at = 0; at < 32; at++) expect(new Set(ids.map((id) => id[at])).size).toBe(16);
});
