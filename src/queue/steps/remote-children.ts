// Children of handlers in other shards than that of their parent: asks for them, adds or awaits them there, and cancels them.
import type { JobChild, StoredJob, Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { readQueue } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import { insertJobSpec, nameWait, putInput, type TakingIn } from '../flows/flow-messages.ts';
import type { ChildJobMessage, HandoverMessage, JobSpec } from '../handover/messages.ts';
import { hasFailed } from '../lifecycle/lifecycle.ts';
import { describeEnd } from '../lifecycle/links.ts';

export type ChildMessage = Extract<HandoverMessage, { type: 'child_job' | 'child_cancel' }>;

interface AskedElsewhere extends Omit<ChildJobMessage, 'type' | 'inputBytes' | 'input'> {
  input: Uint8Array;
  shard: number;
  position: number;
}

/** Asks the shard of the child for it, in the commit that begins the wait. */
export function askElsewhere(
  tx: Transaction,
  step: StepOn,
  { input, job, parent, position, shard, userId }: AskedElsewhere,
): void {
  putInput(tx, { from: nameWait(parent), job, input, position });
  step.send(shard, { type: 'child_job', parent, userId, job, inputBytes: input.length });
}

export function takeInChild(
  tx: Transaction,
  step: StepOn,
  { message, ...taking }: TakingIn & { message: ChildMessage },
): void {
  if (message.type === 'child_cancel') {
    for (const job of tx.each(message.jobs, (key) => tx.job(key))) {
      // One that has ended refuses it.
      if (job) step(job, { type: 'cancel' });
    }
    return;
  }
  const { added, from, nextPosition, now, uploads } = taking;
  const { input = '', job: spec, userId } = message;
  const { endpointId, id } = spec;
  const parent: JobChild = { ...message.parent, shard: from };
  const key = { endpointId, id };
  if (!isOwn(tx, spec, userId)) {
    // The endpoint has been deleted since the wait began.
    step.send(from, { type: 'ended', parent: key, status: 'REMOVED', children: [parent] });
    return;
  }
  const known = tx.job(key);
  if (known) {
    const status = awaitKnown(tx, step, { known, parent });
    if (status) step.send(from, { type: 'ended', parent: key, status, children: [parent] });
    return;
  }
  const job = { ...spec, links: { ...spec.links, children: [parent] } };
  const payload = uploads.get(id) ?? Buffer.from(input, 'base64');
  added.push(insertJobSpec(tx, { spec: job, input: payload, now, position: nextPosition() }));
}

function isOwn(tx: Transaction, { endpointId }: JobSpec, userId: string): boolean {
  try {
    return readQueue(tx, endpointId).userId === userId;
  } catch (error) {
    if (error instanceof ProblemError) return false;
    throw error;
  }
}

/** A job awaits a child that exists: one that has failed runs again. @returns how it has ended, if it has */
export function awaitKnown(
  tx: Transaction,
  step: StepOn,
  { known, parent }: { known: StoredJob; parent: JobChild },
): ReturnType<typeof describeEnd> {
  // It has no parents that it would wait for again.
  if (hasFailed(known)) step(known, { type: 'retry' });
  const again = tx.job(known) ?? known;
  // A refusal would let the job wait for an end that nobody tells it.
  step(again, { type: 'child_added', child: parent, isAccepted: true });
  return describeEnd(again);
}
