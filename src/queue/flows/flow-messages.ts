// Flows with jobs in several shards: adds their jobs, starts, cancels and retries them, and keeps the letters of the flow's
// record. Parts of operations.
import type {
  JobChild,
  JobKey,
  JobLinks,
  Payload,
  StoredJob,
  Transaction,
  UploadedPayload,
} from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { createJob, readQueue, type Submission } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import {
  cut,
  type HandoverMessage,
  type JobSpec,
  type RetriedParent,
} from '../handover/messages.ts';
import { type FoundParents, nameParentKey } from '../handover/remote-jobs.ts';
import { waitForParents } from '../lifecycle/links.ts';
import { LETTERS, letterOf, noteAdded, noteLetters, readFlow, toKey } from './flow-record.ts';
import { retryFlowJob } from './parents.ts';

export type FlowMessage = Extract<HandoverMessage, { flow: JobKey }>;

export interface TakingIn {
  /** The shard that has sent the messages. */
  from: number;
  now: number;
  /** For new jobs. */
  nextPosition: () => number;
  /** Inputs of new jobs that were stored before, by job ID. */
  uploads: ReadonlyMap<string, UploadedPayload>;
  /** Gets the new jobs. */
  added: StoredJob[];
}

export function takeInOfFlow(
  tx: Transaction,
  step: StepOn,
  { message, ...taking }: TakingIn & { message: FlowMessage },
): void {
  const { from, now } = taking;
  switch (message.type) {
    case 'flow_job':
      addJob(tx, step, { ...taking, message });
      break;
    case 'flow_started':
      for (const key of message.jobs) {
        const job = tx.job(key);
        if (job) step(job, { type: 'flow_started' });
      }
      break;
    case 'flow_cancel':
      for (const key of message.jobs) {
        const job = tx.job(key);
        if (job) step(job, { type: 'cancel', ...(message.isWhole && { isWholeFlow: true }) });
      }
      break;
    case 'flow_retry':
      retry(tx, step, { from, message });
      break;
    case 'flow_job_missing':
      noteMissing(tx, step, { message, now });
      break;
    case 'flow_letters':
      noteLetters(tx, message.flow.id, { letters: new Map(message.letters), now });
  }
}

function addJob(
  tx: Transaction,
  step: StepOn,
  {
    added,
    from,
    message,
    nextPosition,
    now,
    uploads,
  }: TakingIn & { message: Extract<FlowMessage, { type: 'flow_job' }> },
): void {
  const { flow, input = '', job: spec } = message;
  const payload = uploads.get(spec.id) ?? Buffer.from(input, 'base64');
  try {
    added.push(insertJobSpec(tx, { spec, input: payload, now, position: nextPosition() }));
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    // Its endpoint has been deleted since the flow was accepted. Its children may be yet to be added.
    const { endpointId, links } = spec;
    const { index = 0 } = links.flow ?? {};
    step.send(from, { type: 'flow_job_missing', flow, index, endpointId });
  }
}

/** Tells the children of the job. They get this after the messages that add them. */
function noteMissing(
  tx: Transaction,
  step: StepOn,
  { message, now }: { message: Extract<FlowMessage, { type: 'flow_job_missing' }>; now: number },
): void {
  const { flow: key, index } = message;
  const { nodes = [] } = readFlow(tx, key)?.flow ?? {};
  noteLetters(tx, key.id, { letters: new Map([[index, LETTERS.REMOVED]]), now });
  const missing = nodes[index];
  if (!missing) return;
  const children = nodes.filter(({ after }) => after.some(({ job }) => job === index));
  for (const [shard, all] of Map.groupBy(children, (node) => node.shard)) {
    for (const part of cut(all.map(toKey))) {
      step.send(shard, {
        type: 'ended',
        parent: toKey(missing),
        status: 'REMOVED',
        children: part,
      });
    }
  }
}

/** @throws ProblemError `not_found`, `conflict` if the endpoint has no queue */
export function insertJobSpec(
  tx: Transaction,
  { input, spec, ...queued }: { spec: JobSpec; input: Payload; now: number; position: number },
): StoredJob {
  const { endpointId, id, links, policy, trace, webhook } = spec;
  const submission: Submission = {
    ...{ endpointId, mode: 'run', input: NO_BYTES, policy, webhook, trace },
    idempotency: undefined,
  };
  const isChild = links.held === true || links.parents.length > 0;
  const plain = createJob(submission, readQueue(tx, endpointId), { id, ...queued });
  const linked = { ...plain, linked: true, links };
  const job = isChild ? waitForParents(linked, queued) : linked;
  tx.insertJob(job, input);
  return job;
}

/** The job is made without its input. */
const NO_BYTES = new Uint8Array();

function retry(
  tx: Transaction,
  step: StepOn,
  { from, message }: { from: number; message: Extract<FlowMessage, { type: 'flow_retry' }> },
): void {
  const { flow, job: key, letter, parents } = message;
  const job = tx.job(key);
  const remote = describeParents(job?.links, { parents, run: flow.run });
  const isRetried = job && retryFlowJob(tx, step, { job, remote, run: flow.run });
  if (isRetried) return;
  // The record of the flow takes it for open.
  const letters = [[flow.index, job ? letterOf(job) : letter]] as const;
  const { endpointId } = key;
  step.send(from, { type: 'flow_letters', flow, endpointId, letters });
}

/** The parents that are in other shards than the job. */
export function describeParents(
  links: JobLinks | null | undefined,
  { parents, run }: { parents: readonly RetriedParent[]; run: number },
): FoundParents {
  const known = new Map(parents.map((parent) => [nameParentKey(parent), parent]));
  const others = (links?.parents ?? []).flatMap((parent) => {
    const name = nameParentKey(parent);
    const { isRetried = false, status } = known.get(name) ?? {};
    if (parent.shard === undefined) return [];
    const state = { isFull: false, ...(status !== undefined && { status }) };
    return [[name, { shard: parent.shard, state, ...(isRetried && { run }) }] as const];
  });
  return new Map(others);
}

/** The receiver has added the jobs of these messages. */
export function noteJobsAdded(
  tx: Transaction,
  step: StepOn,
  messages: readonly { shard: number; message: HandoverMessage }[],
): void {
  for (const { message } of messages) {
    if ('inputBytes' in message) tx.removeResource(nameInputOf(message));
  }
  const added = messages.flatMap(({ message, shard }) =>
    message.type === 'flow_job' ? [{ shard, flow: message.flow, job: message.job }] : [],
  );
  for (const [, jobs] of Map.groupBy(added, ({ flow }) => flow.id)) {
    const [{ flow } = { flow: undefined }] = jobs;
    if (!flow || noteAdded(tx, step, { flow, count: jobs.length })) continue;
    // The endpoint that kept the flow has been deleted: its first jobs must not wait for it.
    for (const { job, shard } of jobs) {
      const { endpointId, id, links } = job;
      if (!links.held) continue;
      step.send(shard, { type: 'flow_cancel', flow, jobs: [{ endpointId, id }], isWhole: true });
    }
  }
}

export const INPUT_KIND = 'flow_input';

/** Of a job that is yet to be added in another shard. */
interface LeavingJob {
  /** The flow, or the job that awaits this one. */
  from: JobKey;
  job: JobKey;
}

/** Stores the input of such a job. */
export function putInput(
  tx: Transaction,
  { from, input, job, position }: LeavingJob & { input: Uint8Array; position: number },
): void {
  const body = Buffer.from(input).toString('base64');
  const name = nameInput({ from, job });
  tx.putResource({ ...name, userId: '', parent: from.endpointId, position, body });
}

function nameInput({ from, job }: LeavingJob): { kind: string; id: string } {
  return { kind: INPUT_KIND, id: `${from.id}/${job.id}` };
}

/** The record of the input of the job that the message adds. */
export function nameInputOf(message: Extract<HandoverMessage, { inputBytes: number }>): {
  kind: string;
  id: string;
} {
  const { job } = message;
  return nameInput({
    job,
    from: message.type === 'flow_job' ? message.flow : nameWait(message.parent),
  });
}

/** A later wait for the same child has another input record: the message about the first may be yet to be delivered. */
export function nameWait({ endpointId, id, round }: JobChild): JobKey {
  return { endpointId, id: `${id} ${round}` };
}
