// What nodes ask of each other, besides forwarding requests: each call with the schemas of its body and its answer.
import { z } from 'zod';
import type { OwnerNode } from '../../api/forwarding/forwarding-options.ts';
import { NodeCallError, type NodeClient } from '../../api/nodes/node-client.ts';
import { sessionChange } from '../../control/keys/sessions.ts';
import { handoverMessage } from '../../queue/handover/messages.ts';
import type { OutputPart, ParentState } from '../../queue/handover/peers.ts';
import { MAX_ASKED } from '../../queue/handover/remote-jobs.ts';
import { loanAnswer, loanMessage } from '../../queue/limits/shared/loans.ts';
import type { ScheduleCall } from '../../queue/schedules/schedules.ts';
import { ERROR_CODES, JOB_STATUSES, PARENT_ENDS } from '../../wire/job/job.ts';
import { jobSummary, problem } from '../../wire/job/job-records.ts';
import { describeIssues, ProblemError } from '../../wire/problem.ts';
import { endpointActivity, FAILED_LIMIT } from '../../wire/resources/activity.ts';
import { useCounts } from '../../wire/resources/limits.ts';
import { nodeSelf } from '../../wire/resources/nodes.ts';
import { scalingFacts } from '../../wire/resources/scaling.ts';
import { scheduleCreation, scheduleUpdate, storedSchedule } from '../../wire/resources/schedule.ts';
import {
  machineAnswer,
  machineBody,
  machineInfo,
  parkWish,
  useAnswer,
  workLoad,
} from '../machines/machine-agent.ts';
import { ratesAnswer, ratesBody } from './rate-counts.ts';

/** Of one node. */
export const MAX_SECRETS = 500;

export interface NodeCall<Body, Answer> {
  name: string;
  body: z.ZodType<Body>;
  answer: z.ZodType<Answer>;
  timeoutMs: number;
}

const endpointIds = z.array(z.string()).max(1_000);
const ofPod = { endpointId: z.string(), podId: z.string() };

/** With it a node that starts shows which webhook secrets it has. */
const secretDigests = z.object({
  /** New for each comparison. */
  salt: z.string().min(32).max(128),
  /** HMAC-SHA-256 of each secret with the salt as the key, hex. */
  digests: z.array(z.string().length(64)).max(MAX_SECRETS),
});
export type SecretDigests = z.infer<typeof secretDigests>;

const secretsVerdict = z.enum(['equal', 'shared', 'different']);
export type SecretsVerdict = z.infer<typeof secretsVerdict>;

const failedListing = z.object({
  before: z.number().exactOptional(),
  limit: z.int().min(1).max(FAILED_LIMIT.max),
  errorCode: z.enum(ERROR_CODES).exactOptional(),
  tags: z.array(z.string()).exactOptional(),
  since: z.number().exactOptional(),
  until: z.number().exactOptional(),
  text: z.string().exactOptional(),
});

const failedPage = z.object({
  jobs: z.array(
    jobSummary.extend({
      endpointId: z.string(),
      position: z.number(),
      endedAt: z.number().nullable(),
      retryOf: z.string().exactOptional(),
      retriedAs: z.string().exactOptional(),
    }),
  ),
  next: z.number().exactOptional(),
});

const id = z.string();
const scheduleCall: z.ZodType<ScheduleCall> = z.discriminatedUnion('verb', [
  z.object({ verb: z.literal('create'), userId: z.string(), creation: scheduleCreation }),
  z.object({ verb: z.enum(['get', 'remove', 'trigger']), id }),
  z.object({ verb: z.literal('update'), id, update: scheduleUpdate }),
]);
/** The answer of the queue, or why it refuses the call. */
const scheduleAnswer = z.union([
  z.object({ schedule: storedSchedule, jobId: z.string().exactOptional() }),
  z.object({ problem }),
]);
const scheduleEntries = z.array(z.object({ id, name: z.string(), endpointId: z.string() }));
const schedulePage = z.object({
  listed: z.array(z.object({ position: z.number(), schedule: storedSchedule })),
  next: z.number().exactOptional(),
});

const jobKey = z.object({ endpointId: z.string(), id });
const handoverBatch = z.object({
  /** The receiver. */
  shard: z.int(),
  from: z.int(),
  messages: z.array(z.object({ number: z.number(), message: handoverMessage })),
});
const parentState: z.ZodType<ParentState> = z.object({
  status: z.enum(PARENT_ENDS).exactOptional(),
  isFull: z.boolean(),
});
const jobCount = z.object({ endpointId: z.string(), count: z.int() });
const outputPart: z.ZodType<OutputPart> = z.discriminatedUnion('kind', [
  z.object({
    kind: z.enum(['gone', 'lost', 'none']),
    error: z.object({ code: z.enum(ERROR_CODES), message: z.string() }).exactOptional(),
  }),
  z.object({ kind: z.literal('part'), part: z.string(), totalBytes: z.number() }),
]);

/** Answered when it is done. */
const done = z.unknown();

export const NODE_CALLS = {
  /** A shard was offered to the node: it looks for its shards at once. */
  shards: call('shards', z.null(), done, 2_000),
  /** The leader has changed endpoints, templates or keys. */
  changed: call('changed', z.null(), done, 2_000),
  /** Removes a deleted endpoint from its shard, and answers when nothing is left. */
  remove: call('remove', z.object({ shard: z.number(), endpointId: z.string() }), done, 60_000),
  /** Declares an endpoint; for the leader. */
  declare: call(
    'declare',
    z.object({ endpointId: z.string(), maxAttempts: z.number().optional() }),
    done,
    10_000,
  ),
  /** Reports calls of users and workers, and asks for slices of their limits; for the leader. */
  rates: call('rates', ratesBody, ratesAnswer, 1_000),
  /** Starts, uses or ends the session of a browser; for the leader. */
  session: call('session', sessionChange, done, 10_000),
  /** What the machine of the node is. */
  describe: call('describe', z.null(), machineInfo, 3_000),
  /** Something to do on the machine of the node; machines.ts knows how long each may take. */
  machine: call('machine', machineBody, machineAnswer, 30_000),
  /** Endpoints that have got jobs, and workers that the leader starts; for the leader. */
  work: call('work', z.object({ endpointIds: z.array(z.string()) }), done, 2_000),
  /** The load of an endpoint; for its owner. */
  load: call('load', z.object({ endpointId: z.string() }), workLoad, 5_000),
  /** Messages of a shard to another one; for the owner of that one. */
  handover: call('handover', handoverBatch, z.object({ taken: z.number() }), 10_000),
  /** How jobs are that a job of another shard is to wait for; for the owner of their shard. */
  parents: call(
    'parents',
    z.object({ shard: z.int(), userId: z.string(), keys: z.array(jobKey).max(MAX_ASKED) }),
    z.array(parentState.nullable()),
    5_000,
  ),
  /** Whether a flow may have so many jobs at endpoints; for the owner of their shard. */
  judgeJobs: call(
    'judgeJobs',
    z.object({ shard: z.int(), userId: z.string(), jobs: z.array(jobCount) }),
    z.object({ problem: problem.nullable() }),
    5_000,
  ),
  /** How jobs of a flow are; for the owner of their shard. */
  jobStates: call(
    'jobStates',
    z.object({ shard: z.int(), keys: z.array(jobKey).max(MAX_ASKED) }),
    z.array(z.enum(['WAITING', ...JOB_STATUSES]).nullable()),
    5_000,
  ),
  /** A part of the output of a job; for the owner of its shard. */
  output: call(
    'output',
    z.object({ shard: z.int(), key: jobKey, at: z.int() }),
    outputPart,
    30_000,
  ),
  /** What happens at endpoints now, by ID; for their owner. */
  activity: call(
    'activity',
    z.object({ endpointIds }),
    z.record(z.string(), endpointActivity),
    3_000,
  ),
  /** Failed jobs of endpoints; for their owner. */
  failed: call('failed', z.object({ endpointIds, listing: failedListing }), failedPage, 5_000),
  /** An operation on the schedules of an endpoint; for its owner. */
  schedule: call(
    'schedule',
    z.object({ endpointId: z.string(), call: scheduleCall }),
    scheduleAnswer,
    10_000,
  ),
  /** The schedules of a user at the node. */
  scheduleEntries: call(
    'scheduleEntries',
    z.object({ userId: z.string() }),
    scheduleEntries,
    5_000,
  ),
  schedulePage: call(
    'schedulePage',
    z.object({ userId: z.string(), before: z.number().exactOptional(), limit: z.int().min(1) }),
    schedulePage,
    5_000,
  ),
  /** Borrows starts of shared limits; for the owner of their shard. */
  lend: call('lend', loanMessage, loanAnswer, 1_500),
  /** Version, start and store of the node. */
  self: call('self', z.null(), nodeSelf, 2_000),
  /** What a user uses of the quotas; for the leader. */
  userUse: call('userUse', z.object({ userId: z.string() }), useCounts, 3_000),
  /** What the scaler knows of an endpoint's workers; for the leader. Null: it has not decided yet. */
  scaling: call('scaling', z.object({ endpointId: z.string() }), scalingFacts.nullable(), 1_000),
  /** Drains the workers of a pod; for the owner of their endpoint. */
  drain: call('drain', z.object(ofPod), done, 5_000),
  /** Parks the workers of a pod, or wakes them; for the owner of their endpoint. */
  park: call('park', z.object({ ...ofPod, wish: parkWish }), done, 5_000),
  /**
   * Releases the leases of a pod that has ended; for the owner of its endpoint. `outbox`: the node on whose machine
   * its undelivered outcomes are; null: nobody can read them.
   */
  endPod: call(
    'endPod',
    z.object({ ...ofPod, outbox: z.object({ url: z.string(), term: z.number() }).nullable() }),
    done,
    30_000,
  ),
  /** The endpoints and worker pods that exist; for the leader. */
  use: call('use', z.null(), useAnswer, 10_000),
  /** Compares the webhook secrets of a node that starts with those of the node that answers. */
  webhooks: call('webhooks', secretDigests, z.object({ secrets: secretsVerdict }), 2_000),
};

function call<Body, Answer>(
  name: string,
  body: z.ZodType<Body>,
  answer: z.ZodType<Answer>,
  timeoutMs: number,
): NodeCall<Body, Answer> {
  return { name, body, answer, timeoutMs };
}

const NAMES: ReadonlySet<string> = new Set(Object.values(NODE_CALLS).map(({ name }) => name));
const RETRY = { retryAfterMs: 1_000 };

/** How a call differs from the usual ones. */
interface Asking {
  /** Default: that of the call. */
  timeoutMs?: number;
  /** Breaks the call off. */
  signal?: AbortSignal;
  /** It may take minutes. */
  isLong?: boolean;
}

/** @throws NodeCallError, ZodError */
export async function askNode<Body, Answer>(
  client: NodeClient,
  url: string,
  { answer, name, timeoutMs }: NodeCall<Body, Answer>,
  body: Body,
  asking: Asking = {},
): Promise<Answer> {
  return answer.parse(await client.call(url, name, body, { timeoutMs, ...asking }));
}

export interface NodeCallsOptions {
  client: NodeClient;
  findLeader: () => OwnerNode;
}

/** The calls that this node answers, and asks of the leader, whichever node that is. */
export class NodeCalls {
  readonly #options: NodeCallsOptions;
  readonly #handlers = new Map<string, (body: unknown) => Promise<unknown>>();

  constructor(options: NodeCallsOptions) {
    this.#options = options;
  }

  /** From now on the node answers the call. */
  answer<Body, Answer>(
    { body: schema, name }: NodeCall<Body, Answer>,
    handler: (body: Body) => Promise<Answer>,
  ): void {
    this.#handlers.set(name, async (body) => {
      const parsed = schema.safeParse(body);
      if (parsed.success) return handler(parsed.data);
      throw new ProblemError('invalid', describeIssues(parsed.error, 'call').join('; '));
    });
  }

  /** Like `answer`, for calls that only the leader can answer. */
  answerAsLeader<Body, Answer>(
    asked: NodeCall<Body, Answer>,
    handler: (body: Body) => Promise<Answer>,
  ): void {
    this.answer(asked, async (body) => {
      if (this.#options.findLeader().kind === 'here') return handler(body);
      throw new ProblemError('unavailable', 'this node does not lead', RETRY);
    });
  }

  /** Answers a call of another node. @throws ProblemError `not_found`, `invalid`, `unavailable` while the node starts */
  readonly receive = async (name: string, body: unknown): Promise<unknown> => {
    if (!NAMES.has(name)) throw new ProblemError('not_found', `call ${name} not found`);
    const handler = this.#handlers.get(name);
    if (!handler) throw new ProblemError('unavailable', 'this node is starting', RETRY);
    return handler(body);
  };

  /** @throws ProblemError `unavailable` without a leader that answers, and the errors of this node if it leads */
  async askLeader<Body, Answer>(asked: NodeCall<Body, Answer>, body: Body): Promise<Answer> {
    const { client, findLeader } = this.#options;
    const leader = findLeader();
    if (leader.kind === 'here') return asked.answer.parse(await this.receive(asked.name, body));
    if (leader.kind === 'none') throw new ProblemError('unavailable', 'no node leads now', RETRY);
    try {
      return await askNode(client, leader.url, asked, body);
    } catch (cause) {
      if (!(cause instanceof NodeCallError)) throw cause;
      const detail = 'the node that leads does not answer';
      throw new ProblemError('unavailable', detail, { ...RETRY, cause });
    }
  }
}
