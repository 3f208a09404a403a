import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { FreshOutputs } from '../../../../src/queue/payloads/fresh-outputs.ts';

const KEY = { endpointId: 'e', id: 'j', attempt: 2 };
const BYTES = Buffer.from('{}');

describe('an offered output', () => {
  it('is taken once, and only as that of its attempt', () => {
    const outputs = new FreshOutputs(new ManualClock());
    outputs.offer(KEY, BYTES);
    expect(outputs.take({ ...KEY, attempt: 1 })).toBeUndefined();
    expect(outputs.take(KEY)).toBe(BYTES);
    expect(outputs.take(KEY)).toBeUndefined();
  });

  it('ends at once when it has been taken, or was not stored', async () => {
    const outputs = new FreshOutputs(new ManualClock());
    const taken = outputs.offer(KEY, BYTES);
    outputs.take(KEY);
    await taken.end(true);
    const refused = outputs.offer(KEY, BYTES);
    await refused.end(false);
    expect(outputs.take(KEY)).toBeUndefined();
  });

  it('ends after a moment if nobody takes it', async () => {
    const clock = new ManualClock();
    const outputs = new FreshOutputs(clock);
    let hasEnded = false;
    const ended = outputs
      .offer(KEY, BYTES)
      .end(true)
      .then(() => {
        hasEnded = true;
      });
    await nextTurn();
    expect(hasEnded).toBe(false);
    await clock.advance(50);
    await ended;
    expect(outputs.take(KEY)).toBeUndefined();
  });
});
