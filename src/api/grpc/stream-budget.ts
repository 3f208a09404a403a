// The bytes that one user's gRPC streams may hold in memory, as claims in the budget of all worker calls, over HTTP and
// gRPC; and the meter of messages that are still arriving.
import type { ByteBudget, Claim, Transfer } from '../../base/byte-budget.ts';
import { StallWatch, type StallWatchOptions } from '../../base/stall-watch.ts';
import { PIECE_BYTES } from '../../wire/link/worker-stream.ts';

export type UserTransfer = Omit<Transfer, 'owner'>;

export class StreamBudget {
  readonly #budget: ByteBudget;
  readonly #owner: string;

  constructor(budget: ByteBudget, owner: string) {
    this.#budget = budget;
    this.#owner = owner;
  }

  tryClaim(transfer: UserTransfer): Claim | undefined {
    return this.#budget.tryClaim({ ...transfer, owner: this.#owner });
  }

  /** Waits without a limit. Undefined if the signal has aborted. */
  claim(transfer: UserTransfer, signal: AbortSignal): Promise<Claim | undefined> {
    const waiting = { waitMs: Number.POSITIVE_INFINITY, signal };
    return this.#budget.claim({ ...transfer, owner: this.#owner }, waiting);
  }
}

/** gRPC's framing before each message: a flag and the length. */
const PREFIX_BYTES = 5;
/** Workers send payloads in pieces; a piece with its header is not claimed. */
const UNCLAIMED_BYTES = PIECE_BYTES + 1_024;

export interface MessageMeterOptions extends StallWatchOptions {
  budget: StreamBudget;
  /** The budget has no bytes for a large message, or its claim was dropped. */
  onExcess: () => void;
}

/**
 * Meters the incomplete messages of one HTTP/2 stream. The gRPC library buffers up to 32 MB of each: large ones are
 * claimed, and all must make progress.
 */
export class MessageMeter {
  readonly #options: MessageMeterOptions;
  readonly #stalls: StallWatch;
  #prefix = Buffer.alloc(0);
  #length = 0;
  #received = 0;
  #release: (() => void) | undefined;

  constructor(options: MessageMeterOptions) {
    this.#options = options;
    this.#stalls = new StallWatch(options);
  }

  add(data: Buffer): void {
    for (let at = 0; at < data.length; ) {
      if (this.#prefix.length === 0) this.#stalls.begin();
      if (this.#prefix.length < PREFIX_BYTES) at = this.#addPrefix(data, at);
      else {
        const end = Math.min(data.length, at + this.#length - this.#received);
        this.#received += end - at;
        at = end;
      }
      if (this.#prefix.length === PREFIX_BYTES && this.#received === this.#length) this.#complete();
    }
    this.#stalls.move();
  }

  stop(): void {
    this.#stalls.stop();
    this.#release?.();
  }

  #addPrefix(data: Buffer, at: number): number {
    const end = Math.min(data.length, at + PREFIX_BYTES - this.#prefix.length);
    this.#prefix = Buffer.concat([this.#prefix, data.subarray(at, end)]);
    if (this.#prefix.length === PREFIX_BYTES) this.#begin(this.#prefix.readUInt32BE(1));
    return end;
  }

  #begin(length: number): void {
    const { budget, onExcess } = this.#options;
    this.#length = length;
    this.#received = 0;
    if (length <= UNCLAIMED_BYTES) return;
    const claim = budget.tryClaim({ bytes: length, moved: () => this.#received, drop: onExcess });
    if (claim) this.#release = () => claim.release();
    else onExcess();
  }

  #complete(): void {
    this.#release?.();
    this.#release = undefined;
    this.#prefix = Buffer.alloc(0);
    this.#stalls.end();
  }
}
