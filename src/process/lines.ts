// What a child prints, as lines of bounded length; the last ones are kept for its error.
import { StringDecoder } from 'node:string_decoder';

const MAX_LINE_CHARS = 8_000;
const KEPT_LINES = 20;
const KEPT_CHARS = 4_000;

/** Cuts a stream of bytes into lines; a longer line is cut in pieces. Empty lines are left out. */
export class LineCutter {
  readonly #decoder = new StringDecoder('utf8');
  readonly #onLine: (line: string) => void;
  #rest = '';

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(bytes: Buffer): void {
    const lines = (this.#rest + this.#decoder.write(bytes)).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#emit(line);
    while (this.#rest.length > MAX_LINE_CHARS) {
      this.#emit(this.#rest.slice(0, MAX_LINE_CHARS));
      this.#rest = this.#rest.slice(MAX_LINE_CHARS);
    }
  }

  end(): void {
    this.#emit(this.#rest + this.#decoder.end());
    this.#rest = '';
  }

  #emit(line: string): void {
    // A progress bar returns to the start of its line: only its last state counts.
    const shown = line.replace(/\r$/, '').split('\r').at(-1) ?? '';
    for (let at = 0; at < shown.length; at += MAX_LINE_CHARS) {
      this.#onLine(shown.slice(at, at + MAX_LINE_CHARS));
    }
  }
}

/** The last lines of standard error. */
export class LastLines {
  #lines: string[] = [];

  push(line: string): void {
    this.#lines.push(line);
    if (this.#lines.length > KEPT_LINES) this.#lines.shift();
  }

  get text(): string {
    return this.#lines.join('\n').slice(-KEPT_CHARS);
  }
}
