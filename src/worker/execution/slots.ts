// How many jobs a thread runs at a time.
import type { LoadedConfig } from '../../handler/loading/load.ts';

/**
 * Concurrent jobs in one thread. `concurrency` overrides the handler's config, except for a batch
 * handler: its batches in flight decide.
 */
export function countSlots(config: LoadedConfig, concurrency: number | undefined): number {
  if (config.batch) return config.batch.maxSize * config.batch.maxInFlight;
  if (config.isolation === 'job') return 1;
  return concurrency ?? config.concurrency ?? 1;
}
