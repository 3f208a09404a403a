// Finds the node that serves a request, waits until there is one, and passes the request on. A request that a
// node has refused, or that may be repeated, is sent again.
import type { Agent } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ByteBudget } from '../../base/byte-budget.ts';
import type { Clock } from '../../base/clock.ts';
import { createUuidV7 } from '../../base/id.ts';
import type { Log } from '../../base/log.ts';
import { http } from '../../base/net/node-http.ts';
import { ProblemError } from '../../wire/problem.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { findUpgrade } from '../proxy/upgrade.ts';
import { type ExchangeEnd, exchange } from './exchange.ts';
import { type NewJobId, noteNewJob } from './forwarded.ts';
import type { ForwardingBounds } from './forwarding-bounds.ts';
import { NodeClient } from './node-client.ts';
import { firstSecret } from './node-secret.ts';
import { type PassedBody, readSmallBody } from './passed-body.ts';
import { PeerWatch } from './peer-watch.ts';
import { PlaceWaits } from './place-waits.ts';
import type { Place, Placement } from './placement.ts';
import { findSubject, findSubmission, isRepeatable, type Subject } from './subject.ts';

/** Retry-After of a request that no node serves, ms. */
const RETRY_MS = 2_000;
/** Pause before the same node is tried again, ms. */
const PAUSE_MS = 250;
/** Most attempts of one request. */
const MAX_ATTEMPTS = 300;
/** An attempt of this length counts as a success: the next failure is a new one, ms. */
const SETTLED_MS = 5_000;
/** Idle connections are closed after this time, before the other side closes them, ms. */
const IDLE_MS = 30_000;

export interface ForwardedRequest {
  outcome: 'answered' | 'cut' | 'gone' | 'failed' | 'no_owner' | 'returned';
  durationMs: number;
}

export interface ForwarderOptions {
  placement: Placement;
  secrets: readonly string[];
  bounds: ForwardingBounds;
  /** Longest time in which a small body arrives, ms. */
  stallMs: number;
  /** Longest wait for bytes of the budget, ms. */
  inFlightWaitMs: number;
  clock: Clock;
  log: Log;
  /** A request for another node has ended. */
  note: (forwarded: ForwardedRequest) => void;
}

export class Forwarder {
  readonly waits: PlaceWaits;
  readonly peers: PeerWatch;
  readonly agent: Agent;
  readonly options: ForwarderOptions;
  readonly #client: NodeClient;
  readonly #budget: ByteBudget;
  #isStopping = false;

  constructor(options: ForwarderOptions) {
    const { bounds, clock, log, placement, secrets } = options;
    this.options = options;
    this.waits = new PlaceWaits(placement, clock);
    this.#client = new NodeClient({ secrets });
    this.peers = new PeerWatch({
      client: this.#client,
      clock,
      log,
      silenceMs: bounds.nodeSilenceMs,
    });
    this.agent = new http.Agent({
      ...{ keepAlive: true, timeout: IDLE_MS, scheduling: 'lifo', noDelay: true },
      ...{ maxSockets: bounds.maxNodeConnections, maxFreeSockets: 256 },
    });
    this.#budget = new ByteBudget({
      clock,
      maxBytes: bounds.maxForwardedBytes,
      maxOwnerBytes: bounds.maxUserForwardedBytes,
    });
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Bytes of request bodies that wait for other nodes. */
  get usedBytes(): number {
    return this.#budget.usedBytes;
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
    if (subject.kind === 'local' || this.#find(subject).kind === 'here') return;
    const { clock, note } = this.options;
    const startedAt = clock.now();
    let outcome: ForwardedRequest['outcome'] = 'failed';
    const passage = new Passage(this, this.#budget, request, reply);
    try {
      outcome = await passage.run(() => this.#find(subject));
    } catch (error) {
      if (error instanceof NoOwnerError) outcome = 'no_owner';
      throw error;
    } finally {
      // A request that is served here keeps its body.
      if (outcome === 'returned' && !reply.raw.closed)
        reply.raw.once('close', () => passage.release());
      else passage.release();
      note({ outcome, durationMs: clock.now() - startedAt });
    }
  }

  /** Refuses requests that wait for a node. */
  stop(): void {
    this.#isStopping = true;
    this.waits.close();
  }

  /** Breaks open requests. */
  close(): void {
    this.stop();
    this.peers.close();
    this.#client.close();
    this.agent.destroy();
  }

  #find(subject: Subject): Place {
    const endpointId = subject.kind === 'endpoint' ? subject.endpointId : undefined;
    return this.options.placement.find(endpointId);
  }
}

/** No node has served the request in time. */
export class NoOwnerError extends ProblemError {
  constructor() {
    const detail = 'no node of the platform serves this endpoint at the moment; try again later';
    super('unavailable', detail, { retryAfterMs: RETRY_MS });
  }
}

class StoppingError extends ProblemError {
  constructor() {
    super('unavailable', 'the platform is stopping', { retryAfterMs: 1_000 });
  }
}

function chooseJobId(request: FastifyRequest, clock: Clock): string | undefined {
  const mode = findSubmission(request);
  if (!mode) return undefined;
  const id = createUuidV7(clock.now());
  return mode === 'runsync' ? `sync-${id}` : id;
}

/** One request on its way to another node. */
class Passage {
  readonly #forwarder: Forwarder;
  readonly #budget: ByteBudget;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #gone: AbortSignal;
  readonly #jobId: string | undefined;
  #body: PassedBody | undefined;
  #releaseBody = () => {};
  #mayHaveActed = false;
  #attempts = 0;
  /** When the request is given up; undefined while nothing has failed. */
  #deadline: number | undefined;

  constructor(
    forwarder: Forwarder,
    budget: ByteBudget,
    request: FastifyRequest,
    reply: FastifyReply,
  ) {
    this.#forwarder = forwarder;
    this.#budget = budget;
    this.#request = request;
    this.#reply = reply;
    this.#gone = abortWhenGone(reply.raw);
    this.#jobId = chooseJobId(request, forwarder.options.clock);
  }

  /** @throws ProblemError */
  async run(find: () => Place): Promise<ForwardedRequest['outcome']> {
    for (;;) {
      if (this.#gone.aborted) return this.#giveUp();
      const place = find();
      if (place.kind === 'here') {
        noteNewJob(this.#request.raw, this.#describeJob());
        return 'returned';
      }
      if (place.kind === 'none') {
        await this.#pause(this.#leftMs());
        continue;
      }
      const end = await this.#attempt(place.url);
      if (end === 'answered' || end === 'cut' || end === 'gone') return end;
      await this.#recover(end, place, find);
    }
  }

  release(): void {
    this.#releaseBody();
  }

  async #attempt(url: string): Promise<ExchangeEnd> {
    const { agent, options, peers } = this.#forwarder;
    const { bounds, clock, secrets } = options;
    this.#attempts += 1;
    const startedAt = clock.now();
    this.#body ??= await this.#readBody();
    if (this.#gone.aborted) return this.#giveUp();
    const end = await exchange({
      ...{ request: this.#request, reply: this.#reply, url, agent, peers, clock },
      ...{ body: this.#body, gone: this.#gone, connectMs: bounds.nodeConnectMs },
      job: this.#describeJob(),
      secret: firstSecret(secrets),
      upgrade: findUpgrade(this.#request.raw),
    });
    if (clock.now() - startedAt >= SETTLED_MS) this.#deadline = undefined;
    return end;
  }

  /** Returns when the request may be sent again. @throws ProblemError if it must not be */
  async #recover(end: ExchangeEnd, place: Place, find: () => Place): Promise<void> {
    const { log, placement } = this.#forwarder.options;
    const url = place.kind === 'node' ? place.url : undefined;
    if (end !== 'refused') log.warn({ node: url, end }, 'forwarding to a node failed');
    if (end === 'unknown') {
      if (!isRepeatable(this.#request) || this.#body?.kind === 'late') throw describeUnknown();
      this.#mayHaveActed = true;
    }
    // The limit begins with the first failure.
    const leftMs = this.#leftMs();
    await placement.refresh().catch((error: unknown) => {
      log.warn({ err: error }, 'reloading the placement failed');
    });
    const next = find();
    const isSame = next.kind === 'node' && next.url === url;
    if (isSame) await this.#pause(Math.min(PAUSE_MS, leftMs));
  }

  #describeJob(): NewJobId | undefined {
    return this.#jobId === undefined
      ? undefined
      : { id: this.#jobId, isRepeated: this.#mayHaveActed };
  }

  async #readBody(): Promise<PassedBody> {
    const { bounds, clock, inFlightWaitMs, stallMs } = this.#forwarder.options;
    const waitMs = this.#isWorker() ? bounds.workerOwnerWaitMs : inFlightWaitMs;
    const limits = { budget: this.#budget, waitMs, stallMs, clock, gone: this.#gone };
    const { body, release } = await readSmallBody(this.#request, limits);
    this.#releaseBody = release;
    return body;
  }

  /** @throws NoOwnerError when the time is over */
  #leftMs(): number {
    const { bounds, clock } = this.#forwarder.options;
    if (this.#forwarder.isStopping) throw new StoppingError();
    const limitMs = this.#isWorker() ? bounds.workerOwnerWaitMs : bounds.ownerWaitMs;
    this.#deadline ??= clock.now() + limitMs;
    const leftMs = this.#deadline - clock.now();
    if (leftMs > 0 && this.#attempts < MAX_ATTEMPTS) return leftMs;
    throw this.#mayHaveActed ? describeUnknown() : new NoOwnerError();
  }

  #pause(ms: number): Promise<void> {
    return this.#forwarder.waits.wait(ms, this.#gone);
  }

  #giveUp(): 'gone' {
    if (!this.#reply.sent) this.#reply.hijack();
    return 'gone';
  }

  #isWorker(): boolean {
    return this.#request.routeOptions.config.access === 'worker';
  }
}

function describeUnknown(): ProblemError {
  const detail =
    'the node that serves this endpoint failed during the request, which may have had its effect';
  return new ProblemError('unavailable', detail, { retryAfterMs: RETRY_MS });
}
