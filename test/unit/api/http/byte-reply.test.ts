// Answers in pieces: small ones go together, large ones as they are.
import { describe, expect, it } from 'vitest';
import { joinAsArray, joinSmall } from '../../../../src/api/http/byte-reply.ts';

const ofSize = (bytes: number, fill: number) => Buffer.alloc(bytes, fill);

describe('joined pieces', () => {
  it('are the same bytes in order', () => {
    const pieces = [3, 70_000, 1, 40_000, 40_000, 0, 65_536, 65_537, 5].map(ofSize);
    const joined = [...joinSmall(pieces)];
    expect(Buffer.concat(joined)).toEqual(Buffer.concat(pieces));
  });

  it('are few where there were many', () => {
    const elements = Array.from({ length: 10_000 }, () => Buffer.from('{"output":1,"metrics":{}}'));
    const joined = [...joinSmall(joinAsArray(elements))];
    expect(joined.length).toBeLessThan(5);
    expect(JSON.parse(Buffer.concat(joined).toString())).toHaveLength(10_000);
  });

  it('leave a large one uncopied', () => {
    const large = ofSize(100_000, 1);
    expect([...joinSmall([ofSize(1, 0), large, ofSize(1, 2)])]).toContain(large);
  });
});
