// Splitting a large output in slices gives the same pieces as splitting it at once.
import { describe, expect, it } from 'vitest';
import { encodeJsonChunk } from '../../../../src/wire/chunk/chunk.ts';
import { joinOutputs } from '../../../../src/wire/chunk/chunk-reassembly.ts';
import { splitInSlices } from '../../../../src/wire/chunk/chunk-split.ts';

const MAX_BYTES = 300_000;

function run(output: Buffer): { pieces: Uint8Array[]; pauses: number } {
  const work = splitInSlices(output, { maxBytes: MAX_BYTES });
  for (let pauses = 0; ; pauses += 1) {
    const { done, value } = work.next();
    if (done) return { pieces: value, pauses };
  }
}

const rows = Array.from({ length: 60_000 }, (_, n) => ({ n, text: `é"\\\n€${n}` }));
const outputs: [string, unknown][] = [
  ['a string', 'ab"\\é😀'.repeat(250_000)],
  ['an array', rows],
  ['an object', { rows }],
  ['an array with an element that is too large', [1, 'x'.repeat(2_000_000), 2]],
  ['an array of arrays', [rows.slice(0, 100), [], rows.slice(100, 200), 'y'.repeat(1_500_000)]],
];

describe('splitting in slices', () => {
  it.each(outputs)('returns the pieces of %s, with pauses', (_name, value) => {
    const json = Buffer.from(JSON.stringify(value));
    const { pauses, pieces } = run(json);
    const atOnce = encodeJsonChunk(json, {}, { maxBytes: MAX_BYTES });
    expect(pieces.length).toBe(atOnce.length);
    expect(Buffer.concat(pieces).equals(Buffer.concat(atOnce))).toBe(true);
    expect(joinOutputs(pieces, 2 * json.length)?.toString()).toBe(`[${json}]`);
    expect(pauses).toBeGreaterThanOrEqual(Math.floor(json.length / 1_048_576));
  });
});
