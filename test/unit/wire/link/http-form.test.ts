// Frames: what goes in comes out, and no broken message passes for a whole one.
import { describe, expect, it } from 'vitest';
import {
  decodeFrames,
  encodeFrames,
  type Frame,
  FrameError,
} from '../../../../src/wire/link/http-form.ts';
import { fc } from '../../../support/properties.ts';

const frame = fc.record({
  header: fc.jsonValue({ maxDepth: 2 }).map((value): unknown => JSON.parse(JSON.stringify(value))),
  body: fc.uint8Array({ maxLength: 200 }),
});
const messages = fc.array(frame, { maxLength: 6 });

function encode(frames: Frame[]): Buffer {
  return Buffer.concat(encodeFrames(frames));
}

function plain(frames: Frame[]): unknown[] {
  return frames.map(({ header, body }) => ({ header, body: [...body] }));
}

describe('frames', () => {
  it('are decoded as they were encoded', () => {
    fc.assert(
      fc.property(messages, (frames) => {
        expect(plain(decodeFrames(encode(frames)))).toEqual(plain(frames));
      }),
    );
  });

  it('are read from a view that begins inside its buffer', () => {
    const message = encode([{ header: { a: 1 }, body: Buffer.from('xyz') }]);
    const padded = Buffer.concat([Buffer.from('padding'), message, Buffer.from('!')]);
    const view = new Uint8Array(padded.buffer, padded.byteOffset + 7, message.length);
    expect(plain(decodeFrames(view))).toEqual([
      { header: { a: 1 }, body: [...Buffer.from('xyz')] },
    ]);
  });

  it('do not copy a body', () => {
    const body = Buffer.from('payload');
    expect(encodeFrames([{ header: 1, body }])).toContain(body);
    const message = encode([{ header: 1, body }]);
    expect(decodeFrames(message)[0]?.body.buffer).toBe(message.buffer);
  });

  it('encode no frames as an empty message', () => {
    expect(encodeFrames([])).toEqual([]);
    expect(decodeFrames(new Uint8Array())).toEqual([]);
  });

  it('are refused or fewer, but never wrong, if they are truncated', () => {
    const some = fc.array(frame, { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(some, fc.nat(), (frames, at) => {
        const message = encode(frames);
        const cut = message.subarray(0, at % message.length);
        let decoded: Frame[];
        try {
          decoded = decodeFrames(cut);
        } catch (error) {
          expect(error).toBeInstanceOf(FrameError);
          return;
        }
        expect(decoded.length).toBeLessThan(frames.length);
        expect(plain(decoded)).toEqual(plain(frames.slice(0, decoded.length)));
      }),
    );
  });

  it.each([
    ['within a prefix', [0, 0, 0, 2, 0]],
    ['within a header', [0, 0, 0, 2, 0, 0, 0, 0, 0x7b]],
    ['within a body', [0, 0, 0, 2, 0, 0, 0, 1, 0x7b, 0x7d]],
    ['long before the length that it names', [255, 255, 255, 255, 255, 255, 255, 255, 0x7b]],
  ])('are refused if they end %s', (_, bytes) => {
    expect(() => decodeFrames(Uint8Array.from(bytes))).toThrow(FrameError);
  });

  it('are refused if their header is not JSON', () => {
    const bytes = Uint8Array.from([0, 0, 0, 1, 0, 0, 0, 0, 0x7b]);
    expect(() => decodeFrames(bytes)).toThrow(FrameError);
  });
});
