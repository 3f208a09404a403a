// Flows: graphs of jobs that one request submits. One commit inserts all jobs of a flow with its record.
import { hash } from 'node:crypto';
import { createUuidV7, deriveUuidV7 } from '../../base/id.ts';
import {
  isWaiting,
  type JobChild,
  type JobKey,
  type JobLinks,
  type Payload,
  type Reader,
  type StoredJob,
  type Transaction,
} from '../../store/store.ts';
import type {
  FlowJob,
  FlowRecord,
  FlowReference,
  FlowSummary,
} from '../../wire/job/flow-records.ts';
import { LIMITS, type ParentPolicy, QUEUE_FULL_RETRY_MS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { TraceContext } from '../../wire/trace-context.ts';
import { chooseTurn, createJob, judgeWebhook, readQueue, type Submission } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import { readEndpoint } from '../endpoint-removal.ts';
import { NO_REMOTE } from '../handover/remote-parents.ts';
import { waitForParents } from '../lifecycle/links.ts';
import { findRepeated, RETRIABLE, retryJob, toChild } from '../parents.ts';
import type { QueueParts } from '../queue-parts.ts';
import { REFUSING, stageInputs } from '../submissions.ts';
import { checkGraph } from './flow-graph.ts';
import {
  countOpenFlows,
  describeFlow,
  describeReference,
  endOf,
  type FlowNode,
  type FlowProgress,
  type FoundFlow,
  findOldFlows,
  insertFlow,
  listFlows,
  readFlow,
  type StoredFlow,
} from './flow-record.ts';

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

export interface FlowSelection {
  /** Of the jobs. Default: all jobs of the flow. */
  names?: readonly string[] | undefined;
  /** Throws if the caller may not change the jobs of the endpoint. */
  judgeEndpoint?: (endpointId: string) => void;
}

type FlowsOptions = Pick<
  QueueParts,
  | 'changes'
  | 'clock'
  | 'payloads'
  | 'positions'
  | 'removal'
  | 'signals'
  | 'store'
  | 'tracing'
  | 'webhooks'
>;

interface Candidate {
  job: NewFlowJob;
  node: FlowNode;
  input: Payload;
  position: number;
}

/** Methods with the ID of a flow throw ProblemError `not_found` without one. */
export class Flows {
  readonly #options: FlowsOptions;

  constructor(options: FlowsOptions) {
    this.#options = options;
  }

  /**
   * Resolves when all jobs are on disk. A known idempotency key returns the first flow. @throws ProblemError; then no
   * job was added
   */
  async submit(given: NewFlow): Promise<FlowReference> {
    const { changes, clock, payloads, signals, store, tracing } = this.#options;
    const names = given.jobs.map(({ name }) => name);
    const { candidates, flow } = this.#compose(given);
    // Without this, a flow that is refused would be stored first.
    const known = await store.read((tx) => findFirst(tx, flow) ?? judge(tx, flow));
    if (known) return describeReference(known, names);
    const staged = await stageInputs(payloads, candidates, ({ node }) => node);
    try {
      const now = clock.now();
      const submit = (tx: Transaction) => insertAll(tx, { candidates, flow, given, now });
      const options = { ...REFUSING, weight: candidates.length };
      const inserted = await changes.commit(submit, options);
      for (const job of inserted.jobs) {
        signals.inserted(job);
        tracing?.submitted(job, now);
      }
      return describeReference(inserted.flow, names);
    } finally {
      for (const payload of staged) payloads.release(payload);
    }
  }

  /** @throws ProblemError `invalid` */
  #compose(given: NewFlow): { flow: StoredFlow; candidates: Candidate[] } {
    const { clock, positions, webhooks } = this.#options;
    const { endpointId, idempotency, jobs, newFlow } = given;
    const graph = checkGraph(
      jobs.map(({ after, name }) => ({ name, parents: after.map(({ job }) => job) })),
    );
    const errors = 'errors' in graph ? graph.errors : [];
    for (const [index, job] of jobs.entries()) {
      for (const at of findRepeated(job.after.map(({ as }) => as))) {
        const path = `jobs[${index}].after[${at}].as`;
        errors.push(`${path}: "${job.after[at]?.as}" is the member of another parent`);
      }
      const refusal = judgeWebhook(job, webhooks);
      if (refusal) errors.push(...(refusal.errors ?? []).map((text) => `jobs[${index}].${text}`));
    }
    if (errors.length > 0 || 'errors' in graph) throw refuse(errors);
    const now = clock.now();
    const base = newFlow?.id ?? createUuidV7(now);
    const id = idempotency ? nameByKey(endpointId, idempotency.key) : base;
    const places = new Map(graph.order.map((index, place) => [index, place]));
    const candidates = graph.order.flatMap((index, place): Candidate[] => {
      const job = jobs[index];
      if (!job) return [];
      const after = (graph.parents[index] ?? []).map((parent, at) => ({
        job: places.get(parent) ?? 0,
        ...describeEdge(job.after[at]),
      }));
      const { endpointId, input, name } = job;
      const node = { endpointId, id: deriveUuidV7(base, place), name, after };
      return [{ job, node, input, position: positions.next() }];
    });
    const flow: StoredFlow = {
      ...{ endpointId, id, userId: '', position: positions.next(), createdAt: now },
      requestHash: idempotency?.requestHash ?? null,
      nodes: candidates.map(({ node }) => node),
    };
    return { flow, candidates };
  }

  async read(key: JobKey): Promise<FlowRecord> {
    const { removal, store } = this.#options;
    removal.refuseGone(key.endpointId);
    const found = await store.read((tx) => {
      const flow = readFlow(tx, key);
      return flow && { ...flow, jobs: describeJobs(tx, flow) };
    });
    const { jobs, ...flow } = found ?? raiseNoFlow(key);
    return { ...describeFlow(flow), jobs };
  }

  /** Newest first. */
  async list(listing: {
    endpointId: string;
    before: number | undefined;
    limit: number;
  }): Promise<{ flows: FlowSummary[]; next: number | undefined }> {
    const { removal, store } = this.#options;
    removal.refuseGone(listing.endpointId);
    const limit = Math.min(listing.limit, MAX_LISTED);
    const found = await store.read((tx) => {
      readQueue(tx, listing.endpointId);
      return listFlows(tx, { ...listing, limit: limit + 1 });
    });
    const page = found.slice(0, limit);
    const next = found.length > page.length ? page.at(-1)?.flow.position : undefined;
    return { flows: page.map(describeFlow), next };
  }

  /** Cancels the jobs that have not ended, or those of them with these names. @returns their number */
  cancel(key: JobKey, selection: FlowSelection = {}): Promise<number> {
    return this.#change(key, selection, (tx, step, { flow, progress, selected }) => {
      const open = flow.nodes.filter(
        (node, index) => selected.has(node.name) && endOf(progress, index) === undefined,
      );
      const jobs = tx.each(open, (node) => tx.job(node));
      // All of them before their children are told: those are cancelled too, and do not fail.
      return jobs.filter((job) => job && !('refused' in step(job, { type: 'cancel' }))).length;
    });
  }

  /**
   * Retries the failed and skipped jobs, or those with these names and what follows from them. @returns their number.
   * @throws ProblemError `conflict` if none can be retried
   */
  async retry(key: JobKey, selection: FlowSelection = {}): Promise<number> {
    const retried = await this.#change(key, selection, (tx, step, { flow, progress, selected }) => {
      const wanted = new Set<number>();
      const failed: FlowNode[] = [];
      for (const [index, node] of flow.nodes.entries()) {
        const follows = node.after.some(({ job }) => wanted.has(job));
        if (!follows && !selected.has(node.name)) continue;
        wanted.add(index);
        if (RETRIABLE.has(endOf(progress, index))) failed.push(node);
      }
      tx.each(failed, (node) => tx.job(node));
      let count = 0;
      // Parents first: then their children wait for them again.
      for (const node of failed) {
        const job = tx.job(node);
        if (!job) continue;
        if (!('refused' in retryJob(tx, step, { job, remote: NO_REMOTE }))) count += 1;
      }
      return count;
    });
    if (retried > 0) return retried;
    const detail = `flow ${key.id} has no job that can be retried: FAILED, TIMED_OUT or SKIPPED, with a record that has not expired`;
    throw new ProblemError('conflict', detail);
  }

  async #change(
    key: JobKey,
    { judgeEndpoint, names }: FlowSelection,
    act: (
      tx: Transaction,
      step: StepOn,
      found: FoundFlow & { selected: ReadonlySet<string> },
    ) => number,
  ): Promise<number> {
    const { changes, removal } = this.#options;
    removal.refuseGone(key.endpointId);
    const changed = await changes.commit((tx, step) => {
      const found = readFlow(tx, key);
      if (!found) return undefined;
      for (const { endpointId } of found.flow.nodes) judgeEndpoint?.(endpointId);
      const known = found.flow.nodes.map(({ name }) => name);
      const unknown = names?.findIndex((name) => !known.includes(name)) ?? -1;
      if (unknown >= 0) {
        throw refuse([`jobs[${unknown}]: no job of the flow is named "${names?.[unknown]}"`]);
      }
      return act(tx, step, { ...found, selected: new Set(names ?? known) });
    });
    return changed ?? raiseNoFlow(key);
  }
}

/** A record has up to some 100 KB. */
const MAX_LISTED = 100;

function refuse(errors: readonly string[]): ProblemError {
  const detail = `The flow is invalid: ${errors[0]}`;
  return new ProblemError('invalid', detail, { errors: errors.slice(0, MAX_ERRORS) });
}

const MAX_ERRORS = 100;

function raiseNoFlow({ id }: JobKey): never {
  throw new ProblemError('not_found', `flow ${id} not found or expired`);
}

/** The ID of a flow with an idempotency key. */
function nameByKey(endpointId: string, key: string): string {
  return `key-${hash('sha256', `${endpointId}/${key}`).slice(0, 32)}`;
}

/** Returns the flow that came before with the same ID or idempotency key. @throws ProblemError `conflict` */
function findFirst(
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

/** @throws ProblemError if the flow is refused */
function judge(tx: Reader, { endpointId, nodes }: StoredFlow): undefined {
  const { userId } = readQueue(tx, endpointId);
  const ofEndpoints = Map.groupBy(nodes, (node) => node.endpointId);
  for (const [id, jobs] of ofEndpoints) {
    if (readEndpoint(tx, id).userId !== userId) {
      throw new ProblemError('not_found', `endpoint ${id} not found`);
    }
    const { inQueue, settings } = readQueue(tx, id);
    const free = settings.maxQueued - inQueue;
    if (jobs.length <= free) continue;
    const detail = `endpoint ${id} has room for ${Math.max(0, free)} more jobs, and the flow has ${jobs.length} for it; maxQueued is ${settings.maxQueued}`;
    throw new ProblemError('queue_full', detail, { retryAfterMs: QUEUE_FULL_RETRY_MS });
  }
  if (countOpenFlows(tx, userId, LIMITS.openFlowsOfUser) < LIMITS.openFlowsOfUser) return;
  const detail = `${LIMITS.openFlowsOfUser} flows of the user have not ended, the most that may`;
  throw new ProblemError('queue_full', detail, { retryAfterMs: QUEUE_FULL_RETRY_MS });
}

interface FlowInsertion {
  flow: StoredFlow;
  candidates: readonly Candidate[];
  given: NewFlow;
  now: number;
}

function insertAll(
  tx: Transaction,
  { candidates, flow, given, now }: FlowInsertion,
): { flow: StoredFlow; jobs: StoredJob[] } {
  const first = findFirst(tx, flow);
  if (first) return { flow: first, jobs: [] };
  judge(tx, flow);
  const { userId } = readQueue(tx, flow.endpointId);
  const old = findOldFlows(tx, (now - LIMITS.flowRetentionMs) * 1_000);
  const children = listChildren(flow.nodes);
  const jobs = candidates.map(({ input, job, node, position }, index) => {
    const { endpointId, id } = node;
    const parents = node.after.flatMap(({ job: parent, ...edge }) => {
      const { endpointId, id } = flow.nodes[parent] ?? {};
      return endpointId === undefined || id === undefined ? [] : [{ endpointId, id, ...edge }];
    });
    const links: JobLinks = {
      parents,
      children: children[index] ?? [],
      delayMs: job.policy.delay ?? 0,
      flow: { endpointId: flow.endpointId, id: flow.id, index },
    };
    const { policy, webhook } = job;
    const submission: Submission = {
      ...{ endpointId, mode: 'run', input: job.input, policy, webhook, trace: given.trace },
      idempotency: undefined,
    };
    const turn = chooseTurn(policy, { isChild: parents.length > 0 });
    const plain = createJob(submission, readQueue(tx, endpointId), {
      ...{ id, now, position, turn },
    });
    const linked = { ...plain, linked: true, links };
    const inserted = parents.length > 0 ? waitForParents(linked, { now }) : linked;
    tx.insertJob(inserted, input);
    return inserted;
  });
  for (const each of old) tx.removeResource(each);
  insertFlow(tx, { ...flow, userId });
  return { flow, jobs };
}

function describeEdge(
  edge: NewFlowJob['after'][number] | undefined,
): Pick<NewFlowJob['after'][number], 'as' | 'onFailure'> {
  const { as, onFailure = 'fail' } = edge ?? {};
  return { onFailure, ...(as !== undefined && { as }) };
}

function listChildren(nodes: readonly FlowNode[]): JobChild[][] {
  const children = nodes.map((): JobChild[] => []);
  for (const node of nodes) {
    for (const { as, job } of node.after) children[job]?.push(toChild(node, as));
  }
  return children;
}

function describeJobs(tx: Reader, { flow, progress }: FoundFlow): FlowJob[] {
  const states = tx.each(flow.nodes.entries(), ([index, node]) =>
    readState(tx, node, { index, progress }),
  );
  return flow.nodes.map(({ after, endpointId: endpoint, id, name }, index) => ({
    ...{ name, endpoint, id, state: states[index] ?? 'REMOVED' },
    after: after.map(({ job, ...edge }) => ({ job: flow.nodes[job]?.name ?? '', ...edge })),
  }));
}

function readState(
  tx: Reader,
  node: FlowNode,
  { index, progress }: { index: number; progress: FlowProgress },
): FlowJob['state'] {
  const end = endOf(progress, index);
  if (end !== undefined) return end;
  const job = tx.job(node);
  if (!job) return 'REMOVED';
  return isWaiting(job) ? 'WAITING' : job.status;
}
