// The link of a gRPC worker whose endpoint another node may own: each call goes to the queue of this node, or
// to the owner by HTTP with the worker's own key. All five verbs may be repeated.
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { readRetryAfterMs } from '../../base/backoff.ts';
import { http } from '../../base/net/node-http.ts';
import type { Field } from '../../wire/link/fields.ts';
import {
  decodeFrames,
  encodeFrames,
  FRAMES_MEDIA_TYPE,
  FrameError,
} from '../../wire/link/frames.ts';
import {
  type Lease,
  LinkError,
  type LinkErrorCode,
  leaseHeaders,
  type ReportReply,
  type ReportRequest,
  renewReply,
  reportReplies,
  type TakeRequest,
  type WorkerLink,
  workerWelcome,
} from '../../wire/link/worker-link.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { WORKER_HEADERS, WORKER_ROUTES, type WorkerVerb } from '../../wire/routes/routes.ts';
import { NODE_HEADERS } from '../http/forwarded.ts';
import { firstSecret, readNodeAddress, readWhole } from '../nodes/node-client.ts';
import type { ServedLink } from '../worker/worker-routes.ts';
import type { Forwarder } from './forwarder.ts';
import type { OwnerNode } from './placement.ts';

/** Pause before the same node is asked again, ms. */
const PAUSE_MS = 250;
/** Most bytes of an answer: as many leases as a worker takes. */
const MAX_ANSWER_BYTES = 256 * 1_048_576;
const NO_BYTES = new Uint8Array(0);

export interface NodeLinkOptions {
  forwarder: Forwarder;
  endpointId: string;
  /** The worker's key, with or without the word Bearer. */
  authorization: string;
  /** The link to the queue of this node. */
  local: WorkerLink;
  /** gRPC URL of this node, which workers are told. Default: none. */
  advertised?: string | undefined;
}

export function createNodeLink(options: NodeLinkOptions): ServedLink {
  const { advertised, local } = options;
  let ownerUrl: string | undefined;
  const ask = <T>(call: VerbCall, here: () => Promise<T>, read: (answer: VerbAnswer) => T) =>
    new OwnerCall(options, call).run(
      async () => {
        const answered = await here();
        ownerUrl = call.verb === 'hello' ? advertised : undefined;
        return answered;
      },
      (answer) => {
        const told = answer.headers[NODE_HEADERS.grpcUrl];
        ownerUrl = typeof told === 'string' ? told : undefined;
        return read(answer);
      },
    );
  return {
    get ownerUrl() {
      return ownerUrl;
    },
    hello: (hello) =>
      ask(
        encodeJson('hello', hello),
        () => local.hello(hello),
        (answer) => parseJson(answer, workerWelcome),
      ),
    take: (request, signal) =>
      ask(
        { ...encodeJson('take', request), signal },
        () => local.take(request, signal),
        (answer) => readLeases(answer, request),
      ),
    renew: (request, signal) =>
      ask(
        { ...encodeJson('renew', request), signal },
        () => local.renew(request, signal),
        (answer) => parseJson(answer, renewReply),
      ),
    report: (request) =>
      ask(
        encodeReports(request),
        () => local.report(request),
        (answer) => readReplies(answer, request),
      ),
    bye: (bye) =>
      ask(
        encodeJson('bye', bye),
        () => local.bye(bye),
        () => undefined,
      ),
  };
}

/** One call of a verb, until the owner has answered or the time is over. */
class OwnerCall {
  readonly #options: NodeLinkOptions;
  readonly #call: VerbCall;
  readonly #signal: AbortSignal;
  #deadline: number | undefined;

  constructor(options: NodeLinkOptions, call: VerbCall) {
    this.#options = options;
    this.#call = call;
    this.#signal = call.signal ?? new AbortController().signal;
  }

  /** @throws LinkError, and what the queue here throws */
  async run<T>(here: () => Promise<T>, read: (answer: VerbAnswer) => T): Promise<T> {
    for (;;) {
      const owner = this.#find();
      if (owner.kind === 'here') {
        try {
          return await here();
        } catch (error) {
          // Else the endpoint moved meanwhile, and its queue was closed.
          if (this.#find().kind === 'here') throw error;
        }
      }
      const answer = owner.kind === 'node' ? await this.#askNode(owner.url) : undefined;
      if (answer) return read(requireSuccess(answer));
      await this.#recover(owner);
    }
  }

  #find(): OwnerNode {
    const { endpointId, forwarder } = this.#options;
    return forwarder.options.placement.find(endpointId);
  }

  async #askNode(url: string): Promise<VerbAnswer | undefined> {
    const { clock, note } = this.#options.forwarder.options;
    const startedAt = clock.now();
    const answer = await this.#ask(url);
    const outcome = answer ? 'answered' : this.#signal.aborted ? 'gone' : 'failed';
    note({ outcome, durationMs: clock.now() - startedAt });
    return answer;
  }

  /** Returns when the call may be repeated. @throws LinkError when the time is over */
  async #recover(owner: OwnerNode): Promise<void> {
    const { forwarder } = this.#options;
    const { bounds, clock, placement } = forwarder.options;
    this.#deadline ??= clock.now() + bounds.workerOwnerWaitMs;
    const leftMs = this.#deadline - clock.now();
    if (leftMs <= 0 || this.#signal.aborted || forwarder.stopping.aborted) {
      throw new LinkError('unavailable', 'no node of the platform serves this endpoint now');
    }
    const wait = (ms: number) => forwarder.waits.wait(Math.min(ms, leftMs), this.#signal);
    const refreshed = placement.refresh().catch(() => {});
    await Promise.race([refreshed, wait(leftMs)]);
    const next = this.#find();
    const isSame = next.kind === 'node' && owner.kind === 'node' && next.url === owner.url;
    if (next.kind === 'none') await wait(leftMs);
    else if (isSame || owner.kind === 'here') await wait(PAUSE_MS);
  }

  /** Undefined if the node did not answer or does not own the endpoint. */
  #ask(url: string): Promise<VerbAnswer | undefined> {
    const { authorization, endpointId, forwarder } = this.#options;
    const { body, headers, signal, verb } = this.#call;
    const { agent, options, peers } = forwarder;
    return new Promise((resolve) => {
      const request = http.request({
        ...readNodeAddress(url),
        agent,
        method: 'POST',
        signal,
        path: fillPath(WORKER_ROUTES[verb], { endpoint: endpointId }),
        headers: {
          ...headers,
          authorization: /^bearer /i.test(authorization)
            ? authorization
            : `Bearer ${authorization}`,
          'content-length': body.length,
          [NODE_HEADERS.secret]: firstSecret(options.secrets),
        },
      });
      const end = (answer?: VerbAnswer) => {
        cancelWatch();
        cancelConnect();
        resolve(answer);
        if (!answer) request.destroy();
      };
      const cancelWatch = peers.add(url, () => end());
      const cancelConnect = options.clock.after(options.bounds.nodeConnectMs, () => end());
      request.on('error', () => end());
      request.on('socket', (socket) => {
        if (socket.connecting) socket.once('connect', cancelConnect);
        else cancelConnect();
      });
      request.on('response', (response) => {
        collect(response).then(
          (answered) => {
            const isOwners = response.headers[NODE_HEADERS.answer] === 'owner';
            end(isOwners ? answered : undefined);
          },
          () => end(),
        );
      });
      request.end(body);
    });
  }
}

async function collect(response: IncomingMessage): Promise<VerbAnswer> {
  const { headers, statusCode: status = 0 } = response;
  return { status, headers, body: await readWhole(response, MAX_ANSWER_BYTES) };
}

/** A verb as an HTTP request to the owner. */
interface VerbCall {
  verb: WorkerVerb;
  body: Uint8Array;
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
}

interface VerbAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

function encodeJson(verb: WorkerVerb, message: object): VerbCall {
  const headers = { 'content-type': 'application/json' };
  return { verb, headers, body: Buffer.from(JSON.stringify(message)) };
}

function encodeReports({ incarnation, reports, workerId }: ReportRequest): VerbCall {
  const frames = reports.map(({ body, ...header }) => ({ header, body }));
  return {
    verb: 'report',
    body: Buffer.concat(encodeFrames(frames)),
    headers: {
      'content-type': FRAMES_MEDIA_TYPE,
      [WORKER_HEADERS.worker]: workerId,
      [WORKER_HEADERS.incarnation]: String(incarnation),
    },
  };
}

function parseJson<T>({ body }: VerbAnswer, message: Field<T>): T {
  try {
    return message.read(JSON.parse(body.toString()));
  } catch (cause) {
    throw new LinkError('unavailable', "the node's answer cannot be read", { cause });
  }
}

function readLeases({ body, status }: VerbAnswer, { max }: TakeRequest): Lease[] {
  if (status === 204) return [];
  try {
    const bounds = { frames: max, values: Number.POSITIVE_INFINITY };
    const frames = decodeFrames(body, bounds);
    const headers = leaseHeaders.read(frames.map(({ header }) => header));
    return headers.map((header, index) => ({ ...header, input: frames[index]?.body ?? NO_BYTES }));
  } catch (cause) {
    const why = cause instanceof FrameError ? cause.message : 'a lease is invalid';
    throw new LinkError('unavailable', `the node's answer cannot be read: ${why}`, { cause });
  }
}

function readReplies(answer: VerbAnswer, { reports }: ReportRequest): ReportReply[] {
  const replies = parseJson(answer, reportReplies);
  if (replies.length === reports.length) return replies;
  throw new LinkError('unavailable', `${replies.length} answers to ${reports.length} reports`);
}

/** @throws LinkError */
function requireSuccess(answer: VerbAnswer): VerbAnswer {
  const { body, headers, status } = answer;
  if (status >= 200 && status < 300) return answer;
  const { code, detail } = readProblem(body);
  const retryAfterMs = readRetryAfterMs(headers['retry-after'], Date.now());
  throw new LinkError(judge(status, code), detail, { retryAfterMs });
}

function judge(status: number, code: string | undefined): LinkErrorCode {
  if (status === 401 || status === 403) return 'unauthorized';
  if (code === 'stale_incarnation' || code === 'unknown_worker') return code;
  return status >= 500 || [404, 408, 429].includes(status) ? 'unavailable' : 'invalid';
}

function readProblem(body: Buffer): { code?: string; detail: string } {
  try {
    const { code, detail } = JSON.parse(body.toString());
    return { code: String(code), detail: String(detail) };
  } catch {
    return { detail: 'the node refused the call' };
  }
}
