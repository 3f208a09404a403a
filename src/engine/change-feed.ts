// Follows an engine's stream of changes while somebody listens, and opens it again when it ends or fails.
import { setMaxListeners } from 'node:events';
import { type BackoffOptions, backoffMs } from '../base/backoff.ts';
import { type Clock, sleep } from '../base/clock.ts';

const RETRY_PACE: BackoffOptions = { baseMs: 200, maxMs: 5_000, jitter: 0.2 };

/** One stream of changes, from its opening to its end. */
export interface ChangeStream {
  /** Ends the stream when nobody listens any more. */
  signal: AbortSignal;
  /** The stream is open: the next failure is the first one. */
  opened(): void;
  /** A container may have changed; no effect after the end. */
  changed(id: string): void;
}

export interface ChangeFeedOptions {
  /** Opens the stream and reads it to its end. Reports all containers once, because changes before it were lost. */
  read(stream: ChangeStream): Promise<void>;
  onFailure(error: unknown): void;
  clock: Clock;
}

export class ChangeFeed {
  readonly #options: ChangeFeedOptions;
  readonly #listeners = new Set<(id: string) => void>();
  #end: AbortController | undefined;

  constructor(options: ChangeFeedOptions) {
    this.#options = options;
  }

  /** @returns the function that stops it */
  listen(onChange: (id: string) => void): () => void {
    // A separate function for each call, so that two registrations of one listener can stop
    // separately.
    const listener = (id: string) => onChange(id);
    this.#listeners.add(listener);
    if (!this.#end) this.#begin();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.close();
    };
  }

  close(): void {
    this.#end?.abort();
    this.#end = undefined;
  }

  #begin(): void {
    this.#end = new AbortController();
    // Each connection attempt adds a listener.
    setMaxListeners(0, this.#end.signal);
    void this.#follow(this.#end.signal);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { clock, onFailure, read } = this.#options;
    let failures = 0;
    const stream: ChangeStream = {
      signal,
      opened: () => {
        failures = 0;
      },
      changed: (id) => {
        if (!signal.aborted) for (const listener of this.#listeners) listener(id);
      },
    };
    while (!signal.aborted) {
      try {
        await read(stream);
      } catch (error) {
        if (signal.aborted) return;
        failures++;
        onFailure(error);
      }
      await sleep(clock, backoffMs(Math.max(1, failures), RETRY_PACE), signal);
    }
  }
}
