// Counts the calls of users and workers. Loaded only if calls are limited.
import type { CreateRateCounter, RateGate, RateLimits } from '../api/limits/rate-limit.ts';
import type { WorkerAllowance, WorkerLimits } from '../api/worker/worker-allowance.ts';
import type { Queues } from '../queue/queues.ts';

export async function openWorkerAllowance(
  limits: WorkerLimits | undefined,
  { workerLoads }: Pick<Queues, 'workerLoads'>,
  createCounter: CreateRateCounter | undefined,
): Promise<WorkerAllowance | undefined> {
  if (!limits) return undefined;
  const { WorkerAllowance } = await import('../api/worker/worker-allowance.ts');
  const isPresent = (endpointId: string, id: string) => workerLoads.isPresent(endpointId, id);
  return new WorkerAllowance({ limits, isPresent, createCounter });
}

export async function openRateGate(
  limits: RateLimits | undefined,
  createCounter: CreateRateCounter | undefined,
): Promise<RateGate | undefined> {
  if (!limits) return undefined;
  const { RateGate } = await import('../api/limits/rate-limit.ts');
  return new RateGate(limits, createCounter);
}
