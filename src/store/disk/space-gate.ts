// Decides what is written while the disk is full: only what ends or removes something, out of a reserve.

import type { WriteOptions } from '../store.ts';
import type { DiskReserve } from './disk-reserve.ts';

/**
 * Share of the reserve that payloads may use. Each is written twice, to the write-ahead log and to the
 * file; the rest stays for cancellations and removals.
 */
const PAYLOAD_SHARE = 0.25;

export class SpaceGate {
  readonly #reserve: DiskReserve;
  #isFull = false;
  #payloadLeft = 0;

  constructor(reserve: DiskReserve) {
    this.#reserve = reserve;
  }

  /** The disk is full: new data is refused. */
  get isFull(): boolean {
    return this.#isFull;
  }

  admits({ onFullDisk = 'refuse', payloadBytes = 0 }: WriteOptions): boolean {
    if (!this.#isFull) return true;
    return onFullDisk === 'proceed' && payloadBytes <= this.#payloadLeft;
  }

  /** Payload that was committed. */
  spend(bytes: number): void {
    if (this.#isFull) this.#payloadLeft = Math.max(0, this.#payloadLeft - bytes);
  }

  /** The disk is full. Releases the reserve. @throws what the system says; then it stays open */
  close(): void {
    this.#reserve.release();
    if (!this.#isFull) this.#payloadLeft = Math.floor(this.#reserve.bytes * PAYLOAD_SHARE);
    this.#isFull = true;
  }

  /** There is space again, and the reserve is held. */
  open(): void {
    this.#isFull = false;
  }
}
