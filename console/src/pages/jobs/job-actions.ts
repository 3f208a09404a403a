// Cancels and retries jobs, one or many.

import { ApiError, callOf } from '../../../../src/client/api-caller.ts';
import type { JobStatus } from '../../../../src/client.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { caller } from '../../platform/calls.ts';

export const ACTIONS = {
  cancel: { route: JOB_ROUTES.cancelJob, statuses: ['IN_QUEUE', 'IN_PROGRESS'] },
  retry: { route: JOB_ROUTES.retryJob, statuses: ['FAILED', 'TIMED_OUT'] },
} as const satisfies Readonly<Record<string, { statuses: readonly JobStatus[]; route: object }>>;
export type JobAction = keyof typeof ACTIONS;

export function allowsAction(action: JobAction, status: JobStatus): boolean {
  return ACTIONS[action].statuses.some((allowed) => allowed === status);
}

export async function actOnJob(action: JobAction, endpoint: string, job: string): Promise<void> {
  await caller.json({ ...callOf(ACTIONS[action].route, { endpoint, job }), repeatable: false });
}

const AT_ONCE = 6;

/** Returns how many jobs had changed meanwhile, so that the action did not apply. @throws other errors */
export async function actOnJobs(
  action: JobAction,
  endpoint: string,
  jobs: readonly string[],
): Promise<number> {
  let missed = 0;
  const act = async (job: string) => {
    try {
      await actOnJob(action, endpoint, job);
    } catch (error) {
      const hasChanged =
        error instanceof ApiError && (error.status === 409 || error.status === 404);
      if (!hasChanged) throw error;
      missed += 1;
    }
  };
  for (let start = 0; start < jobs.length; start += AT_ONCE) {
    await Promise.all(jobs.slice(start, start + AT_ONCE).map(act));
  }
  return missed;
}

/** Cancels all queued jobs and returns their number. */
export async function purgeQueue(endpoint: string): Promise<number> {
  const call = callOf(JOB_ROUTES.purgeQueue, { endpoint });
  const { removed } = await caller.json<{ removed: number }>({ ...call, repeatable: false });
  return removed;
}
