// Flows: graphs of jobs that one request submits, on endpoints of any shard.
import { hash } from 'node:crypto';
import { createUuidV7, deriveUuidV7 } from '../../base/id.ts';
import type { JobKey, Transaction } from '../../store/store.ts';
import type { FlowRecord, FlowReference, FlowSummary } from '../../wire/job/flow-records.ts';
import { ProblemError } from '../../wire/problem.ts';
import { judgeWebhook, readQueue } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import { cut } from '../handover/messages.ts';
import { countByShard } from '../handover/remote-jobs.ts';
import type { QueueParts } from '../queue-parts.ts';
import { MAX_WRITTEN_BYTES, REFUSING, stageInputs } from '../submissions.ts';
import { checkGraph } from './flow-graph.ts';
import {
  type Candidate,
  findFirst,
  insertAll,
  judge,
  type NewFlow,
  type NewFlowJob,
  putCandidate,
  refuse,
} from './flow-insertion.ts';
import {
  countFlows,
  describeFlow,
  describeReference,
  endOf,
  type FoundFlow,
  listFlows,
  readFlow,
  type StoredFlow,
  toKey,
} from './flow-record.ts';
import { retryFlow } from './flow-retry.ts';
import { describeJobs, judgeState, readStates } from './flow-states.ts';
import { findRepeated } from './parents.ts';

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
  | 'keptFlows'
  | 'payloads'
  | 'peers'
  | 'positions'
  | 'remoteJobs'
  | 'removal'
  | 'signals'
  | 'store'
  | 'tracing'
  | 'webhooks'
>;

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
    const { changes, clock, keptFlows, payloads, signals, store, tracing } = this.#options;
    const names = given.jobs.map(({ name }) => name);
    const { candidates, flow } = this.#compose(given);
    // Without this, a flow that is refused would be stored first.
    const known = await store.read((tx) => {
      const first = findFirst(tx, flow);
      if (first) return first;
      judge(tx, flow);
      keptFlows.refuseFull(readQueue(tx, flow.endpointId).userId);
      return undefined;
    });
    if (known) return describeReference(known, names);
    await this.#judgeElsewhere(flow);
    await this.#storeInputs(flow, candidates);
    const here = candidates.filter(({ node }) => node.shard === undefined);
    const staged = await stageInputs(payloads, here, ({ node }) => node);
    try {
      const now = clock.now();
      const submit = (tx: Transaction, step: StepOn) =>
        insertAll(tx, step, { candidates, flow, given, now });
      const options = { ...REFUSING, weight: candidates.length };
      const inserted = await changes.commit(submit, options);
      if (inserted.isNew) keptFlows.added(inserted.flow.userId);
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
    const { clock, peers, positions, webhooks } = this.#options;
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
      const shard = peers.shardOf(endpointId) ?? peers.shard;
      const node = {
        ...{ endpointId, id: deriveUuidV7(base, place), name, after },
        ...(shard !== peers.shard && { shard }),
      };
      return [{ job, node, input, position: positions.next() }];
    });
    const flow: StoredFlow = {
      ...{ endpointId, id, userId: '', position: positions.next(), createdAt: now },
      requestHash: idempotency?.requestHash ?? null,
      home: peers.shard,
      nodes: candidates.map(({ node }) => node),
    };
    return { flow, candidates };
  }

  /** @throws ProblemError */
  async #judgeElsewhere({ endpointId, nodes }: StoredFlow): Promise<void> {
    const { remoteJobs, store } = this.#options;
    const others = nodes.filter(({ shard }) => shard !== undefined);
    if (others.length === 0) return;
    const { userId } = await store.read((tx) => readQueue(tx, endpointId));
    await remoteJobs.judge(userId, countByShard(others));
  }

  /** Stores the inputs of jobs of other shards before the flow, if they are large together. */
  async #storeInputs(flow: JobKey, candidates: readonly Candidate[]): Promise<void> {
    const { store } = this.#options;
    let writtenBytes = 0;
    for (const candidate of candidates) {
      if (candidate.node.shard === undefined) continue;
      writtenBytes += candidate.job.input.length;
      if (writtenBytes <= MAX_WRITTEN_BYTES) continue;
      await store.write((tx) => putCandidate(tx, flow, candidate), REFUSING);
      candidate.isStored = true;
    }
  }

  /** Flows that have not ended, by the endpoint that keeps them. */
  counts(): Promise<Map<string, number>> {
    return this.#options.store.read(countFlows);
  }

  /** @throws ProblemError `unavailable` if nobody serves the shard of one of its jobs */
  async read(key: JobKey): Promise<FlowRecord> {
    const { remoteJobs, removal, store } = this.#options;
    removal.refuseGone(key.endpointId);
    const read = await store.read((tx) => {
      const found = readFlow(tx, key);
      return found && { ...found, states: readStates(tx, found) };
    });
    const { states, ...found } = read ?? raiseNoFlow(key);
    const { flow, progress } = found;
    const others = flow.nodes
      .map((node, index) => ({ node, index }))
      .filter(({ index, node }) => node.shard !== undefined && !endOf(progress, index));
    for (const [shard, nodes] of Map.groupBy(others, ({ node }) => node.shard)) {
      if (shard === undefined) continue;
      const asked = nodes.map(({ node }) => node);
      const found = await remoteJobs.states(shard, asked);
      for (const [at, { index }] of nodes.entries()) states[index] = judgeState(found[at]);
    }
    return { ...describeFlow(found), jobs: describeJobs(flow, states) };
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
    const isWhole = selection.names === undefined;
    return this.#change(key, selection, (tx, step, { flow, progress, selected }) => {
      const open = flow.nodes.filter(
        (node, index) => selected.has(node.name) && endOf(progress, index) === undefined,
      );
      const event = { type: 'cancel', ...(isWhole && { isWholeFlow: true as const }) } as const;
      // Children first: an end that they are told of would make them fail.
      const ofShards = Map.groupBy(open.toReversed(), ({ shard }) => shard);
      const [here = []] = cut(ofShards.get(undefined) ?? []);
      const jobs = tx.each(here, (node) => tx.job(node));
      const cancelled = jobs.filter((job) => job && !('refused' in step(job, event))).length;
      // The others of this shard in commits that follow, also after a restart.
      for (const [shard, nodes] of ofShards) {
        const later = shard === undefined ? nodes.slice(here.length) : nodes;
        for (const part of cut(later.map(toKey))) {
          step.send(shard, { type: 'flow_cancel', flow: toKey(flow), jobs: part, isWhole });
        }
      }
      return cancelled + open.length - here.length;
    });
  }

  /**
   * Retries the failed and skipped jobs, or those with these names and what follows from them. @returns their number.
   * @throws ProblemError `conflict` if none can be retried
   */
  async retry(key: JobKey, selection: FlowSelection = {}): Promise<number> {
    const { clock } = this.#options;
    const retried = await this.#change(key, selection, (tx, step, found) =>
      retryFlow(tx, step, { ...found, now: clock.now() }),
    );
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

function raiseNoFlow({ id }: JobKey): never {
  throw new ProblemError('not_found', `flow ${id} not found or expired`);
}

/** The ID of a flow with an idempotency key. */
function nameByKey(endpointId: string, key: string): string {
  return `key-${hash('sha256', `${endpointId}/${key}`).slice(0, 32)}`;
}

function describeEdge(
  edge: NewFlowJob['after'][number] | undefined,
): Pick<NewFlowJob['after'][number], 'as' | 'onFailure'> {
  const { as, onFailure = 'fail' } = edge ?? {};
  return { onFailure, ...(as !== undefined && { as }) };
}
