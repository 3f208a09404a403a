// Builds the seam's view of a container from its spec and its last run. Pure.
import type { Container } from '../../engine.ts';
import { isRunning, type SeenRun } from '../runs.ts';
import type { ContainerFolder } from './container-folders.ts';

export function describeContainer(
  { isDiskLimited, spec }: Pick<ContainerFolder, 'isDiskLimited' | 'spec'>,
  run: SeenRun | undefined,
): Container {
  const { generation, gpus, id, labels } = spec;
  const isLive = isRunning(run);
  return {
    id,
    generation,
    labels,
    state: isLive ? 'running' : run ? 'exited' : 'created',
    health: 'none',
    exitCode: run?.end?.code ?? null,
    outOfMemory: run?.end !== undefined && run.outOfMemory,
    hasDiskLimit: isDiskLimited,
    startedAt: run?.record?.startedAt ?? null,
    endedAt: run?.end?.at ?? null,
    ports: isLive ? run.record.ports : [],
    gpus: run?.record?.gpus ?? gpus,
    gpusAtStart: true,
    ip: null,
  };
}

/** Has no generation of its pod, so that a new container replaces it. */
export function describeDamaged(id: string): Container {
  return {
    ...{ id, generation: 0, labels: {}, state: 'exited', health: 'none' },
    ...{ exitCode: null, outOfMemory: false, startedAt: null, endedAt: null },
    ...{ hasDiskLimit: false, ports: [], gpus: [], ip: null },
  };
}
