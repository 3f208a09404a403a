// Watches the platform's Pods and reports containers that may have changed: lists all, then reads changes from there.
// A watch that ends, breaks off or has expired is the same: the next one begins with a list.
import { setMaxListeners } from 'node:events';
import { z } from 'zod';
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ApiClient } from './api-client.ts';
import { POD_LABEL } from './names.ts';
import { podList } from './pod-view.ts';

const RETRY_PACE: BackoffOptions = { baseMs: 200, maxMs: 5_000, jitter: 0.2 };
/** The list after it finds what a watch that hangs has not told, seconds. */
const WATCH_S = 60;
/** Beyond that, a watch that does not end by itself is given up, ms. */
const SLACK_MS = 10_000;
/** Of one change; Pods of others, with large annotations, are not in the watch. */
const MAX_LINE_BYTES = 4 * 1_048_576;

const change = z.object({
  type: z.string(),
  object: z.object({
    metadata: z.object({ labels: z.record(z.string(), z.string()).optional() }).optional(),
  }),
});

export interface PodWatchOptions {
  client: ApiClient;
  /** Label selector of the platform's Pods. */
  labelSelector: string;
  clock: Clock;
  log: Log;
}

export class PodWatch {
  readonly #options: PodWatchOptions;
  readonly #listeners = new Set<(id: string) => void>();
  #end: AbortController | undefined;

  constructor(options: PodWatchOptions) {
    this.#options = options;
  }

  /** @returns the function that stops it */
  listen(onChange: (id: string) => void): () => void {
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
    setMaxListeners(0, this.#end.signal);
    void this.#follow(this.#end.signal);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    for (let failures = 0; !signal.aborted; ) {
      try {
        await this.#read(signal, () => {
          failures = 0;
        });
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        failures++;
        log.debug({ err: error }, 'watching Pods failed, retrying');
        await sleep(clock, backoffMs(failures, RETRY_PACE), signal);
      }
    }
  }

  async #read(signal: AbortSignal, onOpen: () => void): Promise<void> {
    const { client, labelSelector } = this.#options;
    const path = await client.pathOf('pods');
    const answer = await client.ask({ method: 'GET', path, query: { labelSelector }, signal });
    const { items, metadata } = podList.parse(answer);
    for (const item of items) this.#notify(item.metadata.labels?.[POD_LABEL], signal);
    const limit = AbortSignal.timeout(WATCH_S * 1_000 + SLACK_MS);
    const { body } = await client.open({
      ...{ method: 'GET', path, signal: AbortSignal.any([signal, limit]) },
      query: {
        ...{ labelSelector, watch: 'true', allowWatchBookmarks: 'true' },
        timeoutSeconds: `${WATCH_S}`,
        ...(metadata?.resourceVersion !== undefined && {
          resourceVersion: metadata.resourceVersion,
        }),
      },
    });
    onOpen();
    for await (const line of readLines(body)) {
      const { object, type } = change.parse(JSON.parse(line));
      // 410 Gone: the changes since the list are not kept any more.
      if (type === 'ERROR') throw new Error(`the watch ended: ${line.slice(0, 500)}`);
      if (type !== 'BOOKMARK') this.#notify(object.metadata?.labels?.[POD_LABEL], signal);
    }
  }

  #notify(id: string | undefined, signal: AbortSignal): void {
    if (signal.aborted || id === undefined) return;
    for (const listener of this.#listeners) listener(id);
  }
}

/** @throws Error for a line that is too long */
async function* readLines(body: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const piece of body) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MAX_LINE_BYTES) throw new Error('a change of a Pod is too long');
    for (const line of lines) if (line.trim() !== '') yield line;
  }
}
