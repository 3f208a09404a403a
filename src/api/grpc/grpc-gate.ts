// Bounds the gRPC port's HTTP/2 streams. Without a valid key: bytes and duration of a call, and
// open calls per client. Health and reflection have only these bounds. With a key: open streams per
// user, and bytes of incomplete messages.
import {
  constants,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import { type Server, status } from '@grpc/grpc-js';
import type { ByteBudget } from '../../base/byte-budget.ts';
import type { Clock } from '../../base/clock.ts';
import type { FairScheduler, Lane } from '../../base/fair-scheduler.ts';
import type { Log } from '../../base/log.ts';
import { StallWatch } from '../../base/stall-watch.ts';
import { type ClientOrigins, groupOf } from '../http/client-origin.ts';
import type { HttpBounds, KeylessLimits } from '../limits/bounds.ts';
import type { Connections } from '../limits/connections.ts';
import { MessageMeter, PREFIX_BYTES, StreamBudget } from './stream-budget.ts';

/** The limit for all addresses together, as a multiple of the limit for one address. */
const FULL_ADDRESSES = 20;
const ENCODING = 'grpc-encoding';
const WATCH_PATH = '/grpc.health.v1.Health/Watch';

export interface GrpcGateOptions {
  limits: KeylessLimits;
  /** Returns the user of the call's valid key, or undefined. The key's scopes are checked later. */
  findUser: (headers: IncomingHttpHeaders) => string | undefined;
  /**
   * Looks up what the call names and this node does not know; undefined if it knows all. Must not reject. Default: this
   * node knows everything.
   */
  lookUp?: ((headers: IncomingHttpHeaders) => Promise<void> | undefined) | undefined;
  origins: ClientOrigins;
  connections: Pick<Connections, 'noteUser' | 'noteStream'>;
  bounds: Pick<HttpBounds, 'maxUserStreams' | 'stallMs'>;
  /** Bytes of incomplete messages. */
  budget: ByteBudget;
  /** Bound the streams that are accepted or refused in one iteration of the event loop. */
  scheduler: FairScheduler;
  clock: Clock;
  log: Log;
}

/**
 * Sits between the HTTP/2 servers and the library, which has one message limit for all methods and
 * reads a message before its interceptors see it. Calls are therefore bounded on their HTTP/2
 * streams.
 */
export class GrpcGate {
  readonly #options: GrpcGateOptions;
  readonly #calls: OpenCalls;
  readonly #watches: OpenCalls;
  /** Calls with a valid key, by user. */
  readonly #streams: OpenCalls;
  /** Calls that wait for their turn, by address and by user. */
  readonly #waiting: Readonly<Record<string, OpenCalls>>;

  constructor(options: GrpcGateOptions) {
    this.#options = options;
    const { bounds, limits } = options;
    this.#calls = new OpenCalls(limits.calls, limits.calls * FULL_ADDRESSES);
    this.#watches = new OpenCalls(limits.watches, limits.watches * FULL_ADDRESSES);
    this.#streams = new OpenCalls(bounds.maxUserStreams);
    this.#waiting = {
      addresses: new OpenCalls(limits.calls, limits.calls * FULL_ADDRESSES),
      users: new OpenCalls(bounds.maxUserStreams),
    };
  }

  /** Call it when the server is bound. @throws Error if the library has changed */
  guard(server: Server): void {
    for (const http2Server of listHttp2Servers(server)) {
      const handlers = http2Server.listeners('stream');
      if (handlers.length === 0) throw new Error('the gRPC server does not listen for streams');
      http2Server.removeAllListeners('stream');
      http2Server.on('stream', (stream, headers, ...rest) => {
        // A reset stream emits an error, and has no other listener yet.
        stream.on('error', () => {});
        const lane = this.#laneOf(stream, headers);
        const waiting = this.#waiting[lane.group];
        if (!waiting?.add(lane.owner)) {
          // A full answer would cost more than the call that it refuses. Clients read this code as UNAVAILABLE.
          stream.close(constants.NGHTTP2_REFUSED_STREAM);
          return;
        }
        this.#options.scheduler.run(
          () => lane,
          () => {
            waiting.remove(lane.owner);
            const accept = () => {
              if (stream.destroyed || stream.closed || !this.#admit(stream, headers)) return;
              for (const handle of handlers) handle.call(http2Server, stream, headers, ...rest);
            };
            const lookingUp = this.#options.lookUp?.(headers);
            if (lookingUp === undefined) accept();
            else this.#hold(this.#addressOf(stream, headers), lookingUp, accept);
          },
        );
      });
    }
  }

  /** A stream that waits for its key counts as a call without a key: anybody can send unknown keys. */
  #hold(address: string, lookingUp: Promise<void>, accept: () => void): void {
    if (!this.#calls.add(address)) {
      // Without a valid key, it is refused for the same reason.
      accept();
      return;
    }
    void lookingUp.then(() => {
      this.#calls.remove(address);
      accept();
    });
  }

  #addressOf({ session }: ServerHttp2Stream, headers: IncomingHttpHeaders): string {
    const address = session?.socket.remoteAddress ?? '';
    return groupOf(this.#options.origins.of({ address, isEncrypted: false, headers }).address);
  }

  #laneOf(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Lane {
    const userId = this.#options.findUser(headers);
    if (userId !== undefined) return { group: 'users', owner: userId };
    return { group: 'addresses', owner: this.#addressOf(stream, headers) };
  }

  #admit(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    // The library decompresses up to 32 MB of each message, many at a time.
    if ((headers[ENCODING] ?? 'identity') !== 'identity') {
      refuse(stream, status.UNIMPLEMENTED, `${ENCODING} is ${headers[ENCODING]}; send identity`);
      return false;
    }
    const userId = this.#options.findUser(headers);
    if (userId !== undefined) return this.#admitUser(stream, userId);
    const isWatch = headers[constants.HTTP2_HEADER_PATH] === WATCH_PATH;
    const calls = isWatch ? this.#watches : this.#calls;
    const address = this.#addressOf(stream, headers);
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

  #admitUser(stream: ServerHttp2Stream, userId: string): boolean {
    const { bounds, connections, log } = this.#options;
    const socket = stream.session?.socket;
    if (socket && !connections.noteUser(socket, userId)) {
      const detail = 'the user of this key has too many open connections; close some or use fewer';
      refuse(stream, status.RESOURCE_EXHAUSTED, detail);
      return false;
    }
    if (!this.#streams.add(userId)) {
      log.debug({ userId }, 'gRPC stream refused: the user has too many');
      const detail = `the user of this key has ${bounds.maxUserStreams} open streams already`;
      refuse(stream, status.RESOURCE_EXHAUSTED, detail);
      return false;
    }
    stream.once('close', () => this.#streams.remove(userId));
    connections.noteStream(stream);
    this.#meter(stream, userId);
    this.#limitEnd(stream);
    return true;
  }

  #meter(stream: ServerHttp2Stream, userId: string): void {
    const { bounds, budget, clock } = this.#options;
    const onStall = () => stream.close(constants.NGHTTP2_CANCEL);
    const stalls = { clock, stallMs: bounds.stallMs, onStall };
    const unread = new StallWatch(stalls);
    watchWrites(stream, unread);
    const meter = new MessageMeter({
      ...stalls,
      budget: new StreamBudget(budget, userId),
      // Clients read this code as RESOURCE_EXHAUSTED.
      onExcess: () => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM),
    });
    stream.on('data', (data: Buffer) => meter.add(data));
    stream.once('close', () => {
      meter.stop();
      unread.stop();
    });
  }

  /**
   * A stream that the platform has ended stays open until the client reads the end and ends its own
   * side.
   */
  #limitEnd(stream: ServerHttp2Stream): void {
    const { bounds, clock } = this.#options;
    let wasEnded = false;
    let cancel: () => void;
    const checkLater = () => {
      cancel = clock.after(bounds.stallMs, () => {
        if (wasEnded) closeNow(stream);
        wasEnded = stream.writableEnded;
        checkLater();
      });
    };
    checkLater();
    stream.once('close', () => cancel());
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
      // After the answer, only the client's side of the call is open.
      if (isWatch && stream.headersSent && !stream.writableEnded) return;
      if (stream.writableEnded) closeNow(stream);
      else if (stream.headersSent) stream.close(constants.NGHTTP2_CANCEL);
      else refuse(stream, status.DEADLINE_EXCEEDED, `the call took more than ${limits.ms} ms`);
    });
    stream.once('close', cancel);
  }
}

/** Even if the client has not read everything; `NO_ERROR` would wait for that. */
function closeNow(stream: ServerHttp2Stream): void {
  const { NGHTTP2_CANCEL, NGHTTP2_NO_ERROR } = constants;
  stream.close(stream.writableFinished ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL);
}

/**
 * The library passes each message to `write`, which calls back when the client's window has taken
 * it.
 */
function watchWrites(stream: ServerHttp2Stream, watch: StallWatch): void {
  const write = stream.write.bind(stream);
  const watched = (message: Buffer, sent: (error?: Error | null) => void) => {
    watch.begin();
    return write(message, (error) => {
      watch.end();
      sent(error);
    });
  };
  Reflect.set(stream, 'write', watched);
}

/** Open calls by address or by user. */
class OpenCalls {
  readonly limit: number;
  readonly #limitOfAll: number;
  readonly #counts = new Map<string, number>();
  #all = 0;

  constructor(limit: number, limitOfAll = Number.POSITIVE_INFINITY) {
    this.limit = limit;
    this.#limitOfAll = limitOfAll;
  }

  add(whose: string): boolean {
    const count = this.#counts.get(whose) ?? 0;
    if (count >= this.limit || this.#all >= this.#limitOfAll) return false;
    this.#counts.set(whose, count + 1);
    this.#all++;
    return true;
  }

  remove(whose: string): void {
    const count = this.#counts.get(whose) ?? 0;
    if (count > 1) this.#counts.set(whose, count - 1);
    else this.#counts.delete(whose);
    this.#all--;
  }
}

/** Sends a status instead of an answer. Further data from the client is not read. */
function refuse(stream: ServerHttp2Stream, code: status, detail: string): void {
  const answer = { [constants.HTTP2_HEADER_STATUS]: 200, 'content-type': 'application/grpc+proto' };
  stream.respond(
    { ...answer, 'grpc-status': String(code), 'grpc-message': encodeURI(detail) },
    { endStream: true },
  );
  stream.close(constants.NGHTTP2_NO_ERROR);
}

/** The library does not expose its servers. */
export function listHttp2Servers(server: Server): Http2Server[] {
  const servers: unknown = Reflect.get(server, 'http2Servers');
  if (servers instanceof Map && servers.size > 0) return [...servers.keys()];
  throw new Error('the gRPC server has no HTTP/2 servers');
}
