// gRPC calls as an attacker sends them: HTTP/2 streams with any bytes, never finished.
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type ClientSessionOptions,
  connect,
} from 'node:http2';
import type { Target } from './attack.ts';

export const CHECK = '/grpc.health.v1.Health/Check';
export const WATCH = '/grpc.health.v1.Health/Watch';
export const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
export const OPEN = '/millrace.worker.v1.WorkerLink/Open';

export function openSession(
  { grpcUrl }: Target,
  options: ClientSessionOptions = {},
): ClientHttp2Session {
  const session = connect(grpcUrl.replace('grpc:', 'http:'), options);
  session.on('error', () => {});
  return session;
}

/** The prefix of a message of so many bytes, uncompressed. */
export function prefixMessage(bytes: number): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(bytes, 1);
  return prefix;
}

export class RawCall {
  readonly stream: ClientHttp2Stream;
  /** Resolves when the call is over, however. */
  readonly ended: Promise<void>;
  #status: string | undefined;
  #bytes = 0;

  constructor(session: ClientHttp2Session, path: string, metadata: Record<string, string> = {}) {
    this.stream = session.request({
      ...{ ':method': 'POST', ':path': path },
      ...{ 'content-type': 'application/grpc', te: 'trailers', ...metadata },
    });
    const note = (headers: { 'grpc-status'?: string }) => {
      this.#status ??= headers['grpc-status'];
    };
    this.stream.on('response', note).on('trailers', note);
    this.stream.on('error', () => {});
    this.stream.on('data', (piece: Buffer) => {
      this.#bytes += piece.length;
    });
    this.ended = new Promise((resolve) => {
      this.stream.once('close', resolve);
      if (this.stream.closed) resolve();
    });
  }

  /** `grpc <status>`, `reset` without one, `open`; one that got an answer and goes on is `answered`. */
  get state(): string {
    if (this.#status !== undefined) return `grpc ${this.#status}`;
    if (this.stream.closed || this.stream.destroyed) return 'reset';
    return this.#bytes > 0 ? 'answered' : 'open';
  }

  get bytes(): number {
    return this.#bytes;
  }
}
