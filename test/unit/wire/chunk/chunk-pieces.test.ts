// Splitting a large output in slices gives the same pieces as splitting it at once, and they become one value again.
import { describe, expect, it } from 'vitest';
import { type Chunk, encodeJsonChunk, splitChunk } from '../../../../src/wire/chunk/chunk.ts';
import { joinOutputs, splitInSlices } from '../../../../src/wire/chunk/chunk-bytes.ts';
import { ChunkJoiner, ChunkOrderError } from '../../../../src/wire/chunk/chunk-pieces.ts';

const MAX_BYTES = 300_000;

function run(output: Buffer): { pieces: Uint8Array[]; pauses: number } {
  const work = splitInSlices({ json: output, metricsText: '{}' }, MAX_BYTES);
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

function joinAll(joiner: ChunkJoiner, chunks: readonly Chunk[]): (Chunk | undefined)[] {
  return chunks.map((chunk) => joiner.push(chunk));
}

it('leaves an unsplit chunk unchanged', () => {
  const chunk = { output: { a: 1 }, metrics: { tokens: 2 } };
  expect(new ChunkJoiner().push(chunk)).toEqual(chunk);
});

it('returns nothing until the last piece, then the value with the handler’s metrics', () => {
  const chunk = { output: 'é'.repeat(500), metrics: { tokens: 2 } };
  const pieces = splitChunk(chunk, { maxBytes: 300 });
  expect(pieces.length).toBeGreaterThan(2);
  const joined = joinAll(new ChunkJoiner(), pieces);
  expect(joined.slice(0, -1).every((each) => each === undefined)).toBe(true);
  expect(joined.at(-1)).toEqual(chunk);
});

it('takes a null output as a value', () => {
  expect(new ChunkJoiner().push({ output: null, metrics: {} })).toEqual({
    output: null,
    metrics: {},
  });
});

it('forgets the pieces of the old attempt after a reset', () => {
  const joiner = new ChunkJoiner();
  const pieces = splitChunk({ output: 'x'.repeat(500), metrics: {} }, { maxBytes: 300 });
  joiner.push(pieces[0] ?? { output: null, metrics: {} });
  joiner.reset();
  expect(joinAll(joiner, pieces).at(-1)?.output).toBe('x'.repeat(500));
});

it('throws if a piece is missing', () => {
  const joiner = new ChunkJoiner();
  const pieces = splitChunk({ output: 'x'.repeat(900), metrics: {} }, { maxBytes: 300 });
  expect(() => joinAll(joiner, pieces.slice(1))).toThrow(ChunkOrderError);
});
