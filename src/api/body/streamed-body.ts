// Reads a large request body piece by piece, within bounds of its size and of the time between two pieces.
import type { FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import { ProblemError } from '../../wire/problem.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import { findResponse, sendContinue } from '../limits/exchanges.ts';
import { checkCoding, describeStall, describeTinyChunks, isTiny } from './body-reader.ts';

/** An upload of lines has one of them, and the parts around it, in memory. */
export const UPLOAD_CLAIM_BYTES = 2 * BATCH_LIMITS.lineBytes;

/** Retry-After of a dropped upload, ms. */
const RETRY_MS = 5_000;

export interface StreamedBodyOptions extends Pick<HttpBounds, 'stallMs'> {
  clock: Clock;
  maxBytes: number;
  /** Memory that the caller needs while it reads, in the budget of bytes in flight. */
  claimBytes: number;
}

/**
 * Yields the pieces in the order of their arrival; stops reading while the caller works. @throws ProblemError; the
 * connection stays open for the answer
 */
export async function* streamBody(
  request: FastifyRequest,
  options: StreamedBodyOptions,
): AsyncGenerator<Buffer> {
  const { raw, server } = request;
  const { claimBytes, maxBytes } = options;
  checkCoding(request);
  if (Number(raw.headers['content-length'] ?? 0) > maxBytes) throw refuseSize(maxBytes);
  const response = findResponse(raw);
  const gone = response ? abortWhenGone(response) : new AbortController().signal;
  const dropped = Promise.withResolvers<never>();
  dropped.promise.catch(() => {});
  let bytes = 0;
  const transfer = {
    bytes: claimBytes,
    moved: () => bytes,
    drop: () => dropped.reject(describeDrop()),
  };
  const claim = await server.flows.claim(request, transfer, gone);
  if (!claim) return;
  try {
    sendContinue(raw);
    const pieces = raw.iterator({ destroyOnReturn: false });
    for (let count = 1; ; count++) {
      const piece = await nextPiece(pieces, dropped.promise, options);
      if (!piece) break;
      bytes += piece.length;
      if (bytes > maxBytes) throw refuseSize(maxBytes);
      if (isTiny(count, bytes)) throw describeTinyChunks();
      yield piece;
    }
  } finally {
    claim.release();
  }
}

/** Undefined at the end. */
async function nextPiece(
  pieces: AsyncIterator<Buffer>,
  dropped: Promise<never>,
  { clock, stallMs }: StreamedBodyOptions,
): Promise<Buffer | undefined> {
  const stalled = Promise.withResolvers<never>();
  const cancel = clock.after(stallMs, () => stalled.reject(describeStall(stallMs)));
  try {
    const next = await Promise.race([pieces.next(), dropped, stalled.promise]);
    return next.done ? undefined : next.value;
  } finally {
    cancel();
  }
}

function describeDrop(): ProblemError {
  const detail =
    'The platform is short of memory and stopped this upload, the slowest one; send it again later.';
  return new ProblemError('unavailable', detail, { retryAfterMs: RETRY_MS });
}

function refuseSize(maxBytes: number): ProblemError {
  return new ProblemError('payload_too_large', `The request body has more than ${maxBytes} bytes.`);
}
