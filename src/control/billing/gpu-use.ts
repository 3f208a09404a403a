// Adds the GPU time in which workers ran attempts to the bill of their endpoint, beside the time for which their
// containers had the GPUs. The queue of the endpoint counts it; the scaler asks for the count.

import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { logLevelOf, type Store } from '../../store/store.ts';
import { addBusyTime } from './bill-rows.ts';

const KIND = 'gpu_use';
/** Time between two writes for an endpoint with work, ms. */
const WRITTEN_MS = 60_000;

/** What a queue has counted. */
export interface GpuCount {
  /** When it began to count, Unix ms: another one begins at 0 again. */
  since: number;
  /** GPUs × ms of attempts that ended. */
  ms: number;
}

const storedCount = z.object({ since: z.number(), ms: z.number() });

export interface GpuUseOptions {
  store: Store;
  clock: Clock;
  log: Log;
}

interface CountedLoad {
  gpuCount?: GpuCount | undefined;
  waiting: number;
  running: number;
}

export class GpuUse {
  readonly #options: GpuUseOptions;
  /** What is on the bill, by endpoint. */
  readonly #written = new Map<string, GpuCount & { at: number }>();

  constructor(options: GpuUseOptions) {
    this.#options = options;
  }

  /** Adds what the count has grown by. Never rejects: what is missing is added by a later call. */
  async note({ id, userId }: { id: string; userId: string }, load: CountedLoad): Promise<void> {
    const { gpuCount: count, running, waiting } = load;
    if (!count || count.ms === 0) return;
    const { clock, log, store } = this.#options;
    const now = clock.now();
    const written = this.#written.get(id);
    if (written?.since === count.since && written.ms === count.ms) return;
    const isBusy = running > 0 || waiting > 0;
    if (written && isBusy && now - written.at < WRITTEN_MS) return;
    try {
      await store.write((tx) => {
        const endpoint = tx.endpoint(id);
        if (!endpoint || endpoint.deleted) return;
        const row = tx.resource({ kind: KIND, id });
        const before = row && storedCount.parse(JSON.parse(row.body));
        const ms = count.ms - (before?.since === count.since ? before.ms : 0);
        if (ms <= 0) return;
        addBusyTime(tx, { kind: 'endpoint', id, userId, name: null }, { now, ms });
        const body = JSON.stringify(count);
        tx.putResource({ kind: KIND, id, userId, parent: id, position: 0, body });
      });
      this.#written.set(id, { ...count, at: now });
    } catch (err) {
      log[logLevelOf(err)]({ err, endpoint: id }, 'adding GPU time to the bill failed, retrying');
    }
  }

  /** The endpoint was deleted. */
  forget(endpointId: string): void {
    this.#written.delete(endpointId);
  }
}
