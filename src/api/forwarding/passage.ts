// One request on its way to another node: waits until a node serves it, sends it, and sends it again if it was
// refused or may be repeated.
import type { Agent } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ByteBudget } from '../../base/byte-budget.ts';
import { type Clock, sleep } from '../../base/clock.ts';
import { createUuidV7 } from '../../base/id.ts';
import type { Log } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import { type NewJobId, noteNewJob, noteRepeated } from '../http/forwarded.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { firstSecret, type PeerWatch } from '../nodes/node-client.ts';
import { findUpgrade } from '../proxy/upgrade.ts';
import { type ExchangeEnd, type ExchangeOptions, exchange } from './exchange.ts';
import type { ForwardingBounds, OwnerNode, OwnerWaits, Placement } from './forwarding-options.ts';
import { keepWhole, type PassedBody, readSmallBody } from './passed-body.ts';
import { describeFinalLook, type FinalLook, findSubmission, isRepeatable } from './subject.ts';

/** Retry-After of a request that no node serves, ms. */
const RETRY_MS = 2_000;
/** Pause before the same node is tried again, ms. */
const PAUSE_MS = 250;
/** Attempts without a pause, as long as each goes to another node. */
const FREE_ATTEMPTS = 2;
/** Most attempts of one request. */
const MAX_ATTEMPTS = 300;
/** An attempt of this length counts as a success: the next failure is a new one, ms. */
const SETTLED_MS = 5_000;
/** Time in which a request that was just sent takes effect, ms. */
const LOOK_DELAY_MS = 500;

export interface PassageOptions {
  placement: Placement;
  secrets: readonly string[];
  bounds: ForwardingBounds;
  /** Longest time in which a small body arrives, ms. */
  stallMs: number;
  /** Longest wait for bytes of the budget, ms. */
  inFlightWaitMs: number;
  clock: Clock;
  log: Log;
}

/** What all requests for other nodes share; see forwarder.ts. */
export interface PassageContext {
  options: PassageOptions;
  waits: OwnerWaits;
  peers: PeerWatch;
  failures: NodeFailures;
  agent: Agent;
  budget: ByteBudget;
  copies: ByteBudget;
  stopping: AbortSignal;
}

/** `returned`: this node must serve the request. The others: see exchange.ts. */
export type PassageEnd = 'answered' | 'cut' | 'gone' | 'returned';

/** No node has served the request in time. */
export class NoOwnerError extends ProblemError {
  constructor() {
    const detail = 'no node of the platform serves this endpoint at the moment; try again later';
    super('unavailable', detail, { retryAfterMs: RETRY_MS });
  }
}

/** How the request was served here until its endpoint moved. */
export interface Lost {
  body: PassedBody;
  job: NewJobId | undefined;
}

export class Passage {
  readonly #context: PassageContext;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #gone: AbortSignal;
  readonly #jobId: string | undefined;
  readonly #look: FinalLook | undefined;
  #body: PassedBody | undefined;
  #releaseBody = () => {};
  #mayHaveActed = false;
  #attempts = 0;
  /** When the request is given up; undefined while nothing has failed. */
  #deadline: number | undefined;

  constructor(
    context: PassageContext,
    { lost, reply, request }: { request: FastifyRequest; reply: FastifyReply; lost?: Lost },
  ) {
    this.#context = context;
    this.#request = request;
    this.#reply = reply;
    this.#gone = abortWhenGone(reply.raw);
    this.#body = lost?.body;
    this.#mayHaveActed = lost !== undefined;
    this.#jobId = lost ? lost.job?.id : chooseJobId(request, context.options.clock);
    this.#look = describeFinalLook(request, this.#jobId);
  }

  /** @throws ProblemError before the answer begins */
  async run(find: () => OwnerNode): Promise<PassageEnd> {
    for (;;) {
      if (this.#gone.aborted) return this.#giveUp();
      const owner = find();
      if (owner.kind === 'here') {
        noteNewJob(this.#request.raw, this.#describeJob());
        if (this.#mayHaveActed) noteRepeated(this.#request.raw);
        return 'returned';
      }
      if (owner.kind === 'none') {
        await this.#pause(this.#leftMs());
        continue;
      }
      const end = await this.#attempt(owner.url);
      if (isFinal(end)) return end;
      if (end === 'hurried') return this.#lookFinally(owner.url);
      await this.#recover(end, owner.url, find);
    }
  }

  /** Gives the body's bytes back to the budget. */
  release(): void {
    this.#releaseBody();
  }

  async #attempt(url: string): Promise<ExchangeEnd> {
    const { options, stopping, waits } = this.#context;
    this.#attempts += 1;
    const startedAt = options.clock.now();
    this.#body ??= await this.#readBody();
    if (this.#gone.aborted) return this.#giveUp();
    const ends = this.#look ? [stopping, waits.closed] : [];
    const hurry = ends.find(({ aborted }) => !aborted);
    const end = await this.#exchange(url, { body: this.#body, hurry });
    if (end === 'answered') this.#context.failures.answer(url);
    if (options.clock.now() - startedAt >= SETTLED_MS) this.#deadline = undefined;
    return end;
  }

  #exchange(
    url: string,
    what: Pick<ExchangeOptions, 'body' | 'hurry' | 'look'>,
  ): Promise<ExchangeEnd> {
    const { agent, options, peers } = this.#context;
    const { bounds, clock, secrets } = options;
    return exchange({
      request: this.#request,
      reply: this.#reply,
      url,
      agent,
      peers,
      clock,
      gone: this.#gone,
      connectMs: bounds.nodeConnectMs,
      job: this.#describeJob(),
      isRepeated: this.#mayHaveActed,
      secret: firstSecret(secrets),
      upgrade: findUpgrade(this.#request.raw),
      ...what,
    });
  }

  /** @throws ProblemError `unavailable` if the node does not answer */
  async #lookFinally(url: string): Promise<PassageEnd> {
    // The request may have been sent at this moment.
    await sleep(this.#context.options.clock, LOOK_DELAY_MS, this.#gone);
    const end = await this.#exchange(url, { look: this.#look, body: { kind: 'none' } });
    if (isFinal(end)) return end;
    throw describeStopping();
  }

  /** Returns when the request may be sent again. @throws ProblemError if it must not be */
  async #recover(end: ExchangeEnd, url: string, find: () => OwnerNode): Promise<void> {
    const { log, placement } = this.#context.options;
    if (end !== 'refused') this.#context.failures.fail(url, end);
    if (end === 'unknown') {
      this.#body = isRepeatable(this.#request) ? await this.#wholeBody() : undefined;
      if (this.#body === undefined) throw describeUnknown();
      this.#mayHaveActed = true;
    }
    const leftMs = this.#leftMs();
    const refreshed = placement.refresh().catch((error: unknown) => {
      log.warn({ err: error }, 'reloading the placement failed');
    });
    await Promise.race([refreshed, this.#pause(leftMs)]);
    const next = find();
    const isSame = next.kind === 'node' && next.url === url;
    // Two nodes that each take the other one for the owner must not keep this one busy.
    if (isSame || this.#attempts > FREE_ATTEMPTS) await this.#pause(Math.min(PAUSE_MS, leftMs));
  }

  #describeJob(): NewJobId | undefined {
    return this.#jobId === undefined
      ? undefined
      : { id: this.#jobId, isRepeated: this.#mayHaveActed };
  }

  /** After a node may have had the body. Undefined if it cannot be sent again. */
  async #wholeBody(): Promise<PassedBody | undefined> {
    const body = this.#body;
    if (body?.kind !== 'late') return body;
    const { clock, stallMs } = this.#context.options;
    const bytes = await body.copy?.finish({ clock, stallMs, gone: this.#gone });
    return bytes && keepWhole(this.#request.raw, bytes);
  }

  async #readBody(): Promise<PassedBody> {
    const { budget, copies, options } = this.#context;
    const { bounds, clock, inFlightWaitMs, stallMs } = options;
    const waitMs = this.#isWorker() ? bounds.workerOwnerWaitMs : inFlightWaitMs;
    const limits = { budget, copies, waitMs, stallMs, clock, gone: this.#gone };
    const { body, release } = await readSmallBody(this.#request, limits);
    this.#releaseBody = release;
    return body;
  }

  /** The limit begins with the first failure. @throws ProblemError when the time is over */
  #leftMs(): number {
    const { options, waits } = this.#context;
    if (waits.closed.aborted) throw describeStopping();
    const { bounds, clock } = options;
    const limitMs = this.#isWorker() ? bounds.workerOwnerWaitMs : bounds.ownerWaitMs;
    this.#deadline ??= clock.now() + limitMs;
    const leftMs = this.#deadline - clock.now();
    if (leftMs > 0 && this.#attempts < MAX_ATTEMPTS) return leftMs;
    throw this.#mayHaveActed ? describeUnknown() : new NoOwnerError();
  }

  #pause(ms: number): Promise<void> {
    return this.#context.waits.wait(ms, this.#gone);
  }

  #giveUp(): 'gone' {
    if (!this.#reply.sent) this.#reply.hijack();
    return 'gone';
  }

  #isWorker(): boolean {
    return this.#request.routeOptions.config.access === 'worker';
  }
}

function isFinal(end: ExchangeEnd): end is 'answered' | 'cut' | 'gone' {
  return end === 'answered' || end === 'cut' || end === 'gone';
}

export function chooseJobId(request: FastifyRequest, clock: Clock): string | undefined {
  const mode = findSubmission(request);
  if (!mode) return undefined;
  const id = createUuidV7(clock.now());
  return mode === 'runsync' ? `sync-${id}` : id;
}

function describeStopping(): ProblemError {
  return new ProblemError('unavailable', 'the platform is stopping', { retryAfterMs: 1_000 });
}

function describeUnknown(): ProblemError {
  const detail =
    'the node that serves this endpoint failed during the request, which may have had its effect';
  return new ProblemError('unavailable', detail, { retryAfterMs: RETRY_MS });
}

/** Between two lines about a node that still fails, ms. */
const REPEAT_MS = 60_000;
/** A node works again after an answer so long after its last failure, ms. */
const SOUND_MS = 5_000;
/** A node that has not failed for so long is forgotten: it may never be called again, ms. */
const FORGET_MS = 600_000;

export interface NodeFailuresOptions {
  clock: Pick<Clock, 'now'>;
  log: Pick<Log, 'info' | 'warn'>;
}

interface Failing {
  /** Since the last line. */
  failures: number;
  /** Since the node failed first. */
  all: number;
  failedAt: number;
  loggedAt: number;
}

/**
 * Logs failures by node: the first one, a count once a minute, and the end. A killed node fails every request under
 * way, and a line for each would hide everything else.
 */
export class NodeFailures {
  readonly #options: NodeFailuresOptions;
  readonly #failing = new Map<string, Failing>();

  constructor(options: NodeFailuresOptions) {
    this.#options = options;
  }

  fail(node: string, end: ExchangeEnd): void {
    const { clock, log } = this.#options;
    const now = clock.now();
    const known = this.#failing.get(node);
    if (!known) this.#forgetOld(now);
    const failing = known ?? {
      failures: 0,
      all: 0,
      failedAt: now,
      loggedAt: Number.NEGATIVE_INFINITY,
    };
    failing.failures += 1;
    failing.all += 1;
    failing.failedAt = now;
    this.#failing.set(node, failing);
    if (now - failing.loggedAt < REPEAT_MS) return;
    log.warn({ node, end, failures: failing.failures }, 'forwarding to a node failed');
    failing.loggedAt = now;
    failing.failures = 0;
  }

  /** The node has answered. */
  answer(node: string): void {
    const failing = this.#failing.get(node);
    if (!failing) return;
    const { clock, log } = this.#options;
    if (clock.now() - failing.failedAt < SOUND_MS) return;
    this.#failing.delete(node);
    log.info({ node, failures: failing.all }, 'forwarding to a node works again');
  }

  #forgetOld(now: number): void {
    for (const [node, { failedAt }] of this.#failing) {
      if (now - failedAt > FORGET_MS) this.#failing.delete(node);
    }
  }
}
