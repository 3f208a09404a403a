// Reads lines from a byte stream. Only a line feed ends a line, with or without a carriage return before it:
// node:readline would also split JSON at U+2028 and U+2029.
import type { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

export interface LineReaderOptions {
  /** Longest line, in characters. A longer line is passed on in several parts. */
  maxChars: number;
  onLine: (line: string) => void;
}

/** Reads until the stream ends. The last line needs no line feed. */
export function readLines(stream: Readable, { maxChars, onLine }: LineReaderOptions): void {
  const decoder = new StringDecoder();
  let pending = '';
  const take = (text: string) => {
    pending += text;
    let start = 0;
    for (;;) {
      const end = pending.indexOf('\n', start);
      const length = (end === -1 ? pending.length : end) - start;
      if (end === -1 && length <= maxChars) break;
      const stop = start + Math.min(length, maxChars);
      onLine(pending.slice(start, stop).replace(/\r$/, ''));
      start = stop === end ? stop + 1 : stop;
    }
    pending = pending.slice(start);
  };
  stream.on('data', (bytes: Buffer) => take(decoder.write(bytes)));
  stream.once('end', () => {
    take(decoder.end());
    if (pending !== '') onLine(pending);
  });
  // The caller notices the end of the process by its exit event.
  stream.on('error', () => {});
}

/**
 * Lines, without the byte order mark that some editors write. Default: of any length.
 * @throws Error for a line of more characters
 */
export async function* iterateLines(
  source: AsyncIterable<string | Uint8Array>,
  maxChars = Number.POSITIVE_INFINITY,
): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let pieces: string[] = [];
  let chars = 0;
  for await (const chunk of source) {
    const text = typeof chunk === 'string' ? chunk : decoder.decode(chunk, { stream: true });
    const lines = text.split('\n');
    const rest = lines.pop() ?? '';
    for (const line of lines) {
      yield joinLine([...pieces, line]);
      pieces = [];
      chars = 0;
    }
    if (rest !== '') pieces.push(rest);
    chars += rest.length;
    if (chars > maxChars) throw new Error(`a line has more than ${maxChars} characters`);
  }
  pieces.push(decoder.decode());
  const last = joinLine(pieces);
  if (last !== '') yield last;
}

function joinLine(pieces: readonly string[]): string {
  return pieces.join('').replace(/\r$/, '');
}
