// Passes a request once to the node that owns its endpoint: sends it, and passes the answer to the client at the
// client's pace. forwarder.ts chooses the node and repeats.
import type {
  Agent,
  ClientRequest,
  IncomingMessage,
  InformationEvent,
  ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { http } from '../../base/net/node-http.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  describeForwarded,
  type ForwardedTerms,
  isNodeHeader,
  type NewJobId,
  NODE_HEADERS,
  NOT_OWNER_STATUS,
} from '../http/forwarded.ts';
import { readTarget } from '../http/requests.ts';
import { isAwaitingContinue, limitRest, sendContinue } from '../limits/exchanges.ts';
import { type PeerWatch, readNodeAddress } from '../nodes/node-client.ts';
import { HOP_BY_HOP, type PassedRequest, passHeaders, readTokens } from '../proxy/message-head.ts';
import { joinTunnel, type UpgradeRequest } from '../proxy/upgrade.ts';
import type { PassedBody } from './passed-body.ts';
import type { FinalLook } from './subject.ts';

/** Informational answers before the final one: they are written even if the client does not read. */
const MAX_HINTS = 20;

export interface ExchangeOptions extends PassedRequest {
  /** Of the other node. */
  url: string;
  body: PassedBody;
  job: NewJobId | undefined;
  /** An earlier attempt may have had its effect. */
  isRepeated: boolean;
  secret: string;
  agent: Agent;
  peers: PeerWatch;
  connectMs: number;
  clock: Clock;
  /** Aborts when the client disconnects. */
  gone: AbortSignal;
  /** Sent in place of the request, without a body. Default: the request itself. */
  look?: FinalLook | undefined;
  /** Ends the exchange unless the answer has begun. Default: nothing does. */
  hurry?: AbortSignal | undefined;
  upgrade: UpgradeRequest | undefined;
}

/**
 * `answered`: completely, as far as this node knows. `cut`: the answer had begun and was broken off. `gone`:
 * the client has disconnected. `refused`: the node does not own the endpoint. `denied`: the node has other
 * secrets. `hurried`: `hurry` has ended it. `unsent`: nothing of the request was used. `unknown`: the node may have acted on the request.
 */
export type ExchangeEnd =
  | 'answered'
  | 'cut'
  | 'gone'
  | 'refused'
  | 'denied'
  | 'hurried'
  | 'unsent'
  | 'unknown';

/** @throws ProblemError `malformed` for a request that cannot be forwarded */
export function exchange(options: ExchangeOptions): Promise<ExchangeEnd> {
  return new Promise((resolve, reject) => {
    try {
      new Exchange(options, resolve).start();
    } catch (cause) {
      const detail = 'the request has a path or a header that cannot be forwarded';
      reject(new ProblemError('malformed', detail, { cause }));
    }
  });
}

class Exchange {
  readonly #options: ExchangeOptions;
  readonly #settle: (end: ExchangeEnd) => void;
  readonly #outgoing: ClientRequest;
  readonly #response: ServerResponse;
  #cancelWatch = () => {};
  #cancelConnect = () => {};
  /** The node may have received a complete request. */
  #isSent = false;
  #isAnswering = false;
  /** The connection carries another protocol; its own end ends the exchange. */
  #isSwitched = false;
  #isOver = false;
  #hints = 0;

  constructor(options: ExchangeOptions, settle: (end: ExchangeEnd) => void) {
    const { agent, body, look, request, upgrade, url } = options;
    this.#options = options;
    this.#settle = settle;
    this.#response = options.reply.raw;
    this.#outgoing = http.request({
      ...readNodeAddress(url),
      agent,
      ...(look ?? { method: request.method, path: readTarget(request) }),
      headers: composeNodeHeaders(request.raw, {
        ...options,
        protocol: upgrade?.protocol,
        body: body.kind,
        host: new URL(url).host,
      }),
    });
  }

  start(): void {
    const { body, connectMs, clock, gone, peers, url } = this.#options;
    const outgoing = this.#outgoing;
    outgoing.on('error', () => this.#break());
    outgoing.on('socket', (socket) => this.#await(socket));
    outgoing.on('continue', () => this.#sendBody());
    outgoing.on('information', (hint) => this.#forwardHint(hint));
    outgoing.on('response', (answer) => this.#receive(answer));
    outgoing.on('upgrade', (answer, socket, head) => this.#switch(answer, socket as Socket, head));
    outgoing.on('close', () => this.#break());
    gone.addEventListener('abort', this.#abort, { once: true });
    this.#options.hurry?.addEventListener('abort', this.#hurry, { once: true });
    if (gone.aborted) {
      this.#abort();
      return;
    }
    this.#cancelWatch = peers.add(url, () => this.#break());
    this.#cancelConnect = clock.after(connectMs, () => this.#break());
    if (body.kind === 'late') outgoing.flushHeaders();
    else outgoing.end(body.kind === 'small' ? body.bytes : undefined);
  }

  #await(socket: Socket): void {
    const connected = () => {
      this.#cancelConnect();
      // A node that waits for the body has used nothing.
      if (this.#options.body.kind !== 'late') this.#isSent = true;
    };
    if (!socket.connecting) connected();
    else socket.once('connect', connected);
  }

  #sendBody(): void {
    const { body } = this.#options;
    if (this.#isOver || body.kind !== 'late' || this.#isSent) return;
    this.#isSent = true;
    body.copy?.begin();
    const { raw } = this.#options.request;
    sendContinue(raw);
    raw.pipe(this.#outgoing);
  }

  #forwardHint({ headers, statusCode }: InformationEvent): void {
    const { link } = headers;
    const isKnown = this.#options.request.raw.httpVersionMinor > 0;
    if (this.#isOver || !isKnown || statusCode !== 103 || link === undefined) return;
    this.#hints += 1;
    if (this.#hints > MAX_HINTS) return;
    try {
      this.#response.writeEarlyHints({ link });
    } catch {
      // A Link header that Node cannot write is only a hint.
    }
  }

  #receive(answer: IncomingMessage): void {
    const { headers, statusCode = 0 } = answer;
    const verdict = headers[NODE_HEADERS.answer];
    answer.on('error', () => this.#break());
    if (verdict !== 'owner' || this.#isOver) {
      answer.resume();
      this.#end(judgeRefusal(verdict, statusCode));
      return;
    }
    this.#answer(answer);
    const response = this.#response;
    let hasWritten = false;
    answer.on('data', (piece: Buffer) => {
      hasWritten = true;
      if (!response.destroyed && !response.write(piece)) answer.pause();
    });
    response.on('drain', () => answer.resume());
    // An event stream sends its headers before its first event; other answers save the packet.
    setImmediate(() => {
      if (!hasWritten && !response.destroyed && !this.#isOver) response.flushHeaders();
    });
    answer.once('end', () => {
      if (!answer.complete) return this.#break();
      response.addTrailers(answer.trailers);
      response.end();
      limitRest(this.#options.request.raw, this.#response, this.#options.clock);
      this.#end('answered');
    });
    answer.once('close', () => this.#break());
  }

  /** This node's own headers, such as the rate limit's, override the other's. */
  #answer({ headers, statusCode = 502 }: IncomingMessage): void {
    this.#isAnswering = true;
    const own = Object.entries(headers).filter(([name]) => !isNodeHeader(name));
    const response = passHeaders(this.#options, statusCode, Object.fromEntries(own));
    // The client may or may not send its body.
    if (statusCode !== 101 && isAwaitingContinue(this.#options.request.raw)) {
      response.setHeader('connection', 'close');
    }
    response.writeHead(statusCode);
  }

  #switch(answer: IncomingMessage, worker: Socket, head: Buffer): void {
    const { clock, upgrade } = this.#options;
    if (!upgrade || this.#isOver) {
      worker.destroy();
      return;
    }
    this.#isSwitched = true;
    this.#answer(answer);
    this.#response.end();
    this.#release();
    if (head.length > 0) worker.unshift(head);
    const end = () => this.#end('answered');
    joinTunnel({ client: upgrade.socket, worker, head: upgrade.takeEarly(), clock }).then(end, end);
  }

  readonly #abort = (): void => {
    const { reply } = this.#options;
    if (!reply.sent) reply.hijack();
    this.#end('gone');
    this.#outgoing.destroy();
  };

  readonly #hurry = (): void => {
    if (this.#isAnswering) return;
    this.#end('hurried');
    this.#outgoing.destroy();
  };

  /** The connection has failed, or its node. */
  #break(): void {
    if (this.#isOver || this.#isSwitched) return;
    if (this.#isAnswering) {
      // A clean end would look like a complete answer.
      this.#response.destroy();
      this.#end('cut');
    } else {
      this.#end(this.#isSent ? 'unknown' : 'unsent');
    }
    this.#outgoing.destroy();
  }

  #end(end: ExchangeEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#release();
    // The node has answered without reading the whole body.
    if (!this.#isSwitched && !this.#outgoing.writableFinished) this.#outgoing.destroy();
    this.#settle(end);
  }

  #release(): void {
    const { body, gone, hurry, request } = this.#options;
    hurry?.removeEventListener('abort', this.#hurry);
    this.#cancelConnect();
    this.#cancelWatch();
    gone.removeEventListener('abort', this.#abort);
    if (body.kind !== 'late' || !this.#isSent) return;
    request.raw.unpipe(this.#outgoing);
    request.raw.resume();
  }
}

/** What an answer means that is not for the client. */
function judgeRefusal(verdict: string | string[] | undefined, status: number): ExchangeEnd {
  if (verdict === 'not_owner' && status === NOT_OWNER_STATUS) return 'refused';
  // Only the port for other nodes itself answers without the header.
  return verdict === undefined && status === 401 ? 'denied' : 'unknown';
}

/** About one connection, or set anew below. */
const NOT_FORWARDED = new Set([...HOP_BY_HOP, 'expect', 'content-length']);

const METHODS_WITH_BODY = new Set(['POST', 'PUT', 'PATCH']);

export interface NodeHeaderTerms extends ForwardedTerms {
  /** `late`: it is sent after `100 Continue`. */
  body: 'none' | 'small' | 'late';
  /** Protocol of an upgrade. */
  protocol: string | undefined;
  /** For a request without a Host header. */
  host: string;
}

/**
 * The headers that pass to another node. Alternating names and values; repeated headers stay repeated.
 */
function composeNodeHeaders(request: IncomingMessage, terms: NodeHeaderTerms): string[] {
  const { headers, rawHeaders } = request;
  const dropped = readTokens(headers.connection);
  const passed: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const [name = '', value = ''] = [rawHeaders[at], rawHeaders[at + 1]];
    const lowered = name.toLowerCase();
    const isKept = !NOT_FORWARDED.has(lowered) && !isNodeHeader(lowered);
    // The key and the host are the request's own, whatever the client lists.
    if (isKept && (!dropped.has(lowered) || lowered === 'authorization' || lowered === 'host')) {
      passed.push(name, value);
    }
  }
  if (headers.host === undefined) passed.push('host', terms.host);
  const length = headers['content-length'];
  if (terms.body !== 'none' && headers['transfer-encoding'] !== undefined) {
    passed.push('transfer-encoding', 'chunked');
  } else if (terms.body !== 'none' && length !== undefined) {
    passed.push('content-length', length);
  } else if (METHODS_WITH_BODY.has(request.method ?? '')) {
    // Node would announce a body in chunks. An operation whose body is optional would refuse it for its missing type.
    passed.push('content-length', '0');
  }
  if (terms.body === 'late') passed.push('expect', '100-continue');
  if (readTokens(headers['te']).has('trailers')) passed.push('te', 'trailers');
  if (terms.protocol !== undefined) {
    passed.push('connection', 'upgrade', 'upgrade', terms.protocol);
  }
  passed.push(...describeForwarded(request, terms));
  return passed;
}
