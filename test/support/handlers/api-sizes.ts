// Returns or yields outputs whose JSON has exactly the requested size, in multi-byte text.
import type { Job } from 'millrace';
import { makeText } from '../multi-byte-text.ts';

interface Wanted {
  /** Bytes of JSON of each value. A text has two quotes, an array and an object a bit more. */
  bytes: number;
  shape: 'text' | 'array' | 'object';
  /** Number of values to yield; without it the handler returns one. */
  yields?: number;
}

export const config = { concurrency: 4 };

export default function give({ input }: Job<Wanted>): unknown {
  const value = makeValue(input);
  return input.yields === undefined ? value : repeat(value, input.yields);
}

function* repeat(value: unknown, times: number): Generator<unknown> {
  for (let index = 0; index < times; index += 1) yield value;
}

export function makeValue({ bytes, shape }: Wanted): unknown {
  if (shape === 'text') return makeText(bytes - 2);
  if (shape === 'object') return { text: makeText(bytes - '{"text":""}'.length) };
  // Elements of 100 bytes including their commas; the first one has the rest.
  const count = Math.floor((bytes - 2) / 100);
  const rest = bytes - 1 - count * 100;
  return [makeText(rest + 97), ...Array.from({ length: count - 1 }, () => makeText(97))];
}
