// Reads lines of limited length from a byte stream.
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
