// Starts the children that a handler waits for, in the commit that ends its attempt. The ID of a child follows from the job
// and the name, so each name has one child, however often it is asked for: one that exists already is only awaited.
import { nameUuidV7 } from '../../base/id.ts';
import type {
  JobKey,
  JobParent,
  Payload,
  Reader,
  StoredEndpoint,
  StoredJob,
  Transaction,
} from '../../store/store.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { findSleepEnd, type Wait } from '../../wire/job/memo.ts';
import { ProblemError } from '../../wire/problem.ts';
import { readQueue } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import { insertJobSpec } from '../flows/flow-messages.ts';
import type { JobSpec } from '../handover/messages.ts';
import type { BegunWait } from '../lifecycle/handler-wait.ts';
import { type EndedParent, NO_LINKS } from '../lifecycle/links.ts';
import { addEntry, composeEntry, NO_MEMO, putEntry } from './memo.ts';
import { askElsewhere, awaitKnown } from './remote-children.ts';

/** A wait as the outcome of an attempt asks for it. */
export interface AskedWait {
  sleeps: readonly Extract<Wait, { kind: 'sleep' }>[];
  children: readonly AskedChild[];
}

export interface AskedChild extends JobKey, Omit<Extract<Wait, { kind: 'child' }>, 'input'> {
  input: Payload;
  /** Of the child, if it is new. */
  position: number;
  /** Of the child, if it is another one than that of the job. */
  shard?: number | undefined;
}

export interface StartedWait {
  wait: BegunWait;
  inserted: StoredJob[];
  /** Of children that have ended before. */
  ends: EndedParent[];
}

/** The job cannot wait for this. `isTemporary`: it may be able to later. */
export class WaitRefusal extends Error {
  override readonly name = 'WaitRefusal';
  readonly isTemporary: boolean;

  constructor(message: string, { isTemporary = false } = {}) {
    super(message);
    this.isTemporary = isTemporary;
  }
}

export function keyOfChild(
  { endpointId, id, submittedAt }: Pick<StoredJob, 'endpointId' | 'id' | 'submittedAt'>,
  { endpoint = endpointId, name }: { endpoint?: string | undefined; name: string },
): JobKey {
  return { endpointId: endpoint, id: nameUuidV7(submittedAt, `${endpointId}/${id}/${name}`) };
}

/** @throws WaitRefusal; then nothing has changed */
export function startWait(
  tx: Transaction,
  step: StepOn,
  { asked, job, now }: { job: StoredJob; asked: AskedWait; now: number },
): StartedWait {
  const { fault, until } = findSleepEnd(asked.sleeps, now);
  if (fault !== undefined) throw new WaitRefusal(fault);
  const found = findChildren(tx, job, asked);
  let memo = job.links?.memo ?? NO_MEMO;
  for (const { name } of asked.sleeps) {
    const body = composeEntry({ kind: 'sleep', name });
    putEntry(tx, job, memo.entries, body);
    memo = addEntry(memo, body);
  }
  const parent = { endpointId: job.endpointId, id: job.id, reads: true } as const;
  const userId = tx.endpoint(job.endpointId)?.userId ?? '';
  const inserted: StoredJob[] = [];
  const ends: EndedParent[] = [];
  for (const { child, known } of found) {
    const { endpointId, id, input, position, shard } = child;
    const spec = composeChild(job, child);
    if (shard !== undefined && input instanceof Uint8Array) {
      const waiting = { ...parent, round: job.attempt };
      askElsewhere(tx, step, { input, job: spec, parent: waiting, position, shard, userId });
      continue;
    }
    if (!known) {
      const links = { ...spec.links, children: [parent] };
      inserted.push(insertJobSpec(tx, { spec: { ...spec, links }, input, now, position }));
      continue;
    }
    const status = awaitKnown(tx, step, { known, parent });
    if (status !== undefined) ends.push({ parent: { endpointId, id }, status });
  }
  const children = asked.children.map(
    ({ digest, endpointId, id, name, shard }): JobParent => ({
      ...{ endpointId, id, onFailure: 'run', step: { name, digest } },
      // An end of an earlier wait may be under way.
      ...(shard !== undefined && { shard, round: job.attempt }),
    }),
  );
  return { wait: { children, until, memo }, inserted, ends };
}

interface FoundChild {
  child: AskedChild;
  /** Undefined: it is new. */
  known: StoredJob | undefined;
}

/** @throws WaitRefusal */
function findChildren(tx: Reader, job: StoredJob, { children, sleeps }: AskedWait): FoundChild[] {
  const { chunkCount, links } = job;
  if (chunkCount > 0) throw new WaitRefusal('a handler that has yielded cannot wait');
  if (children.length > LIMITS.awaitedChildren) {
    throw new WaitRefusal(
      `the handler waits for ${children.length} children at once; the limit is ${LIMITS.awaitedChildren}`,
    );
  }
  const entries = (links?.memo?.entries ?? 0) + children.length + sleeps.length;
  if (entries > LIMITS.stepsOfJob) {
    throw new WaitRefusal(
      `the job has ${entries} steps, children and sleeps; the limit is ${LIMITS.stepsOfJob}`,
    );
  }
  if (children.length > 0 && (links?.depth ?? 0) >= LIMITS.childDepth) {
    throw new WaitRefusal(
      `the job is nested ${LIMITS.childDepth} levels deep, the limit: it can start no children`,
    );
  }
  const keys = new Set<string>();
  for (const { endpointId, id, name } of children) {
    const key = `${endpointId}/${id}`;
    if (keys.has(key)) throw new WaitRefusal(`the handler starts child "${name}" twice at once`);
    keys.add(key);
  }
  const known = tx.each(children, (child) => {
    if (child.shard !== undefined) return undefined;
    const endpoint = tx.endpoint(child.endpointId);
    return endpoint && tx.job(child);
  });
  const owner = tx.endpoint(job.endpointId)?.userId;
  const added = new Map<string, number>();
  return children.map((child, index) => {
    // Its shard was asked before.
    if (child.shard !== undefined) return { child, known: undefined };
    const endpoint = findQueue(tx, child, owner);
    const isNew = known[index] === undefined;
    const count = (added.get(endpoint.id) ?? endpoint.inQueue) + (isNew ? 1 : 0);
    added.set(endpoint.id, count);
    const { maxQueued } = endpoint.settings;
    if (isNew && count > maxQueued) {
      const message = `child "${child.name}": the queue of endpoint ${endpoint.id} is full; maxQueued is ${maxQueued}`;
      throw new WaitRefusal(message, { isTemporary: true });
    }
    return { child, known: known[index] };
  });
}

function findQueue(
  tx: Reader,
  { endpointId, name }: AskedChild,
  owner: string | undefined,
): StoredEndpoint {
  try {
    const endpoint = readQueue(tx, endpointId);
    if (endpoint.userId === owner) return endpoint;
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    throw new WaitRefusal(`child "${name}": ${error.message}`);
  }
  throw new WaitRefusal(`child "${name}": endpoint ${endpointId} not found`);
}

/** It belongs to the group of its parent unless it names one. */
function composeChild(
  { group: own, links, traceparent, tracestate }: StoredJob,
  { endpointId, id, policy = {} }: AskedChild,
): JobSpec {
  const { group = own ?? undefined } = policy;
  const trace = traceparent !== null && {
    trace: { traceparent, ...(tracestate !== null && { tracestate }) },
  };
  return {
    ...{ endpointId, id, ...trace },
    policy: { ...policy, ...(group !== undefined && { group }) },
    links: { ...NO_LINKS, depth: (links?.depth ?? 0) + 1 },
  };
}
