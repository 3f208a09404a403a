// The pods on this machine that run without a platform: how many there are, and their end. The platform of their
// data folder must not be running.
import type { Log } from '../../base/log.ts';
import type { EngineKind } from '../../control/endpoints/templates.ts';
import { type Container, type Engine, EngineError } from '../../engine/engine.ts';
import type { KubernetesChoice } from '../files/kubernetes-file.ts';
import { openEngine } from '../machine.ts';
import { PlatformOptionError } from '../option-error.ts';

export interface LeftPods {
  kind: EngineKind;
  dockerHost?: string | undefined;
  kubernetes?: KubernetesChoice | undefined;
  dataFolder: string;
  log: Log;
}

/** An engine that does not answer must not delay the end of a platform, ms. */
const COUNT_MS = 3_000;

/** 0 if the engine does not answer. */
export function countLeftPods(place: LeftPods): Promise<number> {
  const counting = withEngine(place, async (engine) => (await listRunning(engine)).length);
  const { promise: late, resolve } = Promise.withResolvers<number>();
  const timer = setTimeout(() => resolve(0), COUNT_MS);
  return Promise.race([counting.catch(() => 0), late]).finally(() => clearTimeout(timer));
}

/**
 * Sends SIGTERM to each pod, and SIGKILL after `graceMs`. Their records stay as they are, so the next platform
 * starts the pods that it still wants. Resolves with how many it has stopped.
 * @throws PlatformOptionError if the engine does not answer
 */
export async function stopLeftPods(place: LeftPods, graceMs: number): Promise<number> {
  try {
    return await withEngine(place, async (engine) => {
      const ids = await listRunning(engine);
      await Promise.all(ids.map((id) => engine.stop(id, graceMs)));
      return ids.length;
    });
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    throw new PlatformOptionError('unusable', 'compute.engine', error.message);
  }
}

async function withEngine(
  place: LeftPods,
  act: (engine: Engine) => Promise<number>,
): Promise<number> {
  const engine = await openEngine({ ...place, devices: [], measureGpus: async () => [] });
  if (!engine) return 0;
  try {
    return await act(engine);
  } finally {
    await engine.close();
  }
}

async function listRunning(engine: Engine): Promise<string[]> {
  const containers = await engine.list();
  const isActive = ({ state }: Container) => state === 'running' || state === 'starting';
  return containers.filter(isActive).map(({ id }) => id);
}
