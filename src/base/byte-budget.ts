// A budget of bytes held in memory, shared by owners. Claims beyond it wait in line; while the whole budget
// is used up, the slowest of the claims is dropped so that the line moves.
import type { Clock } from './clock.ts';

/** A claim becomes a candidate for a drop at this age, ms: at the start nothing has moved yet. */
const MIN_DROP_AGE_MS = 5_000;
/** Time between two drops, ms. */
const DROP_EVERY_MS = 1_000;

export interface ByteBudgetOptions {
  clock: Clock;
  /** Bytes of all claims together. A larger claim is granted when there is no other. */
  maxBytes: number;
  /** Bytes of all claims of one owner. A larger claim is granted when the owner has no other. */
  maxOwnerBytes: number;
}

/** What the bytes are for. */
export interface Transfer {
  owner: string;
  bytes: number;
  /** Bytes moved so far: of two claims of the same age the one with fewer is the slower one. */
  moved: () => number;
  /** Ends the transfer. */
  drop: () => void;
}

/** Granted bytes, until they are given back. */
export interface Claim {
  /** Fewer bytes are needed than were claimed. */
  shrink(bytes: number): void;
  release(): void;
}

export interface ClaimWait {
  /** Longest wait in line, ms. Infinity: until the signal. */
  waitMs: number;
  signal?: AbortSignal;
}

interface Granted extends Transfer {
  since: number;
}

interface Waiting {
  transfer: Transfer;
  grant: (claim: Claim) => void;
}

export class ByteBudget {
  readonly #options: ByteBudgetOptions;
  readonly #granted = new Set<Granted>();
  readonly #ownerBytes = new Map<string, number>();
  readonly #line = new Set<Waiting>();
  #usedBytes = 0;
  #cancelDrop: (() => void) | undefined;

  constructor(options: ByteBudgetOptions) {
    this.#options = options;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Claims at once, unless the budget is full or others wait for it. */
  tryClaim(transfer: Transfer): Claim | undefined {
    const isFree = this.#fits(transfer) === 'yes' && !this.#cancelDrop;
    return isFree ? this.#grant(transfer) : undefined;
  }

  /** Undefined if the bytes were not to be had in time. */
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
      const waiting: Waiting = { transfer, grant: end };
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

  /** Owners with the least come first. A large claim at the head holds up the smaller ones behind it. */
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

  #findNext(): Waiting | undefined {
    let best: Waiting | undefined;
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
