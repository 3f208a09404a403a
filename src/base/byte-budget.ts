// Limits the bytes held in memory, in total and for each owner. Claims beyond a limit wait in line;
// while the whole budget is used up, the slowest granted claim is dropped so that the line moves.
import type { Clock } from './clock.ts';

/** Youngest age at which a claim may be dropped, ms: a younger one has had no time to move bytes. */
const MIN_DROP_AGE_MS = 5_000;
/** Time between two drops, ms. */
const DROP_EVERY_MS = 1_000;

export interface ByteBudgetOptions {
  clock: Clock;
  /** Limit of all claims together, bytes. A larger claim is granted when no other claim exists. */
  maxBytes: number;
  /** Limit of one owner's claims, bytes. A larger claim is granted when the owner has no other. */
  maxOwnerBytes: number;
}

/** The transfer that needs the bytes. */
export interface Transfer {
  owner: string;
  bytes: number;
  /** Bytes moved so far. Of two claims of the same age, the one with fewer bytes is the slower one. */
  moved: () => number;
  /** Ends the transfer. */
  drop: () => void;
}

/** Granted bytes; the owner gives them back. */
export interface Claim {
  /** Gives back the bytes beyond `bytes`. */
  shrink(bytes: number): void;
  release(): void;
}

export interface ClaimWait {
  /** Longest wait in line, ms. Infinity: wait until the signal aborts. */
  waitMs: number;
  signal?: AbortSignal;
}

interface Granted extends Transfer {
  since: number;
}

interface PendingClaim {
  transfer: Transfer;
  grant: (claim: Claim) => void;
}

export class ByteBudget {
  readonly #options: ByteBudgetOptions;
  readonly #granted = new Set<Granted>();
  readonly #ownerBytes = new Map<string, number>();
  readonly #line = new Set<PendingClaim>();
  #usedBytes = 0;
  #cancelDrop: (() => void) | undefined;

  constructor(options: ByteBudgetOptions) {
    this.#options = options;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Claims without waiting. Undefined if the budget is full or other claims wait. */
  tryClaim(transfer: Transfer): Claim | undefined {
    const isFree = this.#fits(transfer) === 'yes' && !this.#cancelDrop;
    return isFree ? this.#grant(transfer) : undefined;
  }

  /** Waits for the bytes. Undefined if they did not become free in time. */
  claim(transfer: Transfer, { signal, waitMs }: ClaimWait): Promise<Claim | undefined> {
    const claim = this.tryClaim(transfer);
    if (claim || signal?.aborted || waitMs <= 0) return Promise.resolve(claim);
    return new Promise((resolve) => {
      const end = (granted?: Claim) => {
        cancel?.();
        signal?.removeEventListener('abort', giveUp);
        this.#line.delete(waiting);
        resolve(granted);
      };
      const giveUp = () => {
        end();
        this.#moveLine();
      };
      const cancel = Number.isFinite(waitMs)
        ? this.#options.clock.after(waitMs, giveUp)
        : undefined;
      const waiting: PendingClaim = { transfer, grant: end };
      signal?.addEventListener('abort', giveUp, { once: true });
      this.#line.add(waiting);
      this.#moveLine();
    });
  }

  #fits({ bytes, owner }: Transfer): 'yes' | 'owner full' | 'full' {
    const { maxBytes, maxOwnerBytes } = this.#options;
    const own = this.#ownerBytes.get(owner) ?? 0;
    if (own > 0 && own + bytes > maxOwnerBytes) return 'owner full';
    return this.#usedBytes > 0 && this.#usedBytes + bytes > maxBytes ? 'full' : 'yes';
  }

  #grant(transfer: Transfer): Claim {
    const granted = { ...transfer, since: this.#options.clock.now() };
    this.#granted.add(granted);
    this.#count(transfer.owner, transfer.bytes);
    const giveBack = (bytes: number) => {
      granted.bytes -= bytes;
      this.#count(transfer.owner, -bytes);
      this.#moveLine();
    };
    return {
      shrink: (bytes) => {
        if (this.#granted.has(granted) && bytes < granted.bytes) giveBack(granted.bytes - bytes);
      },
      release: () => {
        if (this.#granted.delete(granted)) giveBack(granted.bytes);
      },
    };
  }

  #count(owner: string, bytes: number): void {
    this.#usedBytes += bytes;
    const own = (this.#ownerBytes.get(owner) ?? 0) + bytes;
    if (own > 0) this.#ownerBytes.set(owner, own);
    else this.#ownerBytes.delete(owner);
  }

  /**
   * Grants claims of owners with the fewest bytes first. A large claim at the head delays the
   * smaller ones behind it; otherwise it might wait forever.
   */
  #moveLine(): void {
    for (;;) {
      const next = this.#findNext();
      if (!next) {
        this.#stopDropping();
        return;
      }
      if (this.#fits(next.transfer) === 'full') {
        this.#startDropping();
        return;
      }
      next.grant(this.#grant(next.transfer));
    }
  }

  #findNext(): PendingClaim | undefined {
    let best: PendingClaim | undefined;
    let bestBytes = Infinity;
    for (const waiting of this.#line) {
      const own = this.#ownerBytes.get(waiting.transfer.owner) ?? 0;
      if (own >= bestBytes || this.#fits(waiting.transfer) === 'owner full') continue;
      best = waiting;
      bestBytes = own;
    }
    return best;
  }

  #startDropping(): void {
    this.#cancelDrop ??= this.#options.clock.after(DROP_EVERY_MS, () => {
      this.#cancelDrop = undefined;
      this.#findSlowest()?.drop();
      this.#moveLine();
    });
  }

  #stopDropping(): void {
    this.#cancelDrop?.();
    this.#cancelDrop = undefined;
  }

  #findSlowest(): Granted | undefined {
    const now = this.#options.clock.now();
    let slowest: Granted | undefined;
    let lowest = Infinity;
    for (const granted of this.#granted) {
      const ageMs = now - granted.since;
      const rate = granted.moved() / ageMs;
      if (ageMs < MIN_DROP_AGE_MS || rate >= lowest) continue;
      slowest = granted;
      lowest = rate;
    }
    return slowest;
  }
}

// The memory of byte arrays: the garbage collector sees only the small objects that refer to them and may keep tens of
// megabytes.

/** Smaller arrays may share a pool, and cost little. */
const WORTH_BYTES = 16_384;

/**
 * Detaches the memory of `bytes`, which are empty afterwards; call it only if no code reads them
 * again. Does nothing if the buffer holds more than `othersBytes` besides them.
 */
export function giveBack({ buffer, byteLength }: Uint8Array, othersBytes = 0): void {
  const isOwn = buffer.byteLength - byteLength <= othersBytes;
  if (isOwn && byteLength >= WORTH_BYTES && buffer instanceof ArrayBuffer) buffer.transfer(0);
}
