// Hands a large output that has just been stored to the client that waits for it, instead of reading it back.
import type { Clock } from '../../base/clock.ts';
import type { StoredJob } from '../../store/store.ts';

/** How long a report waits for the client, ms. The client reads the record in the same moments, unless it has gone. */
const OFFER_MS = 50;

/** Attempts have outputs of their own: one that has lost its lease may report at the same time. */
type AttemptKey = Pick<StoredJob, 'endpointId' | 'id' | 'attempt'>;

interface Offer {
  bytes: Uint8Array;
  end: () => void;
}

export class FreshOutputs {
  readonly #clock: Clock;
  readonly #offers = new Map<string, Offer>();

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

  /** Returns the output of a job that has ended, once. The bytes must not be changed. */
  take(key: AttemptKey): Uint8Array | undefined {
    const offer = this.#offers.get(nameOf(key));
    offer?.end();
    this.#offers.delete(nameOf(key));
    return offer?.bytes;
  }
}

function nameOf({ attempt, endpointId, id }: AttemptKey): string {
  return `${endpointId}/${id} ${attempt}`;
}
