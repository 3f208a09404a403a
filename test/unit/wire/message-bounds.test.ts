// What bounds a message before it is parsed: an estimate of its values that nothing can slip by.
import { describe, expect, it } from 'vitest';
import { decodeFrames, encodeFrames, FrameBoundError } from '../../../src/wire/link/http-form.ts';
import { countValues, hasMoreValues } from '../../../src/wire/message-bounds.ts';
import { fc } from '../../support/properties.ts';

/** Elements and members of a value, and of all values in it. */
function countInside(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const inside = Object.values(value);
  return inside.length + inside.reduce<number>((sum, each) => sum + countInside(each), 0);
}

describe('the values of JSON text', () => {
  it('are at least as many as its elements and members', () => {
    fc.assert(
      fc.property(fc.json(), (json) => {
        const count = countValues(Buffer.from(json), Number.POSITIVE_INFINITY);
        expect(count).toBeGreaterThanOrEqual(countInside(JSON.parse(json)));
      }),
    );
  });

  it('are not counted in strings', () => {
    const json = JSON.stringify({ text: ',,,[[[{{{\\",,,', path: '\\' });
    expect(countValues(Buffer.from(json), 100)).toBe(2);
  });

  it('are counted up to the limit', () => {
    expect(countValues(Buffer.from('[1,2,3,4,5,6]'), 3)).toBe(3);
  });

  it('are more than a limit exactly if their count is', () => {
    fc.assert(
      fc.property(fc.json(), fc.nat(20), (json, limit) => {
        const bytes = Buffer.from(json);
        expect(hasMoreValues(bytes, limit)).toBe(countValues(bytes, 100) > limit);
      }),
    );
    // Every byte is a value.
    expect(hasMoreValues(Buffer.from('[[['), 2)).toBe(true);
    expect(hasMoreValues(Buffer.from('[[['), 3)).toBe(false);
  });
});

describe('frames beyond the bounds', () => {
  const bounds = { frames: 3, values: 10 };
  const encode = (headers: unknown[]) =>
    Buffer.concat(encodeFrames(headers.map((header) => ({ header, body: new Uint8Array(0) }))));

  it('are refused by their number', () => {
    expect(decodeFrames(encode([1, 2, 3]), bounds)).toHaveLength(3);
    expect(() => decodeFrames(encode([1, 2, 3, 4]), bounds)).toThrow(FrameBoundError);
  });

  it('are refused by the values of all their headers, before any of them is parsed', () => {
    const list = Array.from({ length: 6 }, () => 0);
    expect(decodeFrames(encode([list]), bounds)).toHaveLength(1);
    expect(() => decodeFrames(encode([list, list]), bounds)).toThrow(FrameBoundError);
    const broken = encode([list, list]);
    broken.write('?', 8);
    expect(() => decodeFrames(broken, bounds)).toThrow(FrameBoundError);
  });
});
