// Takes in messages between shards, and tells the children of jobs that have ended. Parts of operations.
import { isWaiting, type JobKey, type Transaction } from '../../store/store.ts';
import type { Change, StepOn } from '../changes.ts';
import { type FlowMessage, type TakingIn, takeInOfFlow } from '../flows/flow-messages.ts';
import { describeEnd, type EndedParent, findEnd } from '../lifecycle/links.ts';
import { type ChildMessage, takeInChild } from '../steps/remote-children.ts';
import { cut, type EndedMessage, type HandoverMessage, MAX_TOLD } from './messages.ts';

type EndOfParent = Pick<EndedMessage, 'parent' | 'status' | 'children'>;
type EdgeMessage = Exclude<HandoverMessage, ChildMessage | EndedMessage | FlowMessage>;

export function takeIn(
  tx: Transaction,
  step: StepOn,
  { messages, ...taking }: TakingIn & { messages: readonly HandoverMessage[] },
): void {
  // All at once: otherwise, the operation would run again for each job.
  tx.each(messages.flatMap(listKeys), (key) => tx.job(key));
  let ends: EndedMessage[] = [];
  for (const message of messages) {
    if (message.type === 'ended') {
      ends.push(message);
      continue;
    }
    endParents(tx, step, ends);
    ends = [];
    if (message.type === 'child' || message.type === 'reader_left') {
      takeInEdge(tx, step, { from: taking.from, message });
    } else if (message.type === 'child_job' || message.type === 'child_cancel') {
      takeInChild(tx, step, { ...taking, message });
    } else takeInOfFlow(tx, step, { ...taking, message });
  }
  endParents(tx, step, ends);
}

/** The jobs that the message changes. */
function listKeys(message: HandoverMessage): readonly JobKey[] {
  switch (message.type) {
    case 'ended':
      return message.children;
    case 'child':
    case 'reader_left':
      return [message.parent];
    case 'flow_started':
    case 'flow_cancel':
    case 'child_cancel':
      return message.jobs;
    case 'flow_retry':
    case 'child_job':
      return [message.job];
    case 'flow_job':
    case 'flow_job_missing':
    case 'flow_letters':
      return [];
  }
}

function takeInEdge(
  tx: Transaction,
  step: StepOn,
  { from, message }: { from: number; message: EdgeMessage },
): void {
  const parent = tx.job(message.parent);
  if (message.type === 'reader_left') {
    if (parent) step(parent, { type: 'reader_left', reader: message.child });
    return;
  }
  const { parent: key, run = 0 } = message;
  const child = { ...message.child, shard: from };
  const status = parent ? describeEnd(parent) : 'REMOVED';
  // The retry of the flow that has sent the child will reach the parent.
  const isAhead = status !== 'COMPLETED' && (parent?.links?.flow?.run ?? 0) < run;
  // Refused for a parent that has ended, and whose output is not read.
  if (parent) step(parent, { type: 'child_added', child, isAccepted: true, isAhead });
  if (status === undefined || (parent && isAhead)) return;
  step.send(from, { type: 'ended', parent: key, status, children: [child] });
}

/** Each child takes in all ends at once: a job may have 1,000 parents. */
function endParents(tx: Transaction, step: StepOn, ends: readonly EndOfParent[]): void {
  const byChild = new Map<string, { child: JobKey; ends: EndedParent[] }>();
  for (const { children, parent, status } of ends) {
    for (const child of children) {
      const name = `${child.endpointId}/${child.id}`;
      const known = byChild.get(name) ?? { child, ends: [] };
      byChild.set(name, known);
      known.ends.push({ parent, status, round: child.round });
    }
  }
  const children = tx.each(byChild.values(), ({ child, ends }) => ({ job: tx.job(child), ends }));
  for (const { ends, job } of children) if (job) step(job, { type: 'parents_ended', ends });
}

/**
 * The jobs that wait for those that have ended take it in: in the same commit, so each end reaches each of them once. Those
 * of other shards get messages. So do those beyond the bound, for a commit of their own: a failure may end 1,000 jobs.
 */
export function tellChildren(
  tx: Transaction,
  step: StepOn,
  { changes, shard }: { changes: readonly Change[]; shard: number },
): void {
  let left = MAX_TOLD;
  // A child may end by that: the list grows meanwhile.
  for (let from = 0; from < changes.length; ) {
    const ended = changes.slice(from).flatMap(listEnded);
    from = changes.length;
    const here: EndOfParent[] = [];
    for (const { children, ...end } of ended) {
      const ofShards = Map.groupBy(children, (child) => child.shard ?? shard);
      const own = ofShards.get(shard) ?? [];
      const now = own.slice(0, left);
      left -= now.length;
      if (now.length > 0) here.push({ ...end, children: now });
      ofShards.set(shard, own.slice(now.length));
      for (const [to, all] of ofShards) {
        for (const told of cut(all)) step.send(to, { type: 'ended', ...end, children: told });
      }
    }
    endParents(tx, step, here);
  }
}

function listEnded({ before, isWholeFlow, transition }: Change): EndOfParent[] {
  const all = before.links?.children ?? [];
  // The others of its flow are cancelled as well, here and in other shards, and do not fail.
  const children = isWholeFlow ? all.filter(({ sibling }) => !sibling) : all;
  const status = children.length > 0 ? findEnd(before, transition) : undefined;
  const { endpointId, id } = before;
  return status === undefined ? [] : [{ parent: { endpointId, id }, status, children }];
}

/** Parents in other shards keep their outputs until the child has its input, or waits no more. */
export function releaseOutputs(step: StepOn, changes: readonly Change[]): void {
  for (const { before, transition } of changes) {
    if (!before.links || !isWaiting(before)) continue;
    if (!transition.removed && isWaiting(transition.job)) continue;
    const { endpointId, id } = before;
    for (const { as, shard, step: awaited, ...parent } of before.links.parents) {
      if ((as ?? awaited) === undefined || shard === undefined) continue;
      const key = { endpointId: parent.endpointId, id: parent.id };
      step.send(shard, { type: 'reader_left', parent: key, child: { endpointId, id } });
    }
  }
}
