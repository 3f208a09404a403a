// The record of a flow as it is stored: its graph, which never changes, and how each of its jobs has ended, one letter for
// each. A flow that has ended is one resource, an open one has its letters apart, because each end of a job writes them.
import type {
  FlowPlace,
  JobKey,
  Reader,
  StoredJob,
  StoredResource,
  Transaction,
} from '../../store/store.ts';
import type { FlowReference, FlowStatus, FlowSummary } from '../../wire/job/flow-records.ts';
import { isTerminal, type ParentEnd, type ParentPolicy } from '../../wire/job/job.ts';
import type { Change, StepOn } from '../changes.ts';
import { cut } from '../handover/messages.ts';
import { describeEnd } from '../lifecycle/links.ts';

export interface FlowNode extends JobKey {
  name: string;
  /** Of the job, if it is another one than that of the flow's record. */
  shard?: number;
  /** `job`: index of the parent. */
  after: readonly { job: number; onFailure: ParentPolicy; as?: string }[];
}

export interface StoredFlow {
  /** Of the endpoint that keeps the flow. */
  endpointId: string;
  id: string;
  userId: string;
  position: number;
  createdAt: number;
  /** Of the request with an idempotency key. */
  requestHash: string | null;
  /** Shard of the record. */
  home: number;
  /** Parents before their children. */
  nodes: readonly FlowNode[];
}

export interface FlowProgress {
  /** How each job has ended, in the order of the nodes. */
  letters: string;
  endedAt: number | null;
  /** Jobs that are yet to be added in other shards. Default: 0. */
  toAdd?: number | undefined;
  /** Number of the last retry that a client has asked for. Default: 0. */
  run?: number | undefined;
}

const KINDS = { open: 'flow', progress: 'flow_progress', ended: 'flow_ended' } as const;

const VERSION = 1;
export const OPEN = '.';
export const LETTERS: Readonly<Record<ParentEnd, string>> = {
  COMPLETED: 'C',
  FAILED: 'F',
  TIMED_OUT: 'T',
  CANCELLED: 'X',
  SKIPPED: 'S',
  REMOVED: 'R',
};
const ENDS = new Map(Object.entries(LETTERS).map(([end, letter]) => [letter, end]));

/** Undefined: the job has not ended. */
export function endOf({ letters }: FlowProgress, index: number): ParentEnd | undefined {
  const letter = letters.charAt(index);
  // The keys of LETTERS are ends.
  return ENDS.get(letter) as ParentEnd | undefined;
}

export function insertFlow(tx: Transaction, flow: StoredFlow): void {
  const toAdd = flow.nodes.filter(({ shard }) => shard !== undefined).length;
  const letters = OPEN.repeat(flow.nodes.length);
  putOpen(tx, flow, { letters, endedAt: null, ...(toAdd > 0 && { toAdd }) });
}

function putOpen(tx: Transaction, flow: StoredFlow, progress: FlowProgress): void {
  tx.putResource(toResource(KINDS.open, flow, flow));
  putProgress(tx, flow, progress);
}

function putProgress(tx: Transaction, flow: FlowHead, progress: FlowProgress): void {
  tx.putResource(toResource(KINDS.progress, flow, progress));
}

type FlowHead = Pick<StoredFlow, 'endpointId' | 'id' | 'position' | 'userId'>;

function toResource(kind: string, flow: FlowHead, body: object): StoredResource {
  const { endpointId, id, position, userId } = flow;
  const text = JSON.stringify({ v: VERSION, ...body });
  return { kind, id, userId, parent: endpointId, position, body: text };
}

export function toKey({ endpointId, id }: JobKey): JobKey {
  return { endpointId, id };
}

export interface FoundFlow {
  flow: StoredFlow;
  progress: FlowProgress;
}

export function readFlow(tx: Reader, { endpointId, id }: JobKey): FoundFlow | undefined {
  const open = tx.resource({ kind: KINDS.open, id });
  const found = open ?? tx.resource({ kind: KINDS.ended, id });
  if (found?.parent !== endpointId) return undefined;
  const progress = open ? tx.resource({ kind: KINDS.progress, id }) : found;
  return progress && { flow: parse(found), progress: parse(progress) };
}

/** The caller knows what the resource is. */
function parse<T>({ body }: StoredResource): T {
  const { v, ...members } = JSON.parse(body);
  if (v !== VERSION) throw new Error(`the record of a flow has version ${v}`);
  return members;
}

/** Flows that have not ended, by the endpoint that keeps them. */
export function countFlows(tx: Reader): Map<string, number> {
  return new Map(tx.countResources(KINDS.progress).map(({ count, parent }) => [parent, count]));
}

/** Counts up to `limit`. */
export function countOpenFlows(tx: Reader, userId: string, limit: number): number {
  return tx.resources({ kind: KINDS.progress, userId, limit }).length;
}

export interface FlowListing {
  endpointId: string;
  before: number | undefined;
  limit: number;
}

/** Newest first. */
export function listFlows(tx: Reader, { before, endpointId, limit }: FlowListing): FoundFlow[] {
  const listing = { parent: endpointId, before, limit };
  const open = tx.resources({ ...listing, kind: KINDS.open });
  const ended = tx.resources({ ...listing, kind: KINDS.ended });
  const newest = [...open, ...ended].sort((a, b) => b.position - a.position).slice(0, limit);
  return tx.each(newest, (found) => {
    const isOpen = found.kind === KINDS.open;
    const progress = isOpen ? tx.resource({ kind: KINDS.progress, id: found.id }) : found;
    return { flow: parse<StoredFlow>(found), progress: parse<FlowProgress>(progress ?? found) };
  });
}

/** Finds ended flows that were created before this position. */
export function findOldFlows(
  tx: Reader,
  { before, limit }: { before: number; limit: number },
): StoredResource[] {
  return tx.resources({ kind: KINDS.ended, before, limit });
}

/** Flows by the user of their endpoint. */
export function countKept(tx: Reader): Map<string, number> {
  const counts = new Map<string, number>();
  const ofEndpoints = [KINDS.progress, KINDS.ended].flatMap((kind) => tx.countResources(kind));
  for (const { count, parent } of ofEndpoints) {
    const userId = tx.endpoint(parent)?.userId ?? '';
    counts.set(userId, (counts.get(userId) ?? 0) + count);
  }
  return counts;
}

/** Takes in how jobs of flows have ended, or that a client has retried them. */
export function noteFlows(
  tx: Transaction,
  step: StepOn,
  { changes, now }: { changes: readonly Change[]; now: number },
): void {
  const byFlow = new Map<string, { place: FlowPlace; job: JobKey; letters: Map<number, string> }>();
  for (const { before, transition } of changes) {
    const place = before.links?.flow;
    if (!place) continue;
    const letter = letterAfter(before, transition);
    if (letter === letterOf(before)) continue;
    const known = byFlow.get(place.id) ?? { place, job: before, letters: new Map() };
    known.letters.set(place.index, letter);
    byFlow.set(place.id, known);
  }
  for (const { job, letters, place } of byFlow.values()) {
    const { endpointId, id, shard } = place;
    if (shard === undefined) noteLetters(tx, id, { letters, now });
    else {
      const flow = { endpointId, id };
      const ofJobs = { endpointId: job.endpointId, letters: [...letters] };
      step.send(shard, { type: 'flow_letters', flow, ...ofJobs });
    }
  }
}

/** Jobs of the flow are added in other shards; with the last one, its first jobs start. @returns false if the flow is gone */
export function noteAdded(
  tx: Transaction,
  step: StepOn,
  { count, flow: key }: { count: number; flow: JobKey },
): boolean {
  const found = readFlow(tx, key);
  if (!found) return false;
  const { flow, progress } = found;
  // All of its jobs have been cancelled.
  if (progress.endedAt !== null) return true;
  const toAdd = Math.max(0, (progress.toAdd ?? 0) - count);
  putProgress(tx, flow, { ...progress, toAdd });
  if (toAdd > 0) return true;
  const first = flow.nodes.filter(({ after }) => after.length === 0);
  for (const [shard, nodes] of Map.groupBy(first, (node) => node.shard)) {
    for (const part of cut(nodes)) {
      const jobs = part.map(({ endpointId, id }) => ({ endpointId, id }));
      step.send(shard, {
        type: 'flow_started',
        flow: { endpointId: key.endpointId, id: key.id },
        jobs,
      });
    }
  }
  return true;
}

export function letterOf(job: StoredJob): string {
  const end = describeEnd(job);
  return end === undefined ? OPEN : LETTERS[end];
}

function letterAfter(before: StoredJob, { job, removed }: Change['transition']): string {
  if (!removed) return letterOf(job);
  return isTerminal(before.status) ? letterOf(before) : LETTERS.REMOVED;
}

/** `run`: number of the retry of which the letters are. */
export function noteLetters(
  tx: Transaction,
  id: FlowPlace['id'],
  { letters, now, run }: { letters: ReadonlyMap<number, string>; now: number; run?: number },
): void {
  const open = tx.resource({ kind: KINDS.progress, id });
  const ended = open ? undefined : tx.resource({ kind: KINDS.ended, id });
  const found = open ?? ended;
  // The endpoint that kept the flow has been deleted.
  if (!found) return;
  const before = parse<FlowProgress>(found);
  const all = [...before.letters];
  for (const [index, letter] of letters) all[index] = letter;
  const isOver = !all.includes(OPEN);
  const { run: lastRun, toAdd } = before;
  const known = { run: run ?? lastRun, toAdd };
  const progress = { letters: all.join(''), endedAt: isOver ? now : null, ...known };
  if (ended && isOver) {
    const flow = { ...parse<StoredFlow>(ended), ...progress, endedAt: before.endedAt };
    tx.putResource(toResource(KINDS.ended, flow, flow));
  } else if (ended) {
    tx.removeResource(ended);
    putOpen(tx, parse<StoredFlow>(ended), progress);
  } else if (!isOver) {
    putProgress(tx, { ...found, endpointId: found.parent }, progress);
  } else {
    const graph = tx.resource({ kind: KINDS.open, id });
    if (!graph) return;
    const flow = parse<StoredFlow>(graph);
    tx.removeResource(graph);
    tx.removeResource(found);
    tx.putResource(toResource(KINDS.ended, flow, { ...flow, ...progress }));
  }
}

export function describeFlow({ flow, progress }: FoundFlow): FlowSummary {
  const counts = {
    open: count(progress, OPEN),
    completed: count(progress, LETTERS.COMPLETED),
    failed: count(progress, LETTERS.FAILED),
    timedOut: count(progress, LETTERS.TIMED_OUT),
    cancelled: count(progress, LETTERS.CANCELLED),
    skipped: count(progress, LETTERS.SKIPPED),
    removed: count(progress, LETTERS.REMOVED),
  };
  const { createdAt, id, nodes } = flow;
  const { endedAt } = progress;
  return { id, status: judge(counts), createdAt, endedAt, total: nodes.length, counts };
}

function count({ letters }: FlowProgress, letter: string): number {
  return letters.split(letter).length - 1;
}

function judge(counts: FlowSummary['counts']): FlowStatus {
  if (counts.open > 0) return 'RUNNING';
  if (counts.failed + counts.timedOut + counts.removed > 0) return 'FAILED';
  return counts.cancelled > 0 ? 'CANCELLED' : 'COMPLETED';
}

/** `order`: the node of each job of the request. */
export function describeReference(flow: StoredFlow, names: readonly string[]): FlowReference {
  const nodes = new Map(flow.nodes.map((node) => [node.name, node]));
  const jobs = names.flatMap((name) => {
    const node = nodes.get(name);
    return node ? [{ name, endpoint: node.endpointId, id: node.id }] : [];
  });
  return { id: flow.id, jobs };
}
