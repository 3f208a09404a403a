// The errors of engines, which the records of pods keep.
import { expect, it } from 'vitest';
import { EngineError } from '../../../src/engine/engine.ts';

it('has a text of bounded length, although it may quote the answer of a registry', () => {
  const { message } = new EngineError('refused', `not pulled: ${'x'.repeat(1_000_000)}`);
  expect(message).toMatch(/^not pulled: x{1988}… \(998012 more characters\)$/);
  expect(new EngineError('unavailable', 'no node answers').message).toBe('no node answers');
});
