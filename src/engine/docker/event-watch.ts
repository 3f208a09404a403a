// Watches engine events and reports containers that may have changed. After a broken stream it
// reports all containers, because events were lost.
import { setMaxListeners } from 'node:events';
import { z } from 'zod';
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { DockerClient } from './docker-client.ts';
import { readDocuments } from './json-lines.ts';
import { filterBy, PLATFORM_LABEL, POD_LABEL } from './labels.ts';

const RETRY_PACE: BackoffOptions = { baseMs: 200, maxMs: 5_000, jitter: 0.2 };

/** Health checks run commands in the container; each one creates events. */
const NO_CHANGE = /^exec_/;

const event = z.object({
  Action: z.string().optional(),
  Actor: z.object({ Attributes: z.record(z.string(), z.string()).nullish() }).optional(),
});

export interface EventWatchOptions {
  client: DockerClient;
  platform: string;
  /** IDs of all containers. */
  listIds(): Promise<string[]>;
  clock: Clock;
  log: Log;
}

export class EventWatch {
  readonly #options: EventWatchOptions;
  readonly #listeners = new Set<(id: string) => void>();
  #end: AbortController | undefined;

  constructor(options: EventWatchOptions) {
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
    const { clock, log } = this.#options;
    for (let failures = 1; !signal.aborted; failures++) {
      try {
        await this.#read(signal, () => {
          failures = 0;
        });
      } catch (error) {
        if (signal.aborted) return;
        log.debug({ err: error }, 'reading engine events failed, retrying');
      }
      await sleep(clock, backoffMs(Math.max(1, failures), RETRY_PACE), signal);
    }
  }

  async #read(signal: AbortSignal, onOpen: () => void): Promise<void> {
    const { client, platform } = this.#options;
    const { label } = filterBy({ [PLATFORM_LABEL]: platform });
    const docker = await client.load();
    const events = await docker.getEvents({
      filters: { type: ['container'], label },
      abortSignal: signal,
    });
    onOpen();
    // Only after the stream is open: later changes are then in the stream.
    const ids = await this.#options.listIds();
    for (const id of ids) this.#notify(id, signal);
    for await (const document of readDocuments(events)) this.#noteEvent(document, signal);
  }

  #noteEvent(document: unknown, signal: AbortSignal): void {
    const { Action = '', Actor } = event.parse(document);
    const id = Actor?.Attributes?.[POD_LABEL];
    if (id !== undefined && !NO_CHANGE.test(Action)) this.#notify(id, signal);
  }

  #notify(id: string, signal: AbortSignal): void {
    if (signal.aborted) return;
    for (const listener of this.#listeners) listener(id);
  }
}
