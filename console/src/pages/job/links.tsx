// What binds a job to others: its flow, the jobs that it waited for, and those that wait for it.
import type { JobDetails } from '../../../../src/client.ts';
import { Badge } from '../../parts/badge.tsx';
import { Id } from '../../parts/copy.tsx';
import { JobId } from '../../parts/job/job-cells.tsx';
import { Table } from '../../parts/list/table.tsx';
import { useEndpointNames } from '../../platform/endpoint-names.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { hrefOf } from '../../routing/location.ts';
import { pathOfFlow, readFlow } from '../flows/calls.ts';
import { describeState, sayEdge } from '../flows/states.ts';

const COLUMNS = [
  { name: 'Name' },
  { name: 'Job' },
  { name: 'Relation' },
  { name: 'Ended' },
  { name: 'Endpoint' },
];

/** A job may have 1,000 parents and as many children. */
const MAX_SHOWN = 20;

export function Links({ job }: { job: JobDetails }) {
  const { awaits = [], children = [], flow, parents = [] } = job;
  const nameOf = useEndpointNames();
  // Its names never change.
  const { data: names } = usePolled({
    key: `names ${flow?.endpoint} ${flow?.id}`,
    load: async (signal) => {
      const mayRead = flow && may('jobs:read', flow.endpoint);
      const jobs = mayRead ? (await readFlow(flow, signal)).jobs : [];
      return new Map(jobs.map(({ id, name }) => [id, name]));
    },
    everyMs: null,
  });
  const linked = [
    ...parents.map(({ endpoint, ended, id, ...edge }) => ({
      ...{ endpoint, ended, id },
      relation: ['Parent', sayEdge(edge)].filter(Boolean).join(': '),
    })),
    ...awaits.map(({ name, ...child }) => ({ ...child, relation: `Awaited child: ${name}` })),
    ...children.map((child) => ({ ...child, ended: undefined, relation: 'Waits for this job' })),
  ];
  if (!flow && linked.length === 0) return null;
  const name = names?.get(job.id);
  return (
    <section aria-label="Flow">
      <h2>{flow ? 'Flow' : 'Linked jobs'}</h2>
      {flow && (
        <p>
          {name !== undefined && (
            <>
              The job <strong>{name}</strong> of{' '}
            </>
          )}
          <Id id={flow.id} href={hrefOf(pathOfFlow(flow))} />
        </p>
      )}
      {linked.length > 0 && (
        <Table label="Parents and children" columns={COLUMNS}>
          {linked.slice(0, MAX_SHOWN).map(({ endpoint, ended, id, relation }) => (
            <tr key={`${endpoint} ${id}`}>
              <td>{names?.get(id) ?? '–'}</td>
              <JobId endpoint={endpoint} id={id} />
              <td>{relation}</td>
              <td>{ended ? <Badge {...describeState(ended)} /> : '–'}</td>
              <td>{nameOf(endpoint)}</td>
            </tr>
          ))}
        </Table>
      )}
      {linked.length > MAX_SHOWN && (
        <p class="muted">and {(linked.length - MAX_SHOWN).toLocaleString()} more</p>
      )}
    </section>
  );
}
