// Reads the weights that the last worker's models have named, from the start of the supervisor: beside the search for GPUs, the
// installation of packages, the start of the worker process and the loading of its handler.
import { join, resolve } from 'node:path';
import { readWeights } from '../../process/weights.ts';
import { recallWeights, WEIGHTS_VARIABLE, type WeightsMemory } from '../../process/weights-note.ts';
import { createTerminalLog } from '../terminal-log.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** Its name is not that of a worker. */
const FOLDER = '.weights';

export interface WeightsAhead {
  /** For the first worker processes. */
  first: Readonly<Record<string, string>>;
  /** For those that take their place. */
  later: Readonly<Record<string, string>>;
  /** The model is ready, or its start has failed. */
  end(): void;
}

/** Without a state folder, nothing is remembered. */
export function readWeightsAhead(
  { endpoint, logLevel, stateDir }: Pick<WorkerFlags, 'endpoint' | 'logLevel' | 'stateDir'>,
  startedAt = Date.now(),
): WeightsAhead | undefined {
  if (stateDir === undefined) return undefined;
  const path = join(resolve(stateDir), FOLDER, `${encodeURIComponent(endpoint)}.json`);
  const weights = recallWeights(path);
  const ending = new AbortController();
  const isReading = weights.length > 0;
  if (isReading) {
    const log = createTerminalLog(logLevel);
    // The files may have moved since: then the model says which ones it needs.
    const quiet = { info: log.info.bind(log), warn: log.debug.bind(log) };
    void readWeights({ weights, cwd: undefined, log: quiet, signal: ending.signal });
  }
  const name = (memory: Omit<WeightsMemory, 'path' | 'startedAt'>) => ({
    [WEIGHTS_VARIABLE]: JSON.stringify({ path, startedAt, ...memory } satisfies WeightsMemory),
  });
  return {
    first: name({ isReading }),
    later: name({ isReading: false }),
    end: () => ending.abort(),
  };
}
