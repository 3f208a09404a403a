// Decides which writes are allowed while the disk is full: only those that end or remove something,
// within a reserve.

import type { WriteOptions } from '../store.ts';
import type { DiskReserve } from './disk-reserve.ts';

/**
 * Share of the reserve that payloads may use. On a full disk a payload goes into the database, which writes it twice: to
 * the write-ahead log and to its file. The rest is for cancellations and removals.
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

  /** Counts committed payload bytes. */
  spend(bytes: number): void {
    if (this.#isFull) this.#payloadLeft = Math.max(0, this.#payloadLeft - bytes);
  }

  /**
   * Called when the disk is full: releases the reserve. If that fails, the gate stays open. @throws
   * the system's error
   */
  close(): void {
    this.#reserve.release();
    if (!this.#isFull) this.#payloadLeft = Math.floor(this.#reserve.bytes * PAYLOAD_SHARE);
    this.#isFull = true;
  }

  /** Called when the disk has space again and the reserve is held. */
  open(): void {
    this.#isFull = false;
  }
}
