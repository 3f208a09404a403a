// Collects the bytes of a request body in place, of known and of unknown length.
import { Buffer } from 'node:buffer';
import { giveBack } from '../../base/byte-budget.ts';

/** From this size on, the memory of received parts is released at once. */
const LARGE_BYTES = 1_048_576;
/** First buffer for a body of unknown length. */
const FIRST_BYTES = 4_096;

/**
 * A body of unknown length is copied into a growing buffer, because it may arrive one byte at a
 * time.
 */
export class GrowingBody {
  #bytes = Buffer.alloc(0);
  #at = 0;

  add(chunk: Buffer): void {
    const end = this.#at + chunk.length;
    if (end > this.#bytes.length) this.#grow(end);
    this.#bytes.set(chunk, this.#at);
    this.#at = end;
  }

  whole(): Buffer {
    return this.#bytes.subarray(0, this.#at);
  }

  discard(): void {
    giveBack(this.#bytes);
  }

  #grow(bytes: number): void {
    const old = this.#bytes;
    this.#bytes = Buffer.allocUnsafeSlow(Math.max(bytes, old.length * 2, FIRST_BYTES));
    this.#bytes.set(old);
    giveBack(old);
  }
}

export class SizedBody {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(length: number) {
    this.#bytes =
      length >= LARGE_BYTES ? Buffer.allocUnsafeSlow(length) : Buffer.allocUnsafe(length);
  }

  add(chunk: Buffer): void {
    this.#bytes.set(chunk, this.#at);
    this.#at += chunk.length;
    if (this.#bytes.length >= LARGE_BYTES) giveBack(chunk);
  }

  whole(): Buffer {
    return this.#bytes;
  }

  discard(): void {
    giveBack(this.#bytes);
  }
}
