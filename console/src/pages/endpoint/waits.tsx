// Why the jobs of an endpoint wait: the reason of the newest one.

import { callOf } from '../../../../src/client/api-caller.ts';
import type { JobList, JobRecord } from '../../../../src/client.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { Time } from '../../parts/time.tsx';
import { caller } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';

export function Waits({ id }: { id: string }) {
  const { data } = usePolled({
    key: `waits ${id}`,
    load: (signal) => readReason(id, signal),
    everyMs: 2_000,
    live: liveFrom([TOPICS.activity(id)], ({ waitReason }) => waitReason),
  });
  if (!data) return null;
  return (
    <section class="note">
      <h2>Why jobs wait</h2>
      <p>
        {data.message}{' '}
        {data.until !== undefined && (
          <span class="muted">
            (next attempt <Time at={data.until} />)
          </span>
        )}
      </p>
    </section>
  );
}

async function readReason(endpoint: string, signal: AbortSignal) {
  const { jobs } = await caller.json<JobList>({
    ...callOf(JOB_ROUTES.listJobs, { endpoint }),
    query: { status: 'IN_QUEUE', limit: 1 },
    signal,
  });
  const [job] = jobs;
  if (!job) return null;
  const call = callOf(JOB_ROUTES.getJobStatus, { endpoint, job: job.id });
  return (await caller.json<JobRecord>({ ...call, signal })).waitReason ?? null;
}
