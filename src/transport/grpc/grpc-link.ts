// WorkerLink over one gRPC stream. The platform answers a take, which is credit, with leases, and
// an open renew with a cancellation. The link only carries; the worker decides when to repeat a
// call, except that owner-route.ts repeats what the owner of the endpoint has not answered.
// grpc-target.ts opens the stream, grpc-stream.ts is the stream.
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type ChooseProxy, noProxy } from '../../base/net/outgoing-proxy.ts';
import { FieldFault } from '../../wire/link/fields.ts';
import {
  type Lease,
  LinkError,
  leaseHeaders,
  type RenewReply,
  type RenewRequest,
  type ReportReply,
  type ReportRequest,
  renewReply,
  reportReplies,
  type TakeRequest,
  type WorkerBye,
  type WorkerHello,
  type WorkerLink,
  type WorkerWelcome,
  workerWelcome,
} from '../../wire/link/worker-link.ts';
import { type Answered, OwnerRoute } from '../owner-route.ts';
import type { GrpcAnswer, Question, StreamClock } from './grpc-stream.ts';
import { type GrpcLinkTls, GrpcTarget } from './grpc-target.ts';

/** Slowest link for which a payload's time limit is computed, bytes per ms; 20 MB get 210 s. */
const SLOW_LINK_BYTES_PER_MS = 100;
/** Time to connect to the owner of the endpoint, ms: the call then goes to the configured URL, within its lease. */
const OWNER_CONNECT_MS = 3_000;

export interface GrpcLinkOptions {
  /** URL of the platform's gRPC port: grpc or http, or with TLS grpcs or https; without a path. */
  url: string;
  endpointId: string;
  /** Sent as a bearer token. */
  key: string;
  log: Log;
  /** Read when the stream opens: a renewed certificate is used for new connections. */
  tls?: () => GrpcLinkTls;
  /** Default: no proxy. */
  chooseProxy?: ChooseProxy;
  /**
   * Time that an answer may take in addition to the requested wait and the payload's transfer over
   * a slow link; also the longest pause between two pieces of it. ms. Default 15,000.
   */
  answerMarginMs?: number;
  /** Default: the machine's clock. */
  clock?: StreamClock;
}

export interface GrpcLink extends WorkerLink {
  /** Breaks open calls; later calls fail. */
  close(): Promise<void>;
}

/** @throws TypeError if the URL or a certificate is unusable */
export function createGrpcLink(options: GrpcLinkOptions): GrpcLink {
  return new StreamLink(options);
}

interface LinkQuestion<R> extends Pick<Question, 'kind' | 'content' | 'bodies' | 'signal'> {
  /** Wait requested by the call itself, ms. Default 0. */
  waitMs?: number;
  answer: string;
  /** @throws FieldFault */
  read: (answer: GrpcAnswer) => R;
}

class StreamLink implements GrpcLink {
  readonly #options: GrpcLinkOptions;
  readonly #route: OwnerRoute<GrpcTarget>;

  constructor(options: GrpcLinkOptions) {
    const { chooseProxy = noProxy, clock = systemClock, endpointId, key, log, tls, url } = options;
    this.#options = options;
    const rest = { endpointId, key, tls, clock, chooseProxy };
    this.#route = new OwnerRoute({
      configured: new GrpcTarget({ ...rest, url }),
      rules: { configured: url, carrier: 'grpc' },
      open: (owner) => new GrpcTarget({ ...rest, url: owner, connectMs: OWNER_CONNECT_MS }),
      clock,
      log,
    });
  }

  hello(content: WorkerHello): Promise<WorkerWelcome> {
    const read = (answer: GrpcAnswer) => workerWelcome.read(answer.content);
    return this.#ask({ kind: 'hello', content, answer: 'welcome', read });
  }

  take(content: TakeRequest, signal: AbortSignal): Promise<Lease[]> {
    const { waitMs } = content;
    const read = ({ bodies, content }: GrpcAnswer) =>
      leaseHeaders.read(readMember(content, 'leases')).map((header, index) => ({
        ...header,
        input: bodies[index] ?? new Uint8Array(0),
      }));
    return this.#ask({ kind: 'credit', content, answer: 'leases', waitMs, signal, read });
  }

  renew(content: RenewRequest, signal: AbortSignal): Promise<RenewReply> {
    const { waitMs } = content;
    const read = (answer: GrpcAnswer) => renewReply.read(answer.content);
    return this.#ask({ kind: 'renew', content, answer: 'renewed', waitMs, signal, read });
  }

  report({ reports, ...identity }: ReportRequest): Promise<ReportReply[]> {
    const headers = reports.map(({ body, ...header }) => ({ ...header, bodyBytes: body.length }));
    return this.#ask({
      kind: 'reports',
      content: { ...identity, reports: headers },
      bodies: reports.map(({ body }) => body),
      answer: 'reportAnswers',
      read: ({ content }) => {
        const answers = reportReplies.read(readMember(content, 'answers'));
        if (answers.length === reports.length) return answers;
        throw this.#rejectAnswer(`${answers.length} answers to ${reports.length} reports`);
      },
    });
  }

  async bye(content: WorkerBye): Promise<void> {
    await this.#ask({ kind: 'bye', content, answer: 'goodbye', read: () => undefined });
  }

  async close(): Promise<void> {
    this.#route.close();
  }

  #ask<R>(question: LinkQuestion<R>): Promise<R> {
    const { signal, waitMs = 0 } = question;
    return this.#route.call((target) => this.#askAt(target, question), { waitMs, signal });
  }

  /** @throws LinkError */
  async #askAt<R>(
    target: GrpcTarget,
    { answer, read, waitMs = 0, ...question }: LinkQuestion<R>,
  ): Promise<Answered<R>> {
    const { answerMarginMs = 15_000 } = this.#options;
    const bytes = question.bodies?.reduce((sum, body) => sum + body.length, 0) ?? 0;
    const patienceMs = waitMs + Math.ceil(bytes / SLOW_LINK_BYTES_PER_MS) + answerMarginMs;
    const given = await target.ask({ ...question, waitMs, patienceMs });
    if (given.kind !== answer) {
      throw this.#rejectAnswer(`'${given.kind}' does not answer '${question.kind}'`);
    }
    try {
      return { value: read(given), ownerUrl: given.ownerUrl };
    } catch (error) {
      throw error instanceof FieldFault ? this.#rejectAnswer(error.describe('answer')) : error;
    }
  }

  /** The answer comes from an intermediary or a newer platform: a retry may succeed. */
  #rejectAnswer(why: string): LinkError {
    this.#options.log.warn({ why }, 'reading a response of the platform failed');
    return new LinkError('unavailable', `the platform's response cannot be read: ${why}`);
  }
}

function readMember(content: unknown, name: string): unknown {
  return new Map<string, unknown>(Object.entries(Object(content))).get(name);
}
