// The link of a gRPC worker whose endpoint another node may own: each call goes to the queue of this node, or
// to the owner by HTTP with the worker's own key. All five verbs may be repeated.
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { readRetryAfterMs } from '../../base/backoff.ts';
import { http } from '../../base/net/node-http.ts';
import { carryLink, type LinkCall } from '../../wire/link/carried-link.ts';
import { decodeAnswer, encodeCall, readRefusal } from '../../wire/link/http-form.ts';
import { LinkError, type WorkerLink } from '../../wire/link/worker-link.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { WORKER_ROUTES } from '../../wire/routes/routes.ts';
import { NODE_HEADERS } from '../http/forwarded.ts';
import { firstSecret, readNodeAddress, readWhole } from '../nodes/node-client.ts';
import type { ServedLink } from '../worker/worker-routes.ts';
import type { Forwarder } from './forwarder.ts';
import type { OwnerNode } from './forwarding-options.ts';

/** Pause before the same node is asked again, ms. */
const PAUSE_MS = 250;
/** Most bytes of an answer: as many leases as a worker takes. */
const MAX_ANSWER_BYTES = 256 * 1_048_576;

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
  const ask = <T>(verb: Verb<T>, { isHello = false, signal = NEVER } = {}) =>
    new OwnerCall<T>({
      ...options,
      signal,
      here: async () => {
        const answered = await verb(local);
        ownerUrl = isHello ? advertised : undefined;
        return answered;
      },
      there: verb,
      tell: (url) => {
        ownerUrl = url;
      },
    }).run();
  return {
    get ownerUrl() {
      return ownerUrl;
    },
    hello: (hello) => ask((link) => link.hello(hello), { isHello: true }),
    take: (request, signal) => ask((link) => link.take(request, signal), { signal }),
    renew: (request, signal) => ask((link) => link.renew(request, signal), { signal }),
    report: (request) => ask((link) => link.report(request)),
    bye: (bye) => ask((link) => link.bye(bye)),
  };
}

const NEVER = new AbortController().signal;

/** Makes one call over a link. */
type Verb<T> = (link: WorkerLink) => Promise<T>;

interface OwnerCallOptions<T> extends NodeLinkOptions {
  signal: AbortSignal;
  /** Makes the call to the queue of this node. */
  here: () => Promise<T>;
  there: Verb<T>;
  /** Called with the URL that the node's answer tells. */
  tell: (ownerUrl: string | undefined) => void;
}

/** The node did not answer, or does not own the endpoint. */
class NoAnswer extends Error {}

/** One call of a verb, until the owner has answered or the time is over. */
class OwnerCall<T> {
  readonly #options: OwnerCallOptions<T>;
  #deadline: number | undefined;

  constructor(options: OwnerCallOptions<T>) {
    this.#options = options;
  }

  /** @throws LinkError, and what the queue here throws */
  async run(): Promise<T> {
    const { here, there } = this.#options;
    for (;;) {
      const owner = this.#find();
      try {
        if (owner.kind === 'here') return await here();
        if (owner.kind === 'node') return await there(this.#linkTo(owner.url));
      } catch (error) {
        // An endpoint that moved meanwhile has a closed queue here.
        const isMoved = owner.kind === 'here' && this.#find().kind !== 'here';
        if (!isMoved && !(error instanceof NoAnswer)) throw error;
      }
      await this.#recover(owner);
    }
  }

  #linkTo(url: string): WorkerLink {
    return carryLink(async (call, read) => {
      const answer = await this.#askNode(url, call);
      if (!answer) throw new NoAnswer();
      const told = answer.headers[NODE_HEADERS.grpcUrl];
      this.#options.tell(typeof told === 'string' ? told : undefined);
      return read(decodeAnswer(call, requireSuccess(answer)));
    });
  }

  #find(): OwnerNode {
    const { endpointId, forwarder } = this.#options;
    return forwarder.options.placement.find(endpointId);
  }

  async #askNode(url: string, call: LinkCall): Promise<VerbAnswer | undefined> {
    const { forwarder, signal } = this.#options;
    const { clock, note } = forwarder.options;
    const startedAt = clock.now();
    const answer = await this.#ask(url, call);
    const outcome = answer ? 'answered' : signal.aborted ? 'gone' : 'failed';
    note({ outcome, durationMs: clock.now() - startedAt });
    return answer;
  }

  /** Returns when the call may be repeated. @throws LinkError when the time is over */
  async #recover(owner: OwnerNode): Promise<void> {
    const { forwarder, signal } = this.#options;
    const { bounds, clock, placement } = forwarder.options;
    this.#deadline ??= clock.now() + bounds.workerOwnerWaitMs;
    const leftMs = this.#deadline - clock.now();
    if (leftMs <= 0 || signal.aborted || forwarder.stopping.aborted) {
      throw new LinkError('unavailable', 'no node of the platform serves this endpoint now');
    }
    const wait = (ms: number) => forwarder.waits.wait(Math.min(ms, leftMs), signal);
    const refreshed = placement.refresh().catch(() => {});
    await Promise.race([refreshed, wait(leftMs)]);
    const next = this.#find();
    const isSame = next.kind === 'node' && owner.kind === 'node' && next.url === owner.url;
    if (next.kind === 'none') await wait(leftMs);
    else if (isSame || owner.kind === 'here') await wait(PAUSE_MS);
  }

  /** Undefined if the node did not answer or does not own the endpoint. */
  #ask(url: string, call: LinkCall): Promise<VerbAnswer | undefined> {
    const { authorization, endpointId, forwarder, signal } = this.#options;
    const { body, headers } = encodeCall(call);
    const bytes = typeof body === 'string' ? Buffer.from(body) : Buffer.concat(body);
    const { agent, options, peers } = forwarder;
    return new Promise((resolve) => {
      const request = http.request({
        ...readNodeAddress(url),
        agent,
        method: 'POST',
        signal,
        path: fillPath(WORKER_ROUTES[call.verb], { endpoint: endpointId }),
        headers: {
          ...headers,
          authorization: /^bearer /i.test(authorization)
            ? authorization
            : `Bearer ${authorization}`,
          'content-length': bytes.length,
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
      request.end(bytes);
    });
  }
}

async function collect(response: IncomingMessage): Promise<VerbAnswer> {
  const { headers, statusCode: status = 0 } = response;
  return { status, headers, body: await readWhole(response, MAX_ANSWER_BYTES) };
}

interface VerbAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** @throws LinkError */
function requireSuccess(answer: VerbAnswer): VerbAnswer {
  if (answer.status >= 200 && answer.status < 300) return answer;
  const { code, detail = 'the node refused the call' } = readRefusal(answer);
  const retryAfterMs = readRetryAfterMs(answer.headers['retry-after'], Date.now());
  throw new LinkError(code, detail, { retryAfterMs });
}
