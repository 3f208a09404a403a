// Calls other nodes: POST /node/<name>, JSON in and out, over kept-alive connections. Each call shows the secret of
// the nodes: the first one is sent and all are accepted, so that it can be rotated.
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Agent, IncomingMessage } from 'node:http';
import { http } from '../../base/net/node-http.ts';
import { NODE_HEADERS } from '../http/forwarded.ts';

/** Most bytes of a call and of its answer, such as the list of all containers of a node. */
export const MAX_CALL_BYTES = 16_777_216;
/** Path of all calls. */
export const CALL_PATH = '/node/';
/** A call without an effect: whether the node answers. */
export const PING = 'ping';
/** Idle connections are closed after this time, before the other side closes them, ms. */
const IDLE_MS = 30_000;
const MAX_SOCKETS = 16;

export interface NodeClientOptions {
  /** The first one is sent. */
  secrets: readonly string[];
  /** Connections to one node; further calls wait, except long ones. Default 16. */
  maxSockets?: number;
}

export interface NodeCallOptions {
  /** From the call to the end of its answer, ms. */
  timeoutMs: number;
  /** Breaks the call off. */
  signal?: AbortSignal;
  /** It may take minutes: it gets a connection of its own, so that no other call waits for it. */
  isLong?: boolean;
}

export class NodeCallError extends Error {
  override readonly name = 'NodeCallError';
  /** Undefined without an answer. */
  readonly status: number | undefined;

  constructor(message: string, { cause, status }: { status?: number; cause?: unknown }) {
    super(message, { cause });
    this.status = status;
  }
}

export class NodeClient {
  readonly #options: NodeClientOptions;
  readonly #agent: Agent;
  /** For long calls. */
  readonly #unlimited = new http.Agent({ keepAlive: false });

  constructor(options: NodeClientOptions) {
    this.#options = options;
    const { maxSockets = MAX_SOCKETS } = options;
    this.#agent = new http.Agent({ keepAlive: true, maxSockets, timeout: IDLE_MS });
  }

  /** Resolves with the answer's JSON. @throws NodeCallError */
  call(
    url: string,
    name: string,
    body: unknown,
    { isLong = false, signal: given, timeoutMs }: NodeCallOptions,
  ): Promise<unknown> {
    const json = Buffer.from(JSON.stringify(body ?? null));
    return new Promise((resolve, reject) => {
      const fail = (cause: unknown) => {
        const why = cause instanceof Error ? cause.message : String(cause);
        reject(new NodeCallError(`node ${url}: ${name} failed: ${why}`, { cause }));
      };
      const headers = {
        [NODE_HEADERS.secret]: firstSecret(this.#options.secrets),
        'content-type': 'application/json',
        'content-length': json.length,
      };
      const limit = AbortSignal.timeout(timeoutMs);
      const signal = given ? AbortSignal.any([limit, given]) : limit;
      const target = new URL(CALL_PATH + encodeURIComponent(name), url);
      const agent = isLong ? this.#unlimited : this.#agent;
      const request = http.request(target, { method: 'POST', agent, headers, signal });
      request.on('error', (error) =>
        fail(limit.aborted ? new Error(`no answer within ${timeoutMs} ms`) : error),
      );
      request.on('response', (response) => {
        readWhole(response, MAX_CALL_BYTES)
          .then((answer) => {
            const text = answer.toString();
            const { statusCode: status = 0 } = response;
            if (status === 200) resolve(JSON.parse(text));
            else reject(new NodeCallError(`node ${url}: ${name}: ${status} ${text}`, { status }));
          })
          .catch(fail);
      });
      request.end(json);
    });
  }

  /** Breaks open calls. */
  close(): void {
    this.#agent.destroy();
    this.#unlimited.destroy();
  }
}

/** @throws Error beyond the bound */
export async function readWhole(response: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of response) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes > maxBytes) throw new Error(`the answer exceeds ${maxBytes} bytes`);
  }
  return Buffer.concat(pieces);
}

/** Compares in constant time, whatever the lengths. */
export function hasNodeSecret({ headers }: IncomingMessage, secrets: readonly string[]): boolean {
  const shown = headers[NODE_HEADERS.secret];
  if (typeof shown !== 'string' || shown === '') return false;
  const digest = hash(shown);
  let isKnown = false;
  for (const secret of secrets) {
    const isEqual = secret !== '' && timingSafeEqual(hash(secret), digest);
    isKnown ||= isEqual;
  }
  return isKnown;
}

/** @throws Error without a secret */
export function firstSecret([secret]: readonly string[]): string {
  if (secret === undefined || secret === '') throw new Error('nodes need a secret');
  return secret;
}

function hash(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** `hostname` without the brackets of an IPv6 address: Node would look up a name with brackets. */
export function readNodeAddress(url: string): { hostname: string; port: string } {
  const { hostname, port } = new URL(url);
  return { hostname: hostname.replace(/^\[(.*)\]$/, '$1'), port: port || '80' };
}
