// Turns a batch handler into a handler of single jobs: a collector in this thread puts the jobs together.
import type { LoadedHandler } from '../loading/load.ts';
import { BatchCollector, type CollectorOptions } from './collector.ts';

export type BatchHost = Omit<CollectorOptions, 'settings' | 'key' | 'run'>;

export interface BoundHandler {
  readonly handler: LoadedHandler;
  /** Undefined if the handler takes single jobs. */
  readonly batches: BatchCollector | undefined;
}

/** Call it once for each thread, or each executor that runs handlers in its own thread. */
export function bindBatches(handler: LoadedHandler, host: BatchHost): BoundHandler {
  if (!handler.batch) return { handler, batches: undefined };
  const batches = new BatchCollector({ ...handler.batch, ...host });
  return { handler: { ...handler, run: (job, ctx) => batches.join(job, ctx) }, batches };
}
