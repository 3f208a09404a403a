// What the jobs of a flow do, for its record.
import { isWaiting, type Reader, type StoredJob } from '../../store/store.ts';
import type { FlowJob } from '../../wire/job/flow-records.ts';
import { isTerminal } from '../../wire/job/job.ts';
import type { JobState } from '../handover/peers.ts';
import { endOf, type FoundFlow, type StoredFlow } from './flow-record.ts';

export function describeJobs(
  { nodes }: StoredFlow,
  states: readonly FlowJob['state'][],
): FlowJob[] {
  return nodes.map(({ after, endpointId: endpoint, id, name }, index) => ({
    ...{ name, endpoint, id, state: states[index] ?? 'REMOVED' },
    after: after.map(({ job, ...edge }) => ({ job: nodes[job]?.name ?? '', ...edge })),
  }));
}

/** Of a job of another shard, only how it has ended. */
export function readStates(tx: Reader, { flow, progress }: FoundFlow): FlowJob['state'][] {
  return tx.each(flow.nodes.entries(), ([index, node]) => {
    const end = endOf(progress, index);
    if (end !== undefined) return end;
    if (node.shard !== undefined) return 'WAITING';
    const job = tx.job(node);
    return job ? describeState(job) : 'REMOVED';
  });
}

export function describeState(job: StoredJob): JobState {
  return isWaiting(job) ? 'WAITING' : job.status;
}

/** Null: it is yet to be added, or its removal is on its way to the record; so may its end be. */
export function judgeState(state: JobState | null | undefined): FlowJob['state'] {
  if (!state) return 'WAITING';
  return isTerminalState(state) ? 'IN_PROGRESS' : state;
}

function isTerminalState(state: JobState): boolean {
  return state !== 'WAITING' && isTerminal(state);
}
