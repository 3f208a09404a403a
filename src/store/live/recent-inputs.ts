// Small inputs of jobs that were submitted a moment ago, so that their lease reads nothing from the database.
import type { JobKey } from '../store.ts';

/** Inputs kept; each has at most `INLINE_BYTES`, so all together about 4 MB. */
const KEPT = 4_096;
/**
 * Share of the inputs that are dropped together. The first key lies behind the places of all those that were removed, so
 * the search for it is slow.
 */
const DROPPED_SHARE = 16;

/**
 * An input never changes and IDs of jobs are used once, so what is remembered is right even if the operation that
 * did so was undone.
 */
export class RecentInputs {
  /** By job ID: a text of endpoint and ID would have to be made and hashed each time. */
  readonly #inputs = new Map<string, { endpointId: string; bytes: Uint8Array }>();
  readonly #kept: number;

  constructor(kept = KEPT) {
    this.#kept = kept;
  }

  put({ endpointId, id }: JobKey, input: Uint8Array): void {
    if (this.#inputs.size >= this.#kept) this.#dropOldest(Math.ceil(this.#kept / DROPPED_SHARE));
    // A copy: the given one may be a part of a request's buffer.
    this.#inputs.set(id, { endpointId, bytes: new Uint8Array(input) });
  }

  find({ endpointId, id }: JobKey): Uint8Array | undefined {
    const input = this.#inputs.get(id);
    // IDs are unique within an endpoint only.
    return input?.endpointId === endpointId ? input.bytes : undefined;
  }

  delete(key: JobKey): void {
    if (this.find(key)) this.#inputs.delete(key.id);
  }

  #dropOldest(count: number): void {
    let left = count;
    for (const id of this.#inputs.keys()) {
      if (left === 0) return;
      this.#inputs.delete(id);
      left -= 1;
    }
  }
}
