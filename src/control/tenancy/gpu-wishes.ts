// Which GPUs the jobs of an endpoint lack, as its scaler's decision shows it.
import type { ScalerDecision, ScalerInput } from '../../wire/resources/scaling.ts';
import type { PodState } from '../pods/pod-state.ts';
import { countWorkers, groupWorkers, maximumOf, measureDemand } from '../scaling/scaler-demand.ts';
import type { GpuWaiter } from './gpu-plan.ts';

export type GpuWish = Pick<GpuWaiter, 'count' | 'gpuTypes' | 'isPlaced'>;

interface WishInput {
  input: ScalerInput;
  decision: ScalerDecision;
  /** Types of which workers may start now, in the endpoint's order. */
  gpuTypes: readonly string[];
  /** Pods of workers for which their cluster has no capacity. */
  crowded: readonly Pick<PodState, 'spec'>[];
  /** The check worker of a rollout waits for a GPU, and the endpoint has no worker that could give it one. */
  awaitsCheck: boolean;
}

/** A minimum of workers without jobs is no reason to take a GPU from anybody. */
export function listWishes(wish: WishInput): GpuWish[] {
  const { awaitsCheck, crowded, decision, gpuTypes, input } = wish;
  const placed = crowded.flatMap(({ spec }): GpuWish[] =>
    spec.gpu ? [{ count: spec.gpu.count, gpuTypes: [spec.gpu.id], isPlaced: true }] : [],
  );
  if (gpuTypes.length === 0) return placed;
  const check = awaitsCheck && !input.headroom?.budget ? [{ count: 1, gpuTypes }] : [];
  if (decision.cause !== 'no_gpu') return [...placed, ...check];
  const count = countLacking(input);
  const plain = count > 0 ? [{ count, gpuTypes }] : [];
  return [...placed, ...check, ...plain, ...listLater(input, gpuTypes)];
}

/** Not more than may start now: one worker after a crash, and none in the place of one that drains. */
function countLacking(input: ScalerInput): number {
  const { crashes, load, workers, workersMax } = input;
  const { outgrown = [] } = load;
  const apart = outgrown.reduce((sum, { waiting }) => sum + waiting, 0);
  const waiting = Math.max(0, load.waiting - apart);
  const groups = groupWorkers(workers);
  const { need } = measureDemand({ ...input, load: { ...load, waiting } }, groups);
  const missing = Math.min(need, workersMax) - groups.alive.length;
  const places = maximumOf(input) - countWorkers(workers);
  return Math.min(missing, places, crashes.streak > 0 ? 1 : missing);
}

/** Jobs that ran out of memory on a type need one worker of a later type. */
function listLater(
  { gpus = [], load, workers }: ScalerInput,
  gpuTypes: readonly string[],
): GpuWish[] {
  return (load.outgrown ?? []).flatMap(({ gpuType }) => {
    const index = gpus.findIndex(({ id }) => id === gpuType);
    const later = gpus.slice(index + 1).map(({ id }) => id);
    const isServed = workers.some(
      (worker) => worker.state !== 'draining' && later.includes(worker.gpuType ?? ''),
    );
    const startable = later.filter((id) => gpuTypes.includes(id));
    return isServed || startable.length === 0 ? [] : [{ count: 1, gpuTypes: startable }];
  });
}
