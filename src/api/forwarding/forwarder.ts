// Decides whether this node serves a request, and passes it to another node if not. It has what all these
// requests share: connections, the budget of their bodies, and the watch over the other nodes.
import { once } from 'node:events';
import type { Agent, IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ByteBudget } from '../../base/byte-budget.ts';
import { http } from '../../base/net/node-http.ts';
import { PROBLEMS, type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { EVENT_LIMITS, type Topic } from '../../wire/routes/event-topics.ts';
import { LOG_CUT_HEADER, WORKER_HEADERS } from '../../wire/routes/routes.ts';
import type { NameSources } from '../http/auth.ts';
import { findForwarded, findNewJob, NODE_HEADERS, noteNewJob } from '../http/forwarded.ts';
import { toProblem } from '../http/problem-reply.ts';
import {
  firstSecret,
  NodeClient,
  PeerWatch,
  readNodeAddress,
  readWhole,
} from '../nodes/node-client.ts';
import { NodeListener, type NodeListenerOptions } from '../nodes/node-listener.ts';
import type { ServedLink } from '../worker/worker-routes.ts';
import {
  addForwardingHooks,
  countServed,
  endServed,
  lookUpUnknownNames,
  type Served,
  tellOwner,
} from './forwarding-hooks.ts';
import {
  completeForwardingBounds,
  type ForwardingBounds,
  type ForwardingOptions,
  type OwnerNode,
  OwnerWaits,
} from './forwarding-options.ts';
import { createNodeLink, type NodeLinkOptions } from './node-link.ts';
import {
  chooseJobId,
  type Lost,
  NodeFailures,
  NoOwnerError,
  Passage,
  type PassageEnd,
  type PassageOptions,
} from './passage.ts';
import { findUsedBody } from './passed-body.ts';
import { findSubject, isRepeatable, type Subject } from './subject.ts';

/** Idle connections are closed after this time, before the other side closes them, ms. */
const IDLE_MS = 30_000;
/** Idle connections to one node. */
const MAX_IDLE = 256;
/** Time in which another node opens the shards that a stopping node has handed over, ms. */
const HANDOVER_MS = 2_000;

/** Limit of a read of a topic, ms. */
const READ_MS = 5_000;

interface RemoteRead {
  /** Of the node. */
  url: string;
  topic: Topic;
  credentials: Readonly<Record<string, string>>;
}

export interface ForwardedRequest {
  outcome: PassageEnd | 'failed' | 'no_owner';
  durationMs: number;
}

export interface ForwarderOptions
  extends PassageOptions,
    Pick<ForwardingOptions, 'advertised' | 'findPodPort' | 'listen' | 'onCall'> {
  /** A request for another node has ended. */
  note: (forwarded: ForwardedRequest) => void;
}

/** What the server of a node gives its forwarder. */
export interface ForwarderParts extends Omit<ForwarderOptions, 'bounds'> {
  /** Default: DEFAULT_FORWARDING_BOUNDS. */
  bounds?: Partial<ForwardingBounds> | undefined;
}

export function openForwarder({ bounds, ...parts }: ForwarderParts): Forwarder {
  return new Forwarder({ ...parts, bounds: completeForwardingBounds(bounds) });
}

export class Forwarder {
  readonly options: ForwarderOptions;
  readonly waits: OwnerWaits;
  readonly peers: PeerWatch;
  readonly failures: NodeFailures;
  readonly agent: Agent;
  readonly budget: ByteBudget;
  readonly copies: ByteBudget;
  readonly #client: NodeClient;
  readonly #stopping = new AbortController();
  #cancelClosing = () => {};

  constructor(options: ForwarderOptions) {
    const { bounds, clock, log, placement, secrets } = options;
    this.options = options;
    this.waits = new OwnerWaits(placement, clock);
    this.#client = new NodeClient({ secrets });
    this.failures = new NodeFailures({ clock, log });
    const silenceMs = bounds.nodeSilenceMs;
    this.peers = new PeerWatch({ client: this.#client, clock, log, silenceMs });
    this.agent = new http.Agent({
      keepAlive: true,
      timeout: IDLE_MS,
      maxSockets: bounds.maxNodeConnections,
      maxFreeSockets: MAX_IDLE,
    });
    const maxBytes = bounds.maxForwardedBytes;
    this.budget = new ByteBudget({ clock, maxBytes, maxOwnerBytes: bounds.maxUserForwardedBytes });
    this.copies = new ByteBudget({
      clock,
      maxBytes: bounds.maxCopiedBytes,
      maxOwnerBytes: bounds.maxUserCopiedBytes,
    });
    void this.#followDeaths();
  }

  /** Aborts when the platform stops. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Bytes of request bodies that wait for other nodes, and of copies. */
  get usedBytes(): number {
    return this.budget.usedBytes + this.copies.usedBytes;
  }

  /** Whether this node serves the request. */
  isHere(request: FastifyRequest): boolean {
    const subject = findSubject(request);
    return subject.kind === 'local' || this.#find(subject).kind === 'here';
  }

  /**
   * Resolves when this node must serve the request, or when the answer of another node has been passed on:
   * then the reply is hijacked. @throws ProblemError before the answer begins
   */
  async pass(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const subject = findSubject(request);
    if (subject.kind === 'local') return;
    if (this.#find(subject).kind === 'here') {
      // If the endpoint moves meanwhile, the next node must find the job.
      const id = chooseJobId(request, this.options.clock);
      if (id !== undefined) noteNewJob(request.raw, { id, isRepeated: false });
      return;
    }
    await this.#run(request, reply, { subject });
  }

  /**
   * Reads the data of an event stream's topic on the node that has it, with the rights of the caller: the same operation,
   * over HTTP. @throws ProblemError that the node answers, or `unavailable`
   */
  async readTopic({ credentials, topic, url }: RemoteRead): Promise<object> {
    const path = topic.rule.target(topic);
    try {
      const request = http.request({
        ...readNodeAddress(url),
        agent: this.agent,
        method: 'GET',
        path,
        signal: AbortSignal.timeout(READ_MS),
        headers: { ...credentials, [NODE_HEADERS.secret]: firstSecret(this.options.secrets) },
      });
      request.end();
      const [response]: IncomingMessage[] = await once(request, 'response');
      if (!response) throw new Error('no response');
      const body = await readWhole(response, EVENT_LIMITS.snapshotBytes);
      return readAnswer(response, body.toString(), topic);
    } catch (cause) {
      if (cause instanceof ProblemError) throw cause;
      throw new ProblemError('unavailable', 'The node that has this data does not answer now.', {
        cause,
      });
    }
  }

  /** Adds what a node checks before the guard. */
  addChecks(app: FastifyInstance, served: Served & NameSources): void {
    const { placement } = this.options;
    addForwardingHooks(app, { forwarder: this, queue: served.queue });
    lookUpUnknownNames(app, { ...served, placement });
  }

  /** Adds what a node does after the guard, which forwards the requests that other nodes serve. */
  followServed(app: FastifyInstance): void {
    const { advertised, placement } = this.options;
    countServed(app, placement);
    if (advertised) tellOwner(app, advertised);
  }

  /**
   * For the error handler: lets the next owner answer if this node has lost the endpoint. Never rejects. @returns undefined
   * if it has not; else the error to send, or undefined if another node has answered
   */
  takeLost(
    request: FastifyRequest,
    reply: FastifyReply,
    { error, queue }: Served & { error: unknown },
  ): Promise<unknown> | undefined {
    if (toProblem(error)?.code !== 'unavailable') return undefined;
    if (findForwarded(request.raw)) {
      // The queue refuses a request whose endpoint moves meanwhile. The node that forwarded the request may repeat it.
      if (queue.isClosing || !this.isHere(request)) reply.header(NODE_HEADERS.answer, 'lost');
      return undefined;
    }
    if (reply.sent || reply.raw.destroyed || this.isHere(request)) return undefined;
    // A node that hands an endpoint over waits for the requests that it serves.
    endServed(request);
    // They describe the answer that this node began.
    for (const name of ['content-type', WORKER_HEADERS.owner]) reply.removeHeader(name);
    return this.#passLost(request, reply).then(
      (isAnswered) => (isAnswered ? undefined : error),
      (failure: unknown) => failure,
    );
  }

  /**
   * Passes on a request that this node has served until its endpoint moved, if that is harmless. @returns whether
   * another node has answered it @throws ProblemError before the answer begins
   */
  async #passLost(request: FastifyRequest, reply: FastifyReply): Promise<boolean> {
    const subject = findSubject(request);
    if (subject.kind === 'local' || !isRepeatable(request)) return false;
    const body = findUsedBody(request);
    if (body === undefined || this.#find(subject).kind === 'here') return false;
    const lost = { body, job: findNewJob(request.raw) };
    return (await this.#run(request, reply, { lost, subject })) !== 'returned';
  }

  /** The link of a worker on a carrier whose calls are not forwarded as a whole. */
  linkTo(worker: Omit<NodeLinkOptions, 'advertised' | 'forwarder'>): ServedLink {
    const advertised = this.options.advertised?.grpcUrl;
    return createNodeLink({ ...worker, forwarder: this, advertised });
  }

  /** The port for other nodes. */
  createListener(
    server: Pick<NodeListenerOptions, 'bounds' | 'closeMs' | 'routing'>,
  ): NodeListener {
    const { maxNodeConnections } = this.options.bounds;
    return new NodeListener({ ...this.options, ...server, maxNodeConnections });
  }

  /** Ends waits at other nodes, and soon refuses requests that wait for a node. */
  stop(): void {
    if (this.stopping.aborted) return;
    this.#stopping.abort();
    this.#cancelClosing = this.options.clock.after(HANDOVER_MS, () => this.waits.close());
  }

  /** Breaks open requests. */
  close(): void {
    this.stop();
    this.#cancelClosing();
    this.waits.close();
    this.peers.close();
    this.#client.close();
    this.agent.destroy();
  }

  /** Requests at a dead node are repeated elsewhere as soon as the cluster knows. */
  async #followDeaths(): Promise<void> {
    const { placement } = this.options;
    while (!this.stopping.aborted) {
      await placement.untilChange(this.stopping);
      this.peers.failDead((url) => placement.isDead(url));
    }
  }

  /** @throws ProblemError before the answer begins */
  async #run(
    request: FastifyRequest,
    reply: FastifyReply,
    { lost, subject }: { subject: Subject; lost?: Lost },
  ): Promise<PassageEnd> {
    const { clock, note } = this.options;
    const startedAt = clock.now();
    let outcome: ForwardedRequest['outcome'] = 'failed';
    const passage = new Passage(this, { request, reply, ...(lost && { lost }) });
    try {
      const end = await passage.run(() => this.#find(subject));
      outcome = end;
      return end;
    } catch (error) {
      if (error instanceof NoOwnerError) outcome = 'no_owner';
      throw error;
    } finally {
      // A request that is served here keeps its body.
      if (outcome === 'returned' && !reply.raw.closed) {
        reply.raw.once('close', () => passage.release());
      } else passage.release();
      note({ outcome, durationMs: clock.now() - startedAt });
    }
  }

  #find(subject: Subject): OwnerNode {
    const endpointId = subject.kind === 'endpoint' ? subject.endpointId : undefined;
    return this.options.placement.find(endpointId);
  }
}

function readAnswer(
  { headers, statusCode = 0 }: IncomingMessage,
  body: string,
  topic: Topic,
): object {
  if (headers[NODE_HEADERS.answer] !== 'owner') throw new Error('the node does not have the data');
  if (statusCode === 200) {
    if (topic.kind !== 'pod-log') return Object(JSON.parse(body));
    return { log: body, truncated: headers[LOG_CUT_HEADER.toLowerCase()] === 'true' };
  }
  const { code, detail }: Record<string, unknown> = Object(JSON.parse(body));
  throw new ProblemError(findCode(code), String(detail));
}

function findCode(code: unknown): ProblemCode {
  return typeof code === 'string' && isCode(code) ? code : 'unavailable';
}

function isCode(code: string): code is ProblemCode {
  return Object.hasOwn(PROBLEMS, code);
}
