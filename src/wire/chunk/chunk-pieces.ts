// Joins the pieces of split outputs: their order, and the values that they make. Browsers run this file too, so
// it has no Buffer; chunk-bytes.ts joins the bytes of chunks.
import type { Json } from '../json.ts';
import type { Chunk, Metrics } from './chunk.ts';

/** The metric `encoding`: how to join the outputs of a value's pieces. */
export const ENCODING = { string: 0, array: 1, text: 2 } as const;

/** Names of the metrics that describe pieces of a split output; handlers cannot use them. */
export const RESERVED_METRICS = ['part', 'parts', 'encoding'] as const;

/**
 * Returns the values that a handler yielded, exactly and in order, from the chunks of one attempt
 * as `GET /stream` returns them. An output over 1 MB arrives as several chunks whose metrics have
 * `part`, `parts` and `encoding`; they are joined to one value again.
 *
 * Throws an Error that names the part if one is missing, repeated or out of order. Pass whole
 * streams, or wait until `metrics.part + 1 === metrics.parts`.
 */
export function reassemble(chunks: Iterable<Chunk>): Json[] {
  const values: Json[] = [];
  const sequence = new PartSequence();
  let pieces: Json[] = [];
  for (const { output, metrics } of chunks) {
    const piece = sequence.accept(metrics);
    if (piece === undefined) {
      values.push(output);
      continue;
    }
    pieces.push(output);
    if (!piece.isLast) continue;
    values.push(joinPieces(pieces, piece.encoding));
    pieces = [];
  }
  sequence.finish();
  return values;
}

/** A part of a split output is missing, repeated, out of order, or not described. */
export class ChunkOrderError extends Error {
  override readonly name = 'ChunkOrderError';
}

export interface Piece {
  readonly encoding: number;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

/** Tracks the parts of each value; throws ChunkOrderError if one is missing, repeated or out of order. */
export class PartSequence {
  #next = 0;
  #parts = 0;
  #encoding = 0;

  /** Classifies the chunk with these metrics; undefined for a whole value. */
  accept({ part, parts, encoding }: Metrics): Piece | undefined {
    if (part === undefined) {
      if (this.#next > 0) throw this.#fail('a whole value');
      return undefined;
    }
    if (parts === undefined || encoding === undefined) {
      throw new ChunkOrderError('a chunk has the metric "part" without "parts" and "encoding"');
    }
    if (encoding !== ENCODING.string && encoding !== ENCODING.array && encoding !== ENCODING.text) {
      throw new ChunkOrderError(`a chunk has the unknown encoding ${encoding}`);
    }
    const isFirst = this.#next === 0;
    if (isFirst) this.#parts = parts;
    if (isFirst) this.#encoding = encoding;
    if (part !== this.#next || parts !== this.#parts || encoding !== this.#encoding) {
      throw this.#fail(`part ${part} of ${parts}, encoding ${encoding}`);
    }
    const isLast = part + 1 === parts;
    this.#next = isLast ? 0 : part + 1;
    return { encoding, isFirst, isLast };
  }

  finish(): void {
    if (this.#next > 0) throw this.#fail('the end of the chunks');
  }

  #fail(found: string): ChunkOrderError {
    const expected = `part ${this.#next} of ${this.#parts}, encoding ${this.#encoding}`;
    return new ChunkOrderError(
      `chunks are incomplete or out of order: expected ${expected}; found ${found}`,
    );
  }
}

function joinPieces(pieces: readonly Json[], encoding: number): Json {
  if (encoding === ENCODING.array) {
    const elements: Json[] = [];
    for (const piece of pieces) {
      if (!Array.isArray(piece)) throw new Error('a piece with encoding 1 is not an array');
      for (const element of piece) elements.push(element);
    }
    return elements;
  }
  const text = pieces.map(readStringPiece).join('');
  return encoding === ENCODING.string ? text : JSON.parse(text);
}

export function readStringPiece(piece: Json): string {
  if (typeof piece !== 'string') throw new Error('a piece with encoding 0 or 2 is not a string');
  return piece;
}

/** Joins large outputs while the chunks of an attempt arrive. For complete lists use `reassemble`. */
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
