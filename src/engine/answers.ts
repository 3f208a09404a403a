// Reads what engines answer, within bounds: bodies, streams of JSON documents, and the end of a container's log. `ChangeFeed`
// follows an engine's stream of changes while somebody listens, and opens it again when it ends or fails.

import { setMaxListeners } from 'node:events';
import { type BackoffOptions, backoffMs } from '../base/backoff.ts';
import { type Clock, sleep } from '../base/clock.ts';
import { iterateLines } from '../base/text/line-reader.ts';

const MAX_BYTES = 256 * 1_048_576;
/** Bytes that are read of an error; the rest is ignored. */
const MAX_ERROR_BYTES = 65_536;

/** @throws Error if the body is too large */
export async function readBody(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > MAX_BYTES) throw new Error(`the answer has more than ${MAX_BYTES} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** The start of an error's text. */
export async function readErrorText(body: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes >= MAX_ERROR_BYTES) break;
  }
  return Buffer.concat(pieces).subarray(0, MAX_ERROR_BYTES).toString();
}

/** Of one document; the largest ones are Pods with their annotations. */
const MAX_LINE_CHARS = 4 * 1_048_576;

/** @throws Error for a line that is too long or no JSON */
export async function* readDocuments(
  stream: AsyncIterable<string | Buffer>,
): AsyncGenerator<unknown> {
  for await (const line of iterateLines(stream, MAX_LINE_CHARS)) {
    if (line.trim() !== '') yield JSON.parse(line);
  }
}

/** `open`: the given number of lines at the end of the log; undefined if the container has no log. */
export async function readLogTail(
  open: (lines: number) => Promise<AsyncIterable<Buffer> | undefined>,
  maxBytes: number,
): Promise<Uint8Array> {
  let tail: Uint8Array = new Uint8Array();
  // First as many lines as usually fill the bytes, then as many as possibly can.
  for (const lines of [Math.ceil(maxBytes / 64), maxBytes]) {
    const read = await readTail((await open(lines)) ?? [], maxBytes);
    tail = read.tail;
    if (tail.length >= maxBytes || read.lines < lines) break;
  }
  return tail;
}

/** Holds little more than the bytes in memory, because a container may write lines of any length. */
async function readTail(
  log: AsyncIterable<Buffer> | Iterable<Buffer>,
  maxBytes: number,
): Promise<{ tail: Uint8Array; lines: number }> {
  const pieces: Buffer[] = [];
  let [kept, lines] = [0, 0];
  for await (const piece of log) {
    pieces.push(piece);
    kept += piece.length;
    for (let at = piece.indexOf('\n'); at !== -1; at = piece.indexOf('\n', at + 1)) lines++;
    while (pieces[0] && kept - pieces[0].length >= maxBytes) kept -= pieces.shift()?.length ?? 0;
  }
  return { tail: Buffer.concat(pieces).subarray(-maxBytes), lines };
}

const RETRY_PACE: BackoffOptions = { baseMs: 200, maxMs: 5_000, jitter: 0.2 };

/** One stream of changes, from its opening to its end. */
export interface ChangeStream {
  /** Ends the stream when nobody listens any more. */
  signal: AbortSignal;
  /** The stream is open: the next failure is the first one. */
  opened(): void;
  /** A container may have changed; no effect after the end. */
  changed(id: string): void;
}

export interface ChangeFeedOptions {
  /** Opens the stream and reads it to its end. Reports all containers once, because changes before it were lost. */
  read(stream: ChangeStream): Promise<void>;
  onFailure(error: unknown): void;
  clock: Clock;
}

export class ChangeFeed {
  readonly #options: ChangeFeedOptions;
  readonly #listeners = new Set<(id: string) => void>();
  #end: AbortController | undefined;

  constructor(options: ChangeFeedOptions) {
    this.#options = options;
  }

  /** @returns the function that stops it */
  listen(onChange: (id: string) => void): () => void {
    // A separate function for each call, so that two registrations of one listener can stop
    // separately.
    const listener = (id: string) => onChange(id);
    this.#listeners.add(listener);
    if (!this.#end) this.#begin();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.close();
    };
  }

  close(): void {
    this.#end?.abort();
    this.#end = undefined;
  }

  #begin(): void {
    this.#end = new AbortController();
    // Each connection attempt adds a listener.
    setMaxListeners(0, this.#end.signal);
    void this.#follow(this.#end.signal);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { clock, onFailure, read } = this.#options;
    let failures = 0;
    const stream: ChangeStream = {
      signal,
      opened: () => {
        failures = 0;
      },
      changed: (id) => {
        if (!signal.aborted) for (const listener of this.#listeners) listener(id);
      },
    };
    while (!signal.aborted) {
      try {
        await read(stream);
      } catch (error) {
        if (signal.aborted) return;
        failures++;
        onFailure(error);
      }
      await sleep(clock, backoffMs(Math.max(1, failures), RETRY_PACE), signal);
    }
  }
}
