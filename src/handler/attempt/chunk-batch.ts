// Collects the outgoing chunks of one attempt for one turn of the event loop, and counts them against
// the window that the receiver grants.

import { COMMA } from '../../wire/json-bytes.ts';
import {
  bufferAlloc,
  clearImmediate,
  copyBytes,
  max,
  setImmediate,
} from '../../wire/primordials.ts';

/** Large enough to make the cost of a message negligible, small enough to be sent soon. */
const FLUSH_BYTES = 128 * 1024;

/** Chunks of one message: their JSON joined by commas, and the size of each. */
export interface YieldedChunks {
  sizes: number[];
  bytes: Uint8Array;
}

export class ChunkBatcher {
  readonly #windowBytes: number;
  readonly #send: (batch: YieldedChunks) => void;
  #chunks: Buffer[] = [];
  #pendingBytes = 0;
  #immediate: NodeJS.Immediate | undefined;
  #undeliveredBytes = 0;
  #resume: (() => void) | undefined;

  constructor(windowBytes: number, send: (batch: YieldedChunks) => void) {
    this.#windowBytes = windowBytes;
    this.#send = send;
  }

  /** More bytes are undelivered than granted: nothing should be added now. */
  get isFull(): boolean {
    return this.#undeliveredBytes > this.#windowBytes;
  }

  add(chunk: Buffer): void {
    this.#chunks[this.#chunks.length] = chunk;
    this.#pendingBytes += chunk.length;
    this.#undeliveredBytes += chunk.length;
    if (this.#pendingBytes >= FLUSH_BYTES) this.flush();
    else this.#immediate ??= setImmediate(() => this.flush());
  }

  flush(): void {
    if (this.#immediate) clearImmediate(this.#immediate);
    this.#immediate = undefined;
    if (this.#chunks.length === 0) return;
    const chunks = this.#chunks;
    const sizes: number[] = [];
    for (let index = 0; index < chunks.length; index += 1)
      sizes[index] = chunks[index]?.length ?? 0;
    this.#chunks = [];
    const bytes = joinByCommas(chunks, this.#pendingBytes + chunks.length - 1);
    this.#pendingBytes = 0;
    this.#send({ sizes, bytes });
  }

  grant(bytes: number): void {
    this.#undeliveredBytes = max(0, this.#undeliveredBytes - bytes);
    if (!this.isFull) this.release();
  }

  /** Resolves when bytes are granted, or on `release`. */
  waitForGrant(): Promise<void> {
    this.flush();
    return new Promise((resolve) => {
      this.#resume = resolve;
    });
  }

  /** Releases the waiting caller, whether bytes are granted or not. */
  release(): void {
    const resume = this.#resume;
    this.#resume = undefined;
    resume?.();
  }
}

function joinByCommas(chunks: readonly Buffer[], length: number): Uint8Array {
  const first = chunks[0];
  if (first !== undefined && chunks.length === 1) return first;
  // Not from Buffer's pool, because the whole memory is transferred to another thread.
  const joined = bufferAlloc(length);
  let at = 0;
  for (let index = 0; index < chunks.length; index += 1) {
    const chunk = chunks[index];
    if (chunk === undefined) break;
    if (at > 0) joined[at++] = COMMA;
    copyBytes(joined, chunk, at);
    at += chunk.length;
  }
  return joined;
}
