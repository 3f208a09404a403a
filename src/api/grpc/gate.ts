// The bounds of the gRPC port before a key is known: what a call may send, how long it may last, and how
// many of them a caller may have open. Health and reflection are served within these bounds alone.
import {
  constants,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import { type Server, status } from '@grpc/grpc-js';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { KeylessLimits } from './limits.ts';

/** Addresses together may have as many calls open as this many of them alone. */
const FULL_ADDRESSES = 20;
/** Of gRPC's framing, before each message. */
const PREFIX_BYTES = 5;
const WATCH_PATH = '/grpc.health.v1.Health/Watch';

export interface GrpcGateOptions {
  limits: KeylessLimits;
  /** User of the valid key that the call shows, or undefined: what the key allows is decided later. */
  findUser: (headers: IncomingHttpHeaders) => string | undefined;
  /** Called with the connection of each call that shows a valid key. False: the user has too many. */
  noteKnown: (socket: Socket, userId: string) => boolean;
  clock: Clock;
  log: Log;
}

/**
 * Stands between the HTTP/2 servers and the library. The library has one message limit for all methods,
 * and reads a message before its interceptors see it; so calls are bounded on their HTTP/2 streams.
 */
export class GrpcGate {
  readonly #options: GrpcGateOptions;
  readonly #calls: OpenCalls;
  readonly #watches: OpenCalls;

  constructor(options: GrpcGateOptions) {
    this.#options = options;
    this.#calls = new OpenCalls(options.limits.calls);
    this.#watches = new OpenCalls(options.limits.watches);
  }

  /** Has to be called when the server is bound. @throws Error if the library has changed */
  guard(server: Server): void {
    for (const http2Server of listHttp2Servers(server)) {
      const handlers = http2Server.listeners('stream');
      if (handlers.length === 0) throw new Error('the gRPC server does not listen for streams');
      http2Server.removeAllListeners('stream');
      http2Server.on('stream', (stream, headers, ...rest) => {
        if (!this.#admit(stream, headers)) return;
        for (const handle of handlers) handle.call(http2Server, stream, headers, ...rest);
      });
    }
  }

  #admit(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    // Nobody else listens yet, and a stream that is reset has an error.
    stream.on('error', () => {});
    const userId = this.#options.findUser(headers);
    if (userId !== undefined) return this.#admitKnown(stream, userId);
    const isWatch = headers[constants.HTTP2_HEADER_PATH] === WATCH_PATH;
    const calls = isWatch ? this.#watches : this.#calls;
    const address = stream.session?.socket.remoteAddress ?? '';
    if (!calls.add(address)) {
      this.#options.log.debug({ address }, 'gRPC call refused: too many calls without a key');
      const detail = `more than ${calls.limit} calls without a key are open`;
      refuse(stream, status.RESOURCE_EXHAUSTED, detail);
      return false;
    }
    stream.once('close', () => calls.remove(address));
    this.#bound(stream, isWatch);
    return true;
  }

  #admitKnown(stream: ServerHttp2Stream, userId: string): boolean {
    const socket = stream.session?.socket;
    if (!socket || this.#options.noteKnown(socket, userId)) return true;
    const detail = 'the user of this key has too many open connections; close some or use fewer';
    refuse(stream, status.RESOURCE_EXHAUSTED, detail);
    return false;
  }

  #bound(stream: ServerHttp2Stream, isWatch: boolean): void {
    const { clock, limits } = this.#options;
    let left = limits.bytes + PREFIX_BYTES;
    stream.on('data', (data: Buffer) => {
      left -= data.length;
      // Clients read this code as RESOURCE_EXHAUSTED.
      if (left < 0) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    });
    const cancel = clock.after(limits.ms, () => {
      // Of a call that was answered, with headers or as a whole, only the client's side is open.
      if (isWatch && stream.headersSent && !stream.writableEnded) return;
      if (stream.writableEnded) stream.close(constants.NGHTTP2_NO_ERROR);
      else if (stream.headersSent) stream.close(constants.NGHTTP2_CANCEL);
      else refuse(stream, status.DEADLINE_EXCEEDED, `the call took more than ${limits.ms} ms`);
    });
    stream.once('close', cancel);
  }
}

/** Open calls by address. */
class OpenCalls {
  readonly limit: number;
  readonly #counts = new Map<string, number>();
  #all = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  add(address: string): boolean {
    const count = this.#counts.get(address) ?? 0;
    if (count >= this.limit || this.#all >= this.limit * FULL_ADDRESSES) return false;
    this.#counts.set(address, count + 1);
    this.#all++;
    return true;
  }

  remove(address: string): void {
    const count = this.#counts.get(address) ?? 0;
    if (count > 1) this.#counts.set(address, count - 1);
    else this.#counts.delete(address);
    this.#all--;
  }
}

/** With a status in place of an answer; what the client still sends is not read. */
function refuse(stream: ServerHttp2Stream, code: status, detail: string): void {
  const answer = { [constants.HTTP2_HEADER_STATUS]: 200, 'content-type': 'application/grpc+proto' };
  stream.respond(
    { ...answer, 'grpc-status': String(code), 'grpc-message': encodeURI(detail) },
    { endStream: true },
  );
  stream.close(constants.NGHTTP2_NO_ERROR);
}

/** The library keeps them to itself. */
export function listHttp2Servers(server: Server): Http2Server[] {
  const servers: unknown = Reflect.get(server, 'http2Servers');
  if (servers instanceof Map && servers.size > 0) return [...servers.keys()];
  throw new Error('the gRPC server has no HTTP/2 servers');
}
