// What nodes ask of each other, besides forwarding requests.
import { z } from 'zod';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import { sessionChange } from '../../control/keys/sessions.ts';
import { ERROR_CODES } from '../../wire/job/job.ts';
import { describeIssues, ProblemError } from '../../wire/problem.ts';
import { FAILED_LIMIT } from '../../wire/resources/activity.ts';
import { machineBody } from '../machines/machine-messages.ts';
import { ratesBody } from './rate-counts.ts';

/** Of one node. */
export const MAX_SECRETS = 500;

/** With it a node that starts shows which webhook secrets it has. */
const secretDigests = z.object({
  /** New for each comparison. */
  salt: z.string().min(32).max(128),
  /** HMAC-SHA-256 of each secret with the salt as the key, hex. */
  digests: z.array(z.string().length(64)).max(MAX_SECRETS),
});

export type SecretDigests = z.infer<typeof secretDigests>;

export type SecretsVerdict = 'equal' | 'shared' | 'different';

const CALLS = {
  /** A shard was offered to the node: it looks for its shards at once. */
  shards: { body: z.null(), timeoutMs: 2_000 },
  /** The leader has changed endpoints, templates or keys. */
  changed: { body: z.null(), timeoutMs: 2_000 },
  /** Removes a deleted endpoint from its shard, and answers when nothing is left. */
  remove: { body: z.object({ shard: z.number(), endpointId: z.string() }), timeoutMs: 60_000 },
  /** Declares an endpoint; for the leader. */
  declare: {
    body: z.object({ endpointId: z.string(), maxAttempts: z.number().optional() }),
    timeoutMs: 10_000,
  },
  /** Reports calls of users and workers, and asks for slices of their limits; for the leader. */
  rates: { body: ratesBody, timeoutMs: 1_000 },
  /** Starts, uses or ends the session of a browser; for the leader. */
  session: { body: sessionChange, timeoutMs: 10_000 },
  /** What the machine of the node is. */
  describe: { body: z.null(), timeoutMs: 3_000 },
  /** Something to do on the machine of the node; machines.ts knows how long each may take. */
  machine: { body: machineBody, timeoutMs: 30_000 },
  /** Endpoints that have got jobs, and workers that the leader starts; for the leader. */
  work: { body: z.object({ endpointIds: z.array(z.string()) }), timeoutMs: 2_000 },
  /** The load of an endpoint; for its owner. */
  load: { body: z.object({ endpointId: z.string() }), timeoutMs: 5_000 },
  /** What happens at endpoints now, by ID; for their owner. */
  activity: { body: z.object({ endpointIds: z.array(z.string()).max(1_000) }), timeoutMs: 3_000 },
  /** Failed jobs of endpoints; for their owner. */
  failed: {
    body: z.object({
      endpointIds: z.array(z.string()).max(1_000),
      listing: z.object({
        before: z.number().exactOptional(),
        limit: z.int().min(1).max(FAILED_LIMIT.max),
        errorCode: z.enum(ERROR_CODES).exactOptional(),
      }),
    }),
    timeoutMs: 5_000,
  },
  /** Version, start and store of the node. */
  self: { body: z.null(), timeoutMs: 2_000 },
  /** What a user uses of the quotas; for the leader. */
  userUse: { body: z.object({ userId: z.string() }), timeoutMs: 3_000 },
  /** What the scaler knows of an endpoint's workers; for the leader. */
  scaling: { body: z.object({ endpointId: z.string() }), timeoutMs: 1_000 },
  /** Drains the workers of a pod; for the owner of their endpoint. */
  drain: { body: z.object({ endpointId: z.string(), podId: z.string() }), timeoutMs: 5_000 },
  /**
   * Releases the leases of a pod that has ended; for the owner of its endpoint. `outbox`: the node on whose machine
   * its undelivered outcomes are; null: nobody can read them.
   */
  endPod: {
    body: z.object({
      endpointId: z.string(),
      podId: z.string(),
      outbox: z.object({ url: z.string(), term: z.number() }).nullable(),
    }),
    timeoutMs: 30_000,
  },
  /** The endpoints and worker pods that exist; for the leader. */
  use: { body: z.null(), timeoutMs: 10_000 },
  /** Compares the webhook secrets of a node that starts with those of the node that answers. */
  webhooks: { body: secretDigests, timeoutMs: 2_000 },
} as const;

type Calls = typeof CALLS;
type NodeCallName = keyof Calls;
type BodyOf<Name extends NodeCallName> = z.infer<Calls[Name]['body']>;

/** Resolves with the answer, if there is one, when it is done; rejects if it cannot be done now. */
type NodeCallHandlers = {
  readonly [Name in NodeCallName]: (body: BodyOf<Name>) => Promise<unknown>;
};

/** Resolves with the answer's JSON. @throws NodeCallError */
export async function callNode<Name extends NodeCallName>(
  client: NodeClient,
  url: string,
  ...[name, body]: [name: Name, body: BodyOf<Name>]
): Promise<unknown> {
  const { timeoutMs } = CALLS[name];
  return client.call(url, name, body, { timeoutMs });
}

/** Answers calls of other nodes. @throws ProblemError `not_found`, `invalid` */
export function answerCalls(handlers: NodeCallHandlers) {
  const calls: Readonly<Record<string, (body: unknown) => Promise<unknown>>> = {
    shards: (body) => handlers.shards(read(CALLS.shards.body, body)),
    changed: (body) => handlers.changed(read(CALLS.changed.body, body)),
    remove: (body) => handlers.remove(read(CALLS.remove.body, body)),
    declare: (body) => handlers.declare(read(CALLS.declare.body, body)),
    rates: (body) => handlers.rates(read(CALLS.rates.body, body)),
    session: (body) => handlers.session(read(CALLS.session.body, body)),
    describe: (body) => handlers.describe(read(CALLS.describe.body, body)),
    machine: (body) => handlers.machine(read(CALLS.machine.body, body)),
    work: (body) => handlers.work(read(CALLS.work.body, body)),
    load: (body) => handlers.load(read(CALLS.load.body, body)),
    activity: (body) => handlers.activity(read(CALLS.activity.body, body)),
    failed: (body) => handlers.failed(read(CALLS.failed.body, body)),
    self: (body) => handlers.self(read(CALLS.self.body, body)),
    userUse: (body) => handlers.userUse(read(CALLS.userUse.body, body)),
    scaling: (body) => handlers.scaling(read(CALLS.scaling.body, body)),
    drain: (body) => handlers.drain(read(CALLS.drain.body, body)),
    endPod: (body) => handlers.endPod(read(CALLS.endPod.body, body)),
    use: (body) => handlers.use(read(CALLS.use.body, body)),
    webhooks: (body) => handlers.webhooks(read(CALLS.webhooks.body, body)),
  };
  return async (name: string, body: unknown): Promise<unknown> => {
    const call = Object.hasOwn(calls, name) ? calls[name] : undefined;
    if (!call) throw new ProblemError('not_found', `call ${name} not found`);
    return (await call(body)) ?? {};
  };
}

function read<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  throw new ProblemError('invalid', describeIssues(parsed.error, 'call').join('; '));
}

export type MachineCallHandlers = Pick<
  NodeCallHandlers,
  'describe' | 'machine' | 'work' | 'load' | 'scaling' | 'drain' | 'endPod' | 'use'
>;

/** For handlers that do not exist yet when other nodes begin to call. */
export function forwardMachineCalls(find: () => MachineCallHandlers): MachineCallHandlers {
  return {
    describe: (body) => find().describe(body),
    machine: (body) => find().machine(body),
    work: (body) => find().work(body),
    load: (body) => find().load(body),
    scaling: (body) => find().scaling(body),
    drain: (body) => find().drain(body),
    endPod: (body) => find().endPod(body),
    use: (body) => find().use(body),
  };
}
