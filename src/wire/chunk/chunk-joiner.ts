// Reassembles large outputs incrementally, while the chunks of an attempt arrive. For complete
// lists of chunks use `reassemble` in chunk-pieces.ts.
import type { Chunk, Metrics } from './chunk.ts';
import { RESERVED_METRICS, reassemble } from './chunk-pieces.ts';

export class ChunkJoiner {
  #pieces: Chunk[] = [];

  /**
   * Returns the complete chunk once all of its pieces have arrived. Throws as `reassemble` does.
   */
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

  /** Discards the pieces of the old attempt when a new one begins. */
  reset(): void {
    this.#pieces = [];
  }
}

function dropReserved(metrics: Metrics): Metrics {
  const reserved: readonly string[] = RESERVED_METRICS;
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !reserved.includes(name)));
}
