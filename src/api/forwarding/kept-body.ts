// A copy of a large body on its way to another node, so that the request can be sent again if that node dies.
import type { IncomingMessage } from 'node:http';
import type { Clock } from '../../base/clock.ts';

export interface KeptBodyLimits {
  clock: Clock;
  /** Longest time in which the rest of the body arrives, ms. */
  stallMs: number;
  /** Aborts when the client disconnects. */
  gone: AbortSignal;
}

export class KeptBody {
  readonly #raw: IncomingMessage;
  readonly #pieces: Buffer[] = [];
  #missing: number;
  #isBegun = false;

  /** `bytes`: the length that the client has announced. */
  constructor(raw: IncomingMessage, bytes: number) {
    this.#raw = raw;
    this.#missing = bytes;
  }

  /** Call it when the body begins to flow. */
  begin(): void {
    if (this.#isBegun) return;
    this.#isBegun = true;
    this.#raw.on('data', (piece: Buffer) => {
      this.#pieces.push(piece);
      this.#missing -= piece.length;
    });
  }

  /** Waits for the rest, which flows. Undefined if it does not arrive. */
  async finish({ clock, gone, stallMs }: KeptBodyLimits): Promise<Buffer | undefined> {
    if (this.#missing > 0 && !gone.aborted) await this.#untilEnd({ clock, gone, stallMs });
    return this.#missing === 0 ? Buffer.concat(this.#pieces) : undefined;
  }

  #untilEnd({ clock, gone, stallMs }: KeptBodyLimits): Promise<void> {
    const raw = this.#raw;
    return new Promise((resolve) => {
      const end = () => {
        cancel();
        raw.off('end', end).off('error', end);
        gone.removeEventListener('abort', end);
        resolve();
      };
      const cancel = clock.after(stallMs, end);
      raw.on('end', end).on('error', end);
      gone.addEventListener('abort', end, { once: true });
    });
  }
}
