// Hands an output that has just been stored to the client that waits for it, instead of reading it back.
import type { Clock } from '../../base/clock.ts';
import type { JobKey, StoredJob } from '../../store/store.ts';

/** How long a report waits for the client, ms. The client reads the record in the same moments, unless it has gone. */
const OFFER_MS = 50;

/** Small outputs kept: together at most 4 MB. A client that has gone does not take its output. */
const SMALL = { bytes: 4_096, kept: 1_024 };

/** Attempts have outputs of their own: one that has lost its lease may report at the same time. */
type AttemptKey = Pick<StoredJob, 'endpointId' | 'id' | 'attempt'>;

interface Offer {
  bytes: Uint8Array;
  end: () => void;
}

export class FreshOutputs {
  readonly #clock: Clock;
  readonly #offers = new Map<string, Offer>();
  readonly #small = new Map<string, Uint8Array>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Call it before the commit that ends the job. The result ends the offer: it waits until a client has taken the
   * bytes, but not long. The caller must keep the bytes counted as in use until then.
   */
  offer(key: AttemptKey, bytes: Uint8Array): { end(isStored: boolean): Promise<void> } {
    const name = nameOf(key);
    const { promise: taken, resolve } = Promise.withResolvers<void>();
    const offer = { bytes, end: resolve };
    this.#offers.set(name, offer);
    const withdraw = () => {
      if (this.#offers.get(name) === offer) this.#offers.delete(name);
      resolve();
    };
    const end = async (isStored: boolean) => {
      if (!isStored) return withdraw();
      const cancel = this.#clock.after(OFFER_MS, withdraw);
      await taken;
      cancel();
    };
    return { end };
  }

  /**
   * Keeps a small output until a client has taken it. Call `drop` or `keep` within each operation that stores an
   * outcome: what is kept is then the output of the last one, even if others were undone.
   */
  keep(key: JobKey, bytes: Uint8Array): void {
    const name = nameJob(key);
    this.#small.delete(name);
    if (bytes.length > SMALL.bytes) return;
    const [oldest] = this.#small.size >= SMALL.kept ? this.#small.keys() : [];
    if (oldest !== undefined) this.#small.delete(oldest);
    // A copy: the given one may be a part of a request's buffer.
    this.#small.set(name, new Uint8Array(bytes));
  }

  drop(key: JobKey): void {
    if (this.#small.size > 0) this.#small.delete(nameJob(key));
  }

  /** Size of the kept output; undefined if none is kept. */
  keptBytes(key: JobKey): number | undefined {
    return this.#small.size > 0 ? this.#small.get(nameJob(key))?.length : undefined;
  }

  /** Returns the kept output of a job whose output is a value, once. */
  takeKept(key: JobKey): Uint8Array | undefined {
    if (this.#small.size === 0) return undefined;
    const name = nameJob(key);
    const bytes = this.#small.get(name);
    this.#small.delete(name);
    return bytes;
  }

  /** Returns the output of a job that has ended, once. The bytes must not be changed. */
  take(key: AttemptKey): Uint8Array | undefined {
    const offer = this.#offers.get(nameOf(key));
    offer?.end();
    this.#offers.delete(nameOf(key));
    return offer?.bytes;
  }
}

function nameOf({ attempt, ...key }: AttemptKey): string {
  return `${nameJob(key)} ${attempt}`;
}

function nameJob({ endpointId, id }: JobKey): string {
  return `${endpointId}/${id}`;
}
