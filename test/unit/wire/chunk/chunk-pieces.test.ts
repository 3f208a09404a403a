// Pieces of large outputs become one value again as they come in.
import { expect, it } from 'vitest';
import { type Chunk, splitChunk } from '../../../../src/wire/chunk/chunk.ts';
import { ChunkJoiner, ChunkOrderError } from '../../../../src/wire/chunk/chunk-pieces.ts';

function joinAll(joiner: ChunkJoiner, chunks: readonly Chunk[]): (Chunk | undefined)[] {
  return chunks.map((chunk) => joiner.push(chunk));
}

it('an unsplit chunk is unchanged', () => {
  const chunk = { output: { a: 1 }, metrics: { tokens: 2 } };
  expect(new ChunkJoiner().push(chunk)).toEqual(chunk);
});

it('pieces return nothing until the last, then the value with the handler’s metrics', () => {
  const chunk = { output: 'é'.repeat(500), metrics: { tokens: 2 } };
  const pieces = splitChunk(chunk, { maxBytes: 300 });
  expect(pieces.length).toBeGreaterThan(2);
  const joined = joinAll(new ChunkJoiner(), pieces);
  expect(joined.slice(0, -1).every((each) => each === undefined)).toBe(true);
  expect(joined.at(-1)).toEqual(chunk);
});

it('a null output is a value', () => {
  expect(new ChunkJoiner().push({ output: null, metrics: {} })).toEqual({
    output: null,
    metrics: {},
  });
});

it('after a reset the pieces of the old attempt are forgotten', () => {
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
