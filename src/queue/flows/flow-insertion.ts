// Adds a flow: one commit has its record, its jobs of this shard, and a message for each job of another one.
import type {
  JobKey,
  JobLinks,
  Payload,
  Reader,
  StoredJob,
  Transaction,
} from '../../store/store.ts';
import { LIMITS, type ParentPolicy, QUEUE_FULL_RETRY_MS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { TraceContext } from '../../wire/trace-context.ts';
import { readQueue, type Submission } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import { readEndpoint } from '../endpoint-removal.ts';
import type { JobSpec } from '../handover/messages.ts';
import type { JobCount } from '../handover/peers.ts';
import { insertJobSpec, putInput } from './flow-messages.ts';
import {
  countOpenFlows,
  type FlowNode,
  insertFlow,
  readFlow,
  type StoredFlow,
  toKey,
} from './flow-record.ts';
import { toChild } from './parents.ts';

/** A job of a flow that is submitted. */
export interface NewFlowJob extends Pick<Submission, 'input' | 'policy' | 'webhook'> {
  name: string;
  endpointId: string;
  after: readonly { job: string; onFailure: ParentPolicy; as?: string }[];
}

export interface NewFlow {
  /** Keeps the record of the flow. */
  endpointId: string;
  jobs: readonly NewFlowJob[];
  idempotency: Submission['idempotency'];
  trace?: TraceContext | undefined;
  /** ID that the caller has chosen for the flow; the IDs of its jobs follow from it. Default: the queue chooses it. */
  newFlow?: { id: string } | undefined;
}

export interface Candidate {
  job: NewFlowJob;
  node: FlowNode;
  input: Payload;
  /** Its input is stored already, for a job of another shard. */
  isStored?: boolean;
  position: number;
}

export function refuse(errors: readonly string[]): ProblemError {
  const detail = `The flow is invalid: ${errors[0]}`;
  return new ProblemError('invalid', detail, { errors: errors.slice(0, MAX_ERRORS) });
}

const MAX_ERRORS = 100;

/** @throws ProblemError if the flow is refused */
export function judge(tx: Reader, { endpointId, nodes }: StoredFlow): undefined {
  const { userId } = readQueue(tx, endpointId);
  const ofEndpoints = Map.groupBy(nodes, (node) => node.endpointId);
  for (const [id, [first, ...others]] of ofEndpoints) {
    if (first?.shard === undefined)
      judgeCount(tx, userId, { endpointId: id, count: others.length + 1 });
  }
  if (countOpenFlows(tx, userId, LIMITS.openFlowsOfUser) < LIMITS.openFlowsOfUser) return;
  const detail = `${LIMITS.openFlowsOfUser} flows of the user have not ended, the most that may`;
  throw new ProblemError('queue_full', detail, { retryAfterMs: QUEUE_FULL_RETRY_MS });
}

/** @throws ProblemError if the user must not add so many jobs to the endpoint */
export function judgeCount(tx: Reader, userId: string, { count, endpointId }: JobCount): void {
  if (readEndpoint(tx, endpointId).userId !== userId) {
    throw new ProblemError('not_found', `endpoint ${endpointId} not found`);
  }
  const { inQueue, settings } = readQueue(tx, endpointId);
  const free = settings.maxQueued - inQueue;
  if (count <= free) return;
  const detail = `endpoint ${endpointId} can take ${Math.max(0, free)} more jobs, and not ${count}; maxQueued is ${settings.maxQueued}`;
  throw new ProblemError('queue_full', detail, { retryAfterMs: QUEUE_FULL_RETRY_MS });
}

/** Returns the flow that came before with the same ID or idempotency key. @throws ProblemError `conflict` */
export function findFirst(
  tx: Reader,
  { endpointId, id, requestHash }: StoredFlow,
): StoredFlow | undefined {
  const first = readFlow(tx, { endpointId, id })?.flow;
  if (first && first.requestHash !== requestHash) {
    throw new ProblemError(
      'conflict',
      `the idempotencyKey was used with another body, for flow ${id}`,
    );
  }
  return first;
}

interface FlowInsertion {
  flow: StoredFlow;
  candidates: readonly Candidate[];
  given: NewFlow;
  now: number;
}

export function insertAll(
  tx: Transaction,
  step: StepOn,
  { candidates, flow, given, now }: FlowInsertion,
): { flow: StoredFlow; jobs: StoredJob[]; isNew: boolean } {
  const first = findFirst(tx, flow);
  if (first) return { flow: first, jobs: [], isNew: false };
  judge(tx, flow);
  const { userId } = readQueue(tx, flow.endpointId);
  const children = listChildren(flow.nodes);
  const inserted: StoredJob[] = [];
  for (const [index, candidate] of candidates.entries()) {
    const { input, isStored = false, job, node, position } = candidate;
    const links = linkNode(flow, index, { children, delayMs: job.policy.delay ?? 0 });
    const { policy, webhook } = job;
    const spec: JobSpec = {
      ...{ ...toKey(node), policy, links },
      ...(webhook !== undefined && { webhook }),
      ...(given.trace && { trace: given.trace }),
    };
    if (node.shard === undefined) {
      inserted.push(insertJobSpec(tx, { spec, input, now, position }));
      continue;
    }
    if (!isStored) putCandidate(tx, flow, candidate);
    const { length: inputBytes } = job.input;
    step.send(node.shard, { type: 'flow_job', flow: toKey(flow), job: spec, inputBytes });
  }
  insertFlow(tx, { ...flow, userId });
  return { flow: { ...flow, userId }, jobs: inserted, isNew: true };
}

/** Stores the input of a job that is yet to be added in another shard. */
export function putCandidate(
  tx: Transaction,
  flow: JobKey,
  { job, node, position }: Candidate,
): void {
  putInput(tx, { from: flow, job: node, input: job.input, position });
}

/** The edges of a job, with the shards as its own one sees them. */
function linkNode(
  flow: StoredFlow,
  index: number,
  { children, delayMs }: { children: readonly (readonly ChildEdge[])[]; delayMs: number },
): JobLinks {
  const { nodes } = flow;
  const { after = [], shard: own } = nodes[index] ?? {};
  // Undefined: that of the flow's record, whose number the job needs only elsewhere.
  const { home } = flow;
  const nameShard = (of: number | undefined) => (of === own ? {} : { shard: of ?? home });
  const parents = after.flatMap(({ job, ...edge }) => {
    const node = nodes[job];
    return node ? [{ ...toKey(node), ...edge, ...nameShard(node.shard) }] : [];
  });
  const isSpread = nodes.some(({ shard }) => shard !== undefined);
  return {
    parents,
    children: (children[index] ?? []).map(({ as, node }) => ({
      ...{ ...toChild(node, as), sibling: true as const, ...nameShard(node.shard) },
    })),
    ...(isSpread && parents.length === 0 && { held: true as const }),
    delayMs,
    flow: { ...toKey(flow), index, ...nameShard(undefined) },
  };
}

interface ChildEdge {
  node: FlowNode;
  as: string | undefined;
}

function listChildren(nodes: readonly FlowNode[]): ChildEdge[][] {
  const children = nodes.map((): ChildEdge[] => []);
  for (const node of nodes) {
    for (const { as, job } of node.after) children[job]?.push({ node, as });
  }
  return children;
}
