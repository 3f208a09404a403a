// Puts the pieces of a large output together again while the chunks of an attempt come in, one by
// one. Whole lists of chunks are for `reassemble` in chunk.ts.
import { type Chunk, type Metrics, RESERVED_METRICS } from './chunk.ts';
import { reassemble } from './chunk-reassembly.ts';

export class ChunkJoiner {
  #pieces: Chunk[] = [];

  /** The chunk as it was yielded, once all its pieces are there. Throws as `reassemble` does. */
  push(chunk: Chunk): Chunk | undefined {
    this.#pieces.push(chunk);
    const { part, parts } = chunk.metrics;
    if (part !== undefined && parts !== undefined && part + 1 < parts) return undefined;
    const pieces = this.#pieces;
    this.#pieces = [];
    const [output] = reassemble(pieces);
    if (output === undefined) throw new Error('a chunk has no output');
    return { output, metrics: dropReserved(chunk.metrics) };
  }

  /** A new attempt began: what came of the old one is void. */
  reset(): void {
    this.#pieces = [];
  }
}

function dropReserved(metrics: Metrics): Metrics {
  const reserved: readonly string[] = RESERVED_METRICS;
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !reserved.includes(name)));
}
