// Bodies as they come in, whole and bounded. Large ones are put together in the place where they stay.
import { Buffer } from 'node:buffer';
import { errorCodes, type FastifyRequest } from 'fastify';
import { giveBack } from '../base/spent-bytes.ts';

/** Smaller ones are joined at the end: that is faster. */
const LARGE_BYTES = 1_048_576;

/** For fastify's `addContentTypeParser`: what it does itself with `parseAs: 'buffer'`, its errors too. */
export function readBody(
  { headers, routeOptions }: FastifyRequest,
  payload: NodeJS.ReadableStream,
  done: (error: Error | null, body?: Buffer) => void,
): void {
  const announced = Number(headers['content-length'] ?? Number.NaN);
  const { bodyLimit } = routeOptions;
  if (announced > bodyLimit) {
    done(new errorCodes.FST_ERR_CTP_BODY_TOO_LARGE());
    return;
  }
  const body = announced >= LARGE_BYTES ? new LargeBody(announced) : new SmallBody();
  let received = 0;
  const end = (error: Error | null) => {
    payload.off('data', onData).off('end', onEnd).off('error', end);
    if (error) done(error);
    else done(null, body.whole());
  };
  const onData = (chunk: Buffer) => {
    received += chunk.length;
    if (received > bodyLimit) end(new errorCodes.FST_ERR_CTP_BODY_TOO_LARGE());
    else if (received > announced) end(new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH());
    else body.add(chunk);
  };
  const onEnd = () => {
    const isShort = !Number.isNaN(announced) && received !== announced;
    end(isShort ? new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH() : null);
  };
  payload.on('data', onData).on('end', onEnd).on('error', end);
}

/** Of a length that is not known, or a small one. */
class SmallBody {
  readonly #chunks: Buffer[] = [];

  add(chunk: Buffer): void {
    this.#chunks.push(chunk);
  }

  whole(): Buffer {
    return Buffer.concat(this.#chunks);
  }
}

class LargeBody {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(length: number) {
    this.#bytes = Buffer.allocUnsafeSlow(length);
  }

  add(chunk: Buffer): void {
    this.#bytes.set(chunk, this.#at);
    this.#at += chunk.length;
    giveBack(chunk);
  }

  whole(): Buffer {
    return this.#bytes;
  }
}
