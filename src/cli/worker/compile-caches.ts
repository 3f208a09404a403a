// Where libraries keep the code that they compile for a GPU: in the state folder, so that it outlives the worker.
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';

/** Its name is not that of a worker. */
const FOLDER = '.caches';

const CACHES = {
  TORCHINDUCTOR_CACHE_DIR: 'inductor',
  TRITON_CACHE_DIR: 'triton',
  NUMBA_CACHE_DIR: 'numba',
  CUDA_CACHE_PATH: 'cuda',
};

/** The variables that no one has set, with their folders, which are created. */
export function chooseCompileCaches(
  stateDir: string | undefined,
  readVariable: (name: string) => string | undefined,
): Record<string, string> {
  if (stateDir === undefined) return {};
  const chosen: Record<string, string> = {};
  for (const [variable, name] of Object.entries(CACHES)) {
    if (readVariable(variable) !== undefined) continue;
    const folder = join(resolve(stateDir), FOLDER, name);
    try {
      // It holds code that the worker runs.
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      chosen[variable] = folder;
    } catch {
      // The worker says what is wrong with its state folder; the library has a default.
    }
  }
  return chosen;
}
