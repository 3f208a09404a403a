// The jobs that run at an endpoint now, by the worker that has them.
import { callOf } from '../../../../src/client/api-caller.ts';
import type { JobList } from '../../../../src/client.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { Id } from '../../parts/copy.tsx';
import { Table } from '../../parts/list/table.tsx';
import { caller } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from './frame.tsx';

/** More are on the page of jobs. */
const MAX_JOBS = 200;
/** Of one worker. */
const MAX_LINKS = 5;

/** IDs of jobs by the ID of their worker; empty if the key may not read jobs. */
async function listRunningJobs(
  endpoint: string,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const found = new Map<string, string[]>();
  if (!may('jobs:read', endpoint)) return found;
  const { jobs } = await caller.json<JobList>({
    ...callOf(JOB_ROUTES.listJobs, { endpoint }),
    query: { status: 'IN_PROGRESS', limit: MAX_JOBS },
    signal,
  });
  for (const { id, workerId } of jobs) {
    if (workerId !== undefined) found.set(workerId, [...(found.get(workerId) ?? []), id]);
  }
  return found;
}

/** Undefined until they are known. */
export function useRunningJobs(id: string): ReadonlyMap<string, readonly string[]> | undefined {
  return usePolled({
    key: `running ${id}`,
    load: (signal) => listRunningJobs(id, signal),
    everyMs: 3_000,
  }).data;
}

export function JobLinks({ endpoint, jobs }: { endpoint: string; jobs: readonly string[] }) {
  if (jobs.length === 0) return <>–</>;
  const rest = jobs.length - MAX_LINKS;
  return (
    <ul class="job-links">
      {jobs.slice(0, MAX_LINKS).map((job) => (
        <li key={job}>
          <Id id={job} href={hrefOf(`${pathOf(endpoint)}/jobs/${encodeURIComponent(job)}`)} />
        </li>
      ))}
      {rest > 0 && <li>and {rest.toLocaleString()} more</li>}
    </ul>
  );
}

const COLUMNS = [{ name: 'Worker' }, { name: 'Runs now' }];

/** For workers that are no pods of the platform; those without a job are only counted. */
export function RunningJobs({ id }: { id: string }) {
  const data = useRunningJobs(id);
  if (!data || data.size === 0) return null;
  return (
    <Table label="Busy workers" columns={COLUMNS}>
      {[...data].map(([worker, jobs]) => (
        <tr key={worker}>
          <th scope="row">
            <Id
              id={worker}
              href={hrefOf(`${pathOf(id)}/jobs?worker=${encodeURIComponent(worker)}`)}
            />
          </th>
          <td>
            <JobLinks endpoint={id} jobs={jobs} />
          </td>
        </tr>
      ))}
    </Table>
  );
}
