// Reads whole request bodies within bounds: checks the headers first, claims the bytes in the
// budget of bytes in flight, and drops a body whose client stalls. Large bodies are collected in
// place.
import { Buffer } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { errorCodes, type FastifyRequest } from 'fastify';
import { type Claim, giveBack } from '../../base/byte-budget.ts';
import type { Clock } from '../../base/clock.ts';
import { ProblemError } from '../../wire/problem.ts';
import { findReadBody } from '../http/forwarded.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import { findResponse, sendContinue } from '../limits/exchanges.ts';
import { type Flows, UNCOUNTED_BYTES } from '../limits/flows.ts';

/**
 * Parsing a chunk takes some microseconds, however small it is. A body with more chunks must have
 * larger ones.
 */
const MAX_TINY_CHUNKS = 4_000;
const TINY_CHUNK_BYTES = 32;
/**
 * Received bytes after which other requests run. Node reads up to 2 MB of each connection in one iteration of the
 * event loop.
 */
const ITERATION_BYTES = 262_144;
/** Retry-After of a dropped upload, ms. */
const RETRY_MS = 5_000;

export interface BodyReaderOptions extends Pick<HttpBounds, 'stallMs'> {
  flows: Flows;
  clock: Clock;
  /** Resolves when the request's user may use the event loop. */
  schedule: (request: FastifyRequest) => Promise<void>;
}

/** A body that is still in memory. */
interface HeldBody {
  claims: Claim[];
  /** A handler uses it, so the claims must not be released. */
  isInUse: boolean;
  /** The client has disconnected. */
  isGone: boolean;
}

const held = new WeakMap<FastifyRequest, HeldBody>();

/** The body has been stored: no memory is held for it while the request waits for its answer. */
export function forgetBody(request: FastifyRequest): void {
  request.body = undefined;
  for (const claim of held.get(request)?.claims ?? []) claim.release();
  held.delete(request);
}

/**
 * Keeps the claims on the body until the work has ended, even if the client disconnects before. Use it for
 * work that keeps a large body in memory while it waits for the store: without the claims, clients that
 * disconnect could fill the memory.
 */
export async function useBody<T>(request: FastifyRequest, work: () => Promise<T>): Promise<T> {
  const body = held.get(request);
  if (!body) return work();
  body.isInUse = true;
  try {
    return await work();
  } finally {
    body.isInUse = false;
    if (body.isGone) forgetBody(request);
  }
}

type ReadBody = (request: FastifyRequest, payload: IncomingMessage) => Promise<Buffer>;

declare module 'fastify' {
  interface FastifyInstance {
    readBody: ReadBody;
  }
}

/** For fastify's `addContentTypeParser`. Rejects with fastify's own errors of `parseAs`. */
export function createBodyReader(options: BodyReaderOptions): ReadBody {
  return async (request, payload) => {
    checkCoding(request);
    const announced = Number(request.headers['content-length'] ?? Number.NaN);
    if (announced > request.routeOptions.bodyLimit)
      throw new errorCodes.FST_ERR_CTP_BODY_TOO_LARGE();
    // Node parses the bytes behind the head when the listener of the request has returned.
    await undefined;
    const arrived = findReadBody(request.raw) ?? readArrived(payload, announced);
    if (arrived) return arrived;
    const body = await new Upload({ ...options, request, payload, announced }).read();
    // The iteration in which the request began is over.
    await useBody(request, () => options.schedule(request));
    if (request.raw.socket.destroyed) {
      throw new ProblemError('malformed', 'The client closed the connection');
    }
    return body;
  };
}

/**
 * Most small bodies have arrived with the head of their request. They need no limit of time, no
 * budget and no events. Returns undefined for other bodies.
 */
function readArrived(payload: IncomingMessage, announced: number): Buffer | undefined {
  const isSmall = announced > 0 && announced <= UNCOUNTED_BYTES;
  if (!isSmall || payload.readableLength !== announced) return undefined;
  const received: unknown = payload.read();
  // Without a reader, the request would not end.
  payload.resume();
  // A copy: the received bytes are part of a block of 64 KB.
  return Buffer.isBuffer(received) ? Buffer.from(received) : undefined;
}

/** @throws ProblemError `unsupported_media_type` */
export function checkCoding({ headers }: FastifyRequest): void {
  const coding = headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (coding !== 'identity' && coding !== '') {
    const detail = `Content-Encoding is ${quote(coding)}; send the body without compression.`;
    throw new ProblemError('unsupported_media_type', detail);
  }
  const [, charset = 'utf-8'] =
    /;\s*charset\s*=\s*"?([^";\s]*)/i.exec(headers['content-type'] ?? '') ?? [];
  if (/^utf-?8$/i.test(charset)) return;
  const detail = `The charset of Content-Type is ${quote(charset)}; send UTF-8.`;
  throw new ProblemError('unsupported_media_type', detail);
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 100));
}

interface UploadOptions extends BodyReaderOptions {
  request: FastifyRequest;
  payload: IncomingMessage;
  /** NaN if the length is unknown. */
  announced: number;
}

function watchClient(payload: IncomingMessage): AbortSignal {
  const response = findResponse(payload);
  return response ? abortWhenGone(response) : new AbortController().signal;
}

/** One incoming body. */
class Upload {
  readonly #options: UploadOptions;
  readonly #held: HeldBody = { claims: [], isInUse: false, isGone: false };
  #claimedBytes = UNCOUNTED_BYTES;
  #receivedBytes = 0;
  /** Received since other requests could run. */
  #iterationBytes = 0;
  /** A body waits for the budget of bytes in flight. */
  #isClaiming = false;
  #chunks = 0;
  #movedAt = 0;
  #failure: Error | undefined;
  /** Aborts when the client disconnects; created with the first claim. */
  #gone: AbortSignal | undefined;
  /** Set once the bytes are awaited. */
  #settle: ((error: Error | undefined) => void) | undefined;

  constructor(options: UploadOptions) {
    this.#options = options;
    const { payload, request } = options;
    held.set(request, this.#held);
    findResponse(payload)?.once('close', () => {
      this.#held.isGone = true;
      if (!this.#held.isInUse) forgetBody(request);
    });
  }

  async read(): Promise<Buffer> {
    const { announced, payload, request } = this.#options;
    payload.on('error', this.#fail);
    let body: GrowingBody | SizedBody | undefined;
    try {
      if (announced > UNCOUNTED_BYTES) await this.#claim(announced);
      sendContinue(payload);
      body = Number.isNaN(announced) ? new GrowingBody() : new SizedBody(announced);
      await this.#receive(body);
      return body.whole();
    } catch (error) {
      body?.discard();
      forgetBody(request);
      throw error;
    } finally {
      payload.off('error', this.#fail);
    }
  }

  readonly #fail = (error: Error): void => {
    this.#failure ??= error;
    this.#settle?.(this.#failure);
  };

  /** @throws ProblemError `unavailable`, or an error that occurred meanwhile */
  async #claim(bytes: number): Promise<void> {
    const { flows, payload, request } = this.#options;
    this.#gone ??= watchClient(payload);
    const gone = this.#gone;
    // A body in use must not be dropped: that would not free its memory.
    const moved = () => (this.#held.isInUse ? Number.POSITIVE_INFINITY : this.#receivedBytes);
    const claim = await flows.claim(request, { bytes, moved, drop: this.#drop }, gone);
    const isGone = new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH();
    const failure = this.#failure ?? (gone.aborted ? isGone : undefined);
    if (failure) {
      // If the upload's claims were released already, nobody would release this one.
      claim?.release();
      throw failure;
    }
    if (claim) this.#held.claims.push(claim);
  }

  readonly #drop = (): void => {
    const detail =
      'The platform is short of memory and stopped this upload, the slowest one; send it again later.';
    this.#fail(new ProblemError('unavailable', detail, { retryAfterMs: RETRY_MS }));
    forgetBody(this.#options.request);
  };

  #receive(body: GrowingBody | SizedBody): Promise<void> {
    const { announced, clock, payload } = this.#options;
    return new Promise((resolve, reject) => {
      const onData = (chunk: Buffer) => {
        this.#receivedBytes += chunk.length;
        this.#movedAt = clock.now();
        const excess = this.#findExcess();
        if (excess) this.#fail(excess);
        else body.add(chunk);
        if (Number.isNaN(announced)) this.#claimGrowth();
        this.#countBytes(chunk.length);
      };
      const onEnd = () => {
        const isShort = !Number.isNaN(announced) && this.#receivedBytes !== announced;
        this.#settle?.(isShort ? new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH() : undefined);
      };
      this.#movedAt = clock.now();
      const cancelWatch = this.#watchStall();
      this.#settle = (error) => {
        cancelWatch();
        payload.off('data', onData).off('end', onEnd);
        this.#settle = undefined;
        if (error) reject(error);
        else resolve();
      };
      payload.on('data', onData).on('end', onEnd);
    });
  }

  #findExcess(): Error | undefined {
    const { announced, payload, request } = this.#options;
    this.#chunks += 1;
    if (isTiny(this.#chunks, this.#receivedBytes)) {
      // Reading the rest only to discard it would cost as much.
      findResponse(payload)?.once('finish', () => payload.socket.destroy());
      return describeTinyChunks();
    }
    if (this.#receivedBytes > request.routeOptions.bodyLimit)
      return new errorCodes.FST_ERR_CTP_BODY_TOO_LARGE();
    const isLonger = this.#receivedBytes > announced;
    return isLonger ? new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH() : undefined;
  }

  /** For a body of unknown length, the claim doubles as it grows. */
  #claimGrowth(): void {
    const { clock, payload } = this.#options;
    if (this.#receivedBytes <= this.#claimedBytes || this.#isClaiming) return;
    const bytes = this.#claimedBytes;
    this.#claimedBytes += bytes;
    this.#isClaiming = true;
    payload.pause();
    this.#claim(bytes).then(() => {
      this.#isClaiming = false;
      this.#movedAt = clock.now();
      payload.resume();
    }, this.#fail);
  }

  #countBytes(bytes: number): void {
    this.#iterationBytes += bytes;
    if (this.#iterationBytes < ITERATION_BYTES) return;
    this.#iterationBytes = 0;
    const { payload } = this.#options;
    payload.pause();
    setImmediate(() => {
      if (!this.#isClaiming) payload.resume();
    });
  }

  /** Time spent waiting for the budget does not count. */
  #watchStall(): () => void {
    const { clock, payload, stallMs } = this.#options;
    let cancel = () => {};
    const watch = (ms: number) => {
      cancel = clock.after(ms, () => {
        const leftMs = this.#movedAt + stallMs - clock.now();
        if (payload.isPaused() || leftMs > 0) watch(Math.max(leftMs, stallMs / 10));
        else this.#fail(describeStall(stallMs));
      });
    };
    watch(stallMs);
    return () => cancel();
  }
}

/** Whether a body has come in too many pieces for its size. */
export function isTiny(chunks: number, bytes: number): boolean {
  return chunks > MAX_TINY_CHUNKS && bytes < chunks * TINY_CHUNK_BYTES;
}

export function describeTinyChunks(): ProblemError {
  return new ProblemError(
    'malformed',
    'The request body has too many tiny chunks; send chunks of at least 32 bytes.',
  );
}

export function describeStall(stallMs: number): ProblemError {
  const detail = `No byte of the request body arrived for ${stallMs} ms; send the request again.`;
  return new ProblemError('request_timeout', detail);
}

/** From this size on, the memory of received parts is released at once. */
const LARGE_BYTES = 1_048_576;
/** First buffer for a body of unknown length. */
const FIRST_BYTES = 4_096;

/**
 * A body of unknown length is copied into a growing buffer, because it may arrive one byte at a
 * time.
 */
class GrowingBody {
  #bytes = Buffer.alloc(0);
  #at = 0;

  add(chunk: Buffer): void {
    const end = this.#at + chunk.length;
    if (end > this.#bytes.length) this.#grow(end);
    this.#bytes.set(chunk, this.#at);
    this.#at = end;
  }

  whole(): Buffer {
    return this.#bytes.subarray(0, this.#at);
  }

  discard(): void {
    giveBack(this.#bytes);
  }

  #grow(bytes: number): void {
    const old = this.#bytes;
    this.#bytes = Buffer.allocUnsafeSlow(Math.max(bytes, old.length * 2, FIRST_BYTES));
    this.#bytes.set(old);
    giveBack(old);
  }
}

/** A body of known length. */
class SizedBody {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(length: number) {
    this.#bytes =
      length >= LARGE_BYTES ? Buffer.allocUnsafeSlow(length) : Buffer.allocUnsafe(length);
  }

  add(chunk: Buffer): void {
    this.#bytes.set(chunk, this.#at);
    this.#at += chunk.length;
    if (this.#bytes.length >= LARGE_BYTES) giveBack(chunk);
  }

  whole(): Buffer {
    return this.#bytes;
  }

  discard(): void {
    giveBack(this.#bytes);
  }
}
