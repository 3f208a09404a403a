import { describe, expect, it } from 'vitest';
import { giveBack } from '../../../src/base/spent-bytes.ts';

describe('released bytes', () => {
  it('are freed at once', () => {
    const spent = Buffer.allocUnsafeSlow(100_000);
    giveBack(spent);
    expect(spent).toHaveLength(0);
  });

  it('are kept if they share their memory', () => {
    const whole = Buffer.alloc(100_000, 1);
    giveBack(whole.subarray(0, 99_999));
    expect(whole).toHaveLength(100_000);
  });

  it('free as much shared memory as their owner allows', () => {
    const message = Buffer.alloc(100_000, 1);
    giveBack(message.subarray(10), 9);
    expect(message).toHaveLength(100_000);
    giveBack(message.subarray(10), 10);
    expect(message).toHaveLength(0);
  });

  it('are kept if they are empty or small enough for a pool', () => {
    const few = Buffer.allocUnsafeSlow(100);
    const none = new Uint8Array(0);
    giveBack(few);
    giveBack(none);
    expect(few).toHaveLength(100);
    expect(none.buffer.detached).toBe(false);
  });
});
