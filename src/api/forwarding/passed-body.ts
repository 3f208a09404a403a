// The body of a request for another node. A small one is read first, within a budget of its own, so that the
// request can be sent again. A larger one is read when its node is ready for it.
import type { IncomingMessage } from 'node:http';
import type { FastifyRequest } from 'fastify';
import type { ByteBudget, Claim } from '../../base/byte-budget.ts';
import type { Clock } from '../../base/clock.ts';
import { ProblemError } from '../../wire/problem.ts';
import { LB_ROUTE } from '../../wire/routes/routes.ts';
import { noteReadBody } from '../http/forwarded.ts';
import { sendContinue } from '../limits/exchanges.ts';

/** Larger bodies wait until their node asks for them. */
const MAX_SMALL_BYTES = 65_536;
/** Retry-After if the budget is full, ms. */
const RETRY_MS = 5_000;

/** `late`: it is sent after the node has answered `100 Continue`. `kept`: a copy is made of it on its way. */
export type PassedBody =
  | { kind: 'none' }
  | { kind: 'small'; bytes: Buffer }
  | { kind: 'late'; copy?: BodyCopy | undefined };

export interface BodyBudget {
  budget: ByteBudget;
  /** For copies of larger bodies. When it is full, no copy is made. */
  copies: ByteBudget;
  /** Longest wait for the budget, ms. */
  waitMs: number;
  /** Longest time in which a small body arrives, ms. */
  stallMs: number;
  clock: Clock;
  /** Aborts when the client disconnects. */
  gone: AbortSignal;
}

/** These claims are never dropped. */
const NEVER = { moved: () => Number.POSITIVE_INFINITY, drop: () => {} };

/** The body of a request that was served here. Undefined: it was not kept. */
export function findUsedBody({ body, raw }: FastifyRequest): PassedBody | undefined {
  if (Buffer.isBuffer(body)) return { kind: 'small', bytes: body };
  const { 'content-length': length = '0', 'transfer-encoding': coding } = raw.headers;
  return coding === undefined && Number(length) === 0 ? { kind: 'none' } : undefined;
}

/** The whole body after all, to send it again. */
export function keepWhole(request: IncomingMessage, bytes: Buffer): PassedBody {
  noteReadBody(request, bytes);
  return { kind: 'small', bytes };
}

/**
 * Reads the body if it is small. `release` gives its bytes back to the budget.
 * @throws ProblemError `unavailable`, `request_timeout`
 */
export async function readSmallBody(
  { holder, raw, routeOptions }: FastifyRequest,
  options: BodyBudget,
): Promise<{ body: PassedBody; release: () => void }> {
  const length = Number(raw.headers['content-length'] ?? 0);
  const isSized = raw.headers['transfer-encoding'] === undefined;
  if (isSized && length === 0) return { body: { kind: 'none' }, release: () => {} };
  // A worker of a load-balancing endpoint reads from the client's connection.
  const isBalanced = routeOptions.url === LB_ROUTE.path;
  const owner = holder?.userId ?? '';
  if (!isSized || isBalanced) return { body: { kind: 'late' }, release: () => {} };
  if (length > MAX_SMALL_BYTES) {
    const copied = options.copies.tryClaim({ owner, bytes: length, ...NEVER });
    const copy = copied && new BodyCopy(raw, length);
    return { body: { kind: 'late', copy }, release: () => copied?.release() };
  }
  const claim = await claimBytes(length, owner, options);
  try {
    return { body: keepWhole(raw, await collect(raw, options)), release: claim.release };
  } catch (error) {
    claim.release();
    throw error;
  }
}

async function claimBytes(
  bytes: number,
  owner: string,
  { budget, gone, waitMs }: BodyBudget,
): Promise<Claim> {
  const claim = await budget.claim({ owner, bytes, ...NEVER }, { waitMs, signal: gone });
  if (claim) return claim;
  const detail = 'Too many bytes of requests wait for other nodes; try again later.';
  throw new ProblemError('unavailable', detail, { retryAfterMs: RETRY_MS });
}

function collect(raw: IncomingMessage, options: BodyBudget): Promise<Buffer> {
  const { clock, gone, stallMs } = options;
  sendContinue(raw);
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    const keep = (piece: Buffer) => void pieces.push(piece);
    const finish = () => settle(() => resolve(Buffer.concat(pieces)));
    const fail = () =>
      settle(() => reject(new ProblemError('malformed', 'the request body is incomplete')));
    const cancel = clock.after(stallMs, () => {
      const detail = `the request body did not arrive within ${stallMs} ms; send the request again`;
      settle(() => reject(new ProblemError('request_timeout', detail)));
    });
    const settle = (end: () => void) => {
      cancel();
      raw.off('data', keep).off('end', finish).off('error', fail);
      gone.removeEventListener('abort', fail);
      end();
    };
    raw.on('data', keep).on('end', finish).on('error', fail);
    gone.addEventListener('abort', fail, { once: true });
  });
}

export interface BodyCopyLimits {
  clock: Clock;
  /** Longest time in which the rest of the body arrives, ms. */
  stallMs: number;
  /** Aborts when the client disconnects. */
  gone: AbortSignal;
}

/**
 * A copy of a large body on its way to another node, so that the request can be sent again if that node dies.
 */
class BodyCopy {
  readonly #raw: IncomingMessage;
  readonly #pieces: Buffer[] = [];
  #missing: number;
  #isBegun = false;

  /** `bytes`: the length that the client has announced. */
  constructor(raw: IncomingMessage, bytes: number) {
    this.#raw = raw;
    this.#missing = bytes;
  }

  /** Call it when the body begins to flow. */
  begin(): void {
    if (this.#isBegun) return;
    this.#isBegun = true;
    this.#raw.on('data', (piece: Buffer) => {
      this.#pieces.push(piece);
      this.#missing -= piece.length;
    });
  }

  /** Waits for the rest, which flows. Undefined if it does not arrive. */
  async finish({ clock, gone, stallMs }: BodyCopyLimits): Promise<Buffer | undefined> {
    if (this.#missing > 0 && !gone.aborted) await this.#untilEnd({ clock, gone, stallMs });
    return this.#missing === 0 ? Buffer.concat(this.#pieces) : undefined;
  }

  #untilEnd({ clock, gone, stallMs }: BodyCopyLimits): Promise<void> {
    const raw = this.#raw;
    return new Promise((resolve) => {
      const end = () => {
        cancel();
        raw.off('end', end).off('error', end);
        gone.removeEventListener('abort', end);
        resolve();
      };
      const cancel = clock.after(stallMs, end);
      raw.on('end', end).on('error', end);
      gone.addEventListener('abort', end, { once: true });
    });
  }
}
