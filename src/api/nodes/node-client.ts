// Calls other nodes: POST /node/<name>, JSON in and out, over kept-alive connections; watches by such calls whether they
// answer; and connects to their pods. Each call shows the secret of the nodes: the first one is sent and all are accepted,
// so that it can be rotated.
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Agent, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
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

/** Longest time to connect to a port of a pod, ms. */
export const CONNECT_MS = 5_000;

export interface PodAddress {
  /** Of the pod's node. */
  url: string;
  podId: string;
  port: number;
  /** The first one is sent. */
  secrets: readonly string[];
}

/** A connection to a pod on the machine of another node. Rejects if there is none in time. */
export function connectToPod({ podId, port, secrets, url }: PodAddress): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const request = http.request({
      ...readNodeAddress(url),
      method: 'CONNECT',
      path: `${podId}:${port}`,
      agent: false,
      headers: { [NODE_HEADERS.secret]: firstSecret(secrets) },
    });
    const expire = () => request.destroy(new Error(`no answer in ${CONNECT_MS} ms`));
    const timer = setTimeout(expire, CONNECT_MS);
    request.once('close', () => clearTimeout(timer)).once('error', reject);
    request.once('response', (answer) => {
      answer.resume();
      reject(new Error(`node ${url}: ${answer.statusCode}`));
    });
    request.once('connect', (answer: IncomingMessage, socket: Socket) => {
      clearTimeout(timer);
      request.off('error', reject);
      if (answer.statusCode === 200) {
        socket.setNoDelay(true);
        resolve(socket);
        return;
      }
      socket.destroy();
      reject(new Error(`node ${url} has no pod ${podId} with port ${port}: ${answer.statusCode}`));
    });
    request.end();
  });
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

/** A node is asked this often within the time that it may be silent. */
const PINGS_PER_SILENCE = 4;

export interface PeerWatchOptions {
  client: NodeClient;
  clock: Clock;
  log: Log;
  /** Time without an answer after which a node counts as failed, ms. */
  silenceMs: number;
}

interface Peer {
  /** Called when the node has failed. */
  open: Set<() => void>;
  answeredAt: number;
  isAsked: boolean;
  cancel: () => void;
}

/**
 * Watches the nodes that have unanswered requests of this node. A node that is silent for too long counts as failed, and
 * its requests are broken off: a paused machine, or a cut network, closes no connection. So are the requests at a node
 * whose lease has ended.
 */
export class PeerWatch {
  readonly #options: PeerWatchOptions;
  readonly #peers = new Map<string, Peer>();

  constructor(options: PeerWatchOptions) {
    this.#options = options;
  }

  /** `fail` is called at most once, if the node fails. @returns the function that ends the watch */
  add(url: string, fail: () => void): () => void {
    const peer = this.#peers.get(url) ?? this.#open(url);
    peer.open.add(fail);
    return () => {
      peer.open.delete(fail);
      if (peer.open.size === 0) this.#close(url, peer);
    };
  }

  /** Breaks the requests at nodes that the cluster counts as dead. */
  failDead(isDead: (url: string) => boolean): void {
    for (const [url, peer] of this.#peers) if (isDead(url)) this.#fail(url, peer);
  }

  close(): void {
    for (const [url, peer] of this.#peers) this.#close(url, peer);
  }

  #open(url: string): Peer {
    const { clock } = this.#options;
    const peer: Peer = {
      open: new Set(),
      answeredAt: clock.now(),
      isAsked: false,
      cancel: () => {},
    };
    this.#peers.set(url, peer);
    this.#checkLater(url, peer);
    return peer;
  }

  #close(url: string, peer: Peer): void {
    peer.cancel();
    if (this.#peers.get(url) === peer) this.#peers.delete(url);
  }

  #checkLater(url: string, peer: Peer): void {
    const { clock, silenceMs } = this.#options;
    peer.cancel = clock.after(silenceMs / PINGS_PER_SILENCE, () => this.#check(url, peer));
  }

  #check(url: string, peer: Peer): void {
    const { clock, silenceMs } = this.#options;
    if (clock.now() - peer.answeredAt >= silenceMs) {
      this.#fail(url, peer);
      return;
    }
    if (!peer.isAsked) void this.#ask(url, peer);
    this.#checkLater(url, peer);
  }

  #fail(url: string, peer: Peer): void {
    const { clock, log } = this.#options;
    this.#close(url, peer);
    const silentMs = clock.now() - peer.answeredAt;
    log.warn({ node: url, silentMs, requests: peer.open.size }, 'node does not answer');
    for (const fail of peer.open) fail();
  }

  async #ask(url: string, peer: Peer): Promise<void> {
    const { client, clock, silenceMs } = this.#options;
    peer.isAsked = true;
    try {
      await client.call(url, PING, null, { timeoutMs: silenceMs / 2 });
      peer.answeredAt = clock.now();
    } catch {
      // The next check decides.
    } finally {
      peer.isAsked = false;
    }
  }
}
