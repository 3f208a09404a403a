// Retries jobs of a flow: those of this shard in the same commit, others by messages.
import type { Transaction } from '../../store/store.ts';
import type { StepOn } from '../changes.ts';
import type { RetriedParent } from '../handover/messages.ts';
import { describeParents } from './flow-messages.ts';
import { endOf, type FlowNode, type FoundFlow, noteLetters, OPEN, toKey } from './flow-record.ts';
import { RETRIABLE, retryFlowJob } from './parents.ts';

interface RetriedFlow extends FoundFlow {
  selected: ReadonlySet<string>;
  now: number;
}

/** @returns the number of the jobs that are retried, or are to be in other shards */
export function retryFlow(
  tx: Transaction,
  step: StepOn,
  { flow, now, progress, selected }: RetriedFlow,
): number {
  const wanted = new Set<number>();
  const failed = new Map<number, FlowNode>();
  for (const [index, node] of flow.nodes.entries()) {
    const follows = node.after.some(({ job }) => wanted.has(job));
    if (!follows && !selected.has(node.name)) continue;
    wanted.add(index);
    if (RETRIABLE.has(endOf(progress, index))) failed.set(index, node);
  }
  const run = (progress.run ?? 0) + 1;
  const here = [...failed.values()].filter(({ shard }) => shard === undefined);
  tx.each(here, (node) => tx.job(node));
  const letters = new Map<number, string>();
  let count = 0;
  // Parents first: then their children wait for them again.
  for (const [index, node] of failed) {
    const parents = node.after.flatMap(({ job: parent }): RetriedParent[] => {
      const of = flow.nodes[parent];
      if (!of) return [];
      if (failed.has(parent)) return [{ ...toKey(of), isRetried: true }];
      const status = endOf(progress, parent);
      return [{ ...toKey(of), ...(status !== undefined && { status }) }];
    });
    if (node.shard === undefined) {
      const job = tx.job(node);
      const remote = describeParents(job?.links, { parents, run });
      if (job && retryFlowJob(tx, step, { job, remote, run })) count += 1;
      continue;
    }
    const place = { ...toKey(flow), index, run };
    const letter = progress.letters.charAt(index);
    step.send(node.shard, { type: 'flow_retry', flow: place, job: toKey(node), letter, parents });
    letters.set(index, OPEN);
    count += 1;
  }
  if (count > 0) noteLetters(tx, flow.id, { letters, now, run });
  return count;
}
