import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { FreshOutputs } from '../../../../src/queue/payloads/outputs.ts';

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

describe('a small output that is kept', () => {
  it('is a copy, and is taken once', () => {
    const outputs = new FreshOutputs(new ManualClock());
    const given = Buffer.from('"a"');
    outputs.keep(KEY, given);
    given.fill(0);
    expect(outputs.smallBytes(KEY)).toBe(3);
    expect(outputs.takeSmall({ ...KEY, endpointId: 'other' })).toBeUndefined();
    expect(Buffer.from(outputs.takeSmall(KEY) ?? []).toString()).toBe('"a"');
    expect(outputs.takeSmall(KEY)).toBeUndefined();
    expect(outputs.smallBytes(KEY)).toBeUndefined();
  });

  it.each([
    ['a large one', (outputs: FreshOutputs) => outputs.keep(KEY, Buffer.alloc(4_097))],
    ['an outcome without one', (outputs: FreshOutputs) => outputs.drop(KEY)],
  ])('is not taken for that of a later outcome: %s', (_name, note) => {
    const outputs = new FreshOutputs(new ManualClock());
    outputs.keep(KEY, BYTES);
    note(outputs);
    expect(outputs.takeSmall(KEY)).toBeUndefined();
  });

  it('drops the oldest one for a new one', () => {
    const outputs = new FreshOutputs(new ManualClock());
    for (let id = 0; id <= 1_024; id++) outputs.keep({ endpointId: 'e', id: `${id}` }, BYTES);
    expect(outputs.smallBytes({ endpointId: 'e', id: '0' })).toBeUndefined();
    expect(outputs.smallBytes({ endpointId: 'e', id: '1' })).toBe(2);
    expect(outputs.smallBytes({ endpointId: 'e', id: '1024' })).toBe(2);
  });
});
