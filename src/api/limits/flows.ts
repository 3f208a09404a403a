// Budgets for the bytes of bodies and responses that slow clients keep in memory. Workers have a
// reserved budget, because their reports must get through.
import type { ServerResponse } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { ByteBudget, type Claim, type ClaimWait, type Transfer } from '../../base/byte-budget.ts';
import type { Clock } from '../../base/clock.ts';
import { yieldToLoop } from '../../base/slices.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { HttpBounds } from './bounds.ts';

/**
 * Smaller bodies and responses are not counted: all connections together cannot hold many bytes of
 * them.
 */
export const UNCOUNTED_BYTES = 16_384;
const UNCOUNTED_ANSWER_BYTES = 65_536;
const UNCOUNTED_HEAD_BYTES = 4_096;

/** Retry-After if the budget is full, ms. */
const RETRY_MS = 5_000;
/** Owner of responses that need no key. */
const KEYLESS_OWNER = '';

declare module 'fastify' {
  interface FastifyInstance {
    flows: Flows;
  }
}

export type FlowsOptions = Pick<
  HttpBounds,
  | 'maxInFlightBytes'
  | 'maxUserInFlightBytes'
  | 'maxWorkerInFlightBytes'
  | 'inFlightWaitMs'
  | 'transferMs'
> & { clock: Clock };

/**
 * How long a call waits: `none`; `default`: clients briefly, workers without a limit; `endless`.
 */
type Patience = 'none' | 'default' | 'endless';

export interface FlowRequest<T> extends Pick<Transfer, 'moved' | 'drop'> {
  /** Called again after a wait, unless the size was measured. */
  load: () => T | Promise<T>;
  /** Estimates the bytes without loading them. Default: unknown. */
  measure?: (() => Promise<number>) | undefined;
  sizeOf: (value: T) => number;
  patience: Patience;
  /** Aborts when the client disconnects. Called only if the response waits for the budget. */
  signal: () => AbortSignal;
}

export interface Loaded<T> {
  value: T;
  claim: Claim;
}

const NO_CLAIM: Claim = { shrink: () => {}, release: () => {} };

type FlowCaller = Pick<FastifyRequest, 'holder' | 'routeOptions'>;

/** The budget of workers' calls, half of it for one user. */
export function createWorkerBudget(
  { maxWorkerInFlightBytes: maxBytes }: Pick<HttpBounds, 'maxWorkerInFlightBytes'>,
  clock: Clock,
): ByteBudget {
  return new ByteBudget({ clock, maxBytes, maxOwnerBytes: maxBytes / 2 });
}

export class Flows {
  /** For calls of workers, on all carriers. */
  readonly workers: ByteBudget;
  readonly clients: ByteBudget;
  readonly #clock: Clock;
  readonly #waitMs: number;
  readonly #transferMs: number;

  constructor(options: FlowsOptions) {
    const { clock, inFlightWaitMs, maxInFlightBytes, maxUserInFlightBytes } = options;
    this.#clock = clock;
    this.#waitMs = inFlightWaitMs;
    this.#transferMs = options.transferMs;
    this.clients = new ByteBudget({
      clock,
      maxBytes: maxInFlightBytes,
      maxOwnerBytes: maxUserInFlightBytes,
    });
    this.workers = createWorkerBudget(options, clock);
  }

  /** Bytes claimed at the moment. */
  get usedBytes(): number {
    return this.clients.usedBytes + this.workers.usedBytes;
  }

  /** Counts the head of a request until its response is over. @throws ProblemError `unavailable` */
  claimHead(caller: FlowCaller, { bytes, response }: { bytes: number; response: ServerResponse }) {
    if (bytes <= UNCOUNTED_HEAD_BYTES) return;
    const drop = () => void response.destroy();
    const transfer = { owner: ownerOf(caller), bytes, moved: () => 0, drop };
    const claim = this.#budgetOf(caller).tryClaim(transfer);
    if (!claim) throw refuse();
    response.once('close', claim.release);
  }

  /** Limits the time for reading a finite response. @returns the function that cancels the limit */
  limit(end: () => void): () => void {
    return this.#clock.after(this.#transferMs, end);
  }

  /**
   * Claims bytes before they arrive. Clients wait briefly, workers without a limit. Undefined if
   * the signal has aborted. @throws ProblemError `unavailable`
   */
  claim(
    caller: FlowCaller,
    transfer: Omit<Transfer, 'owner'>,
    signal: AbortSignal,
  ): Promise<Claim | undefined> {
    return this.#claim(caller, transfer, { signal, waitMs: this.#waitOf(caller, 'default') });
  }

  /**
   * Loads a response and claims its bytes. If the size can be measured, the claim comes first.
   * Otherwise, if the loaded bytes exceed the free budget, drops them and loads them again after
   * the wait. Undefined if the signal has aborted.
   * @throws ProblemError `unavailable`, and the error of `load`
   */
  async load<T>(caller: FlowCaller, request: FlowRequest<T>): Promise<Loaded<T> | undefined> {
    const { drop, load, measure, moved, patience, signal, sizeOf } = request;
    let bytes = (await measure?.()) ?? 0;
    if (bytes <= UNCOUNTED_ANSWER_BYTES) {
      const loaded = await this.#loadAtOnce(caller, request);
      if (typeof loaded !== 'number') return loaded;
      bytes = loaded;
    }
    const waiting = { signal: signal(), waitMs: this.#waitOf(caller, patience) };
    const claim = await this.#claim(caller, { bytes, drop, moved }, waiting);
    if (!claim) return undefined;
    try {
      // Loading many large responses in one iteration would block the event loop.
      await yieldToLoop();
      const value = await load();
      claim.shrink(sizeOf(value));
      return { claim, value };
    } catch (error) {
      claim.release();
      throw error;
    }
  }

  /** Returns the number of bytes if the budget is full, so that nothing else is kept in memory. */
  async #loadAtOnce<T>(
    caller: FlowCaller,
    { drop, load, moved, sizeOf }: FlowRequest<T>,
  ): Promise<Loaded<T> | number> {
    const value = await load();
    const bytes = sizeOf(value);
    if (bytes <= UNCOUNTED_ANSWER_BYTES) return { value, claim: NO_CLAIM };
    const transfer = { bytes, drop, moved, owner: ownerOf(caller) };
    const claim = this.#budgetOf(caller).tryClaim(transfer);
    return claim ? { value, claim } : bytes;
  }

  async #claim(
    caller: FlowCaller,
    transfer: Omit<Transfer, 'owner'>,
    waiting: Required<ClaimWait>,
  ): Promise<Claim | undefined> {
    const owned = { ...transfer, owner: ownerOf(caller) };
    const claim = await this.#budgetOf(caller).claim(owned, waiting);
    if (claim || waiting.signal.aborted) return claim;
    throw refuse();
  }

  #waitOf(caller: FlowCaller, patience: Patience): number {
    if (patience === 'none') return 0;
    return patience === 'endless' || isWorker(caller) ? Number.POSITIVE_INFINITY : this.#waitMs;
  }

  #budgetOf(caller: FlowCaller): ByteBudget {
    return isWorker(caller) ? this.workers : this.clients;
  }
}

function refuse(): ProblemError {
  const detail = 'Too many bytes of requests and answers are in flight; try again later.';
  return new ProblemError('unavailable', detail, { retryAfterMs: RETRY_MS });
}

function isWorker({ routeOptions }: FlowCaller): boolean {
  return routeOptions.config.access === 'worker';
}

function ownerOf({ holder }: FlowCaller): string {
  return holder?.userId ?? KEYLESS_OWNER;
}
