// Small inputs of jobs that were submitted a moment ago, so that their lease reads nothing from the database.
import type { JobKey } from '../store.ts';

/** Inputs kept; each has at most `INLINE_BYTES`, so all together about 4 MB. */
const KEPT = 4_096;

/**
 * An input never changes and IDs of jobs are used once, so what is remembered is right even if the operation that
 * did so was undone.
 */
export class RecentInputs {
  readonly #inputs = new Map<string, Uint8Array>();
  readonly #kept: number;

  constructor(kept = KEPT) {
    this.#kept = kept;
  }

  put({ endpointId, id }: JobKey, input: Uint8Array): void {
    const [oldest] = this.#inputs.keys();
    if (oldest !== undefined && this.#inputs.size >= this.#kept) this.#inputs.delete(oldest);
    // A copy: the given one may be a part of a request's buffer.
    this.#inputs.set(nameOf(endpointId, id), new Uint8Array(input));
  }

  /** Returns it and forgets it: after its lease a job seldom needs its input again. */
  take({ endpointId, id }: JobKey): Uint8Array | undefined {
    const name = nameOf(endpointId, id);
    const input = this.#inputs.get(name);
    if (input) this.#inputs.delete(name);
    return input;
  }
}

function nameOf(endpointId: string, id: string): string {
  return `${endpointId}/${id}`;
}
