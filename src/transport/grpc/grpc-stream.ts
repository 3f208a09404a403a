// One stream to the platform as questions and answers: each question has a number, and answers
// arrive in any order. When the stream ends, all open questions fail and the stream is not used
// again. The end of a stream, and the platform's refusal of one question, become a LinkError.
import { type ClientDuplexStream, type Metadata, type StatusObject, status } from '@grpc/grpc-js';
import type { ResumableClock } from '../../base/clock.ts';
import { adviseTrust, TRUST_ADVICE } from '../../base/net/request-hints.ts';
import { PacedWriter } from '../../base/paced-writer.ts';
import { LINK_ERROR_CODES, LinkError, type LinkErrorCode } from '../../wire/link/worker-link.ts';
import {
  type Envelope,
  listMessages,
  METADATA,
  openEnvelope,
  PayloadAssembly,
  PayloadError,
  readBodySizes,
} from '../../wire/link/worker-stream.ts';

/** An endpoint, or the whole service, may be missing while a platform is being set up. */
const NOT_FOUND_RETRY_MS = 10_000;
/** Upper bound of any requested wait: a timer of more than 24 days would fire at once. */
const MAX_RETRY_AFTER_MS = 3_600_000;

const HUNG_UP =
  'closed while opening; check whether the port needs TLS or another client certificate';
/** Texts of the library for a peer that hangs up or speaks another protocol. */
const HINTS = new Map([
  ['Failed to connect', HUNG_UP],
  ['read ECONNRESET', HUNG_UP],
  ['Protocol error', 'the server does not speak HTTP/2; check that the port is the gRPC port'],
]);

export interface Question {
  /** Kind of the `ToPlatform` message. */
  kind: 'hello' | 'credit' | 'renew' | 'reports' | 'bye';
  content: object;
  /** Payload of the message, sent in pieces. */
  bodies?: readonly Uint8Array[];
  /** How long the platform may keep the question open, ms. */
  waitMs: number;
  /** The stream counts as dead if nothing of the answer has arrived for this long, ms. */
  patienceMs: number;
  /**
   * Gives the question up. If its wait is over and nothing has arrived on the stream meanwhile, the
   * stream counts as dead, because a renewal must get through before its lease expires.
   */
  signal?: AbortSignal | undefined;
}

export interface GrpcAnswer {
  kind: string | undefined;
  content: unknown;
  /** Bodies of its payload. */
  bodies: Uint8Array[];
  /** URL of the owner of the endpoint, if the platform has told it. */
  ownerUrl: string | undefined;
}

interface OpenQuestion {
  kind: Question['kind'];
  answer(answer: GrpcAnswer): void;
  fail(error: LinkError): void;
  /** Called when a part of the answer has arrived. */
  refresh(): void;
  /** Begun, but the payload is not complete yet. */
  partial?: { envelope: Envelope; assembly: PayloadAssembly };
}

/** Measures how long an answer takes. */
export type StreamClock = Pick<ResumableClock, 'after' | 'monotonic'>;

interface GrpcStreamOptions {
  call: ClientDuplexStream<object, object>;
  clock: StreamClock;
  /** Clause about the proxy, for errors. */
  via: string;
  /** Called once. `silent`: an answer did not arrive; the connection must not be trusted. */
  onEnd: (how: 'ended' | 'silent') => void;
}

export class GrpcStream {
  readonly #call: ClientDuplexStream<object, object>;
  readonly #clock: StreamClock;
  readonly #onEnd: GrpcStreamOptions['onEnd'];
  readonly #closed = new AbortController();
  readonly #writer: PacedWriter<object>;
  readonly #open = new Map<number, OpenQuestion>();
  #lastNumber = 0;
  #lastReceivedAt = Number.NEGATIVE_INFINITY;

  constructor({ call, clock, onEnd, via }: GrpcStreamOptions) {
    this.#call = call;
    this.#clock = clock;
    this.#onEnd = onEnd;
    this.#writer = new PacedWriter(call, this.#closed.signal);
    call.on('data', (message: object) => this.#receive(message));
    call.on('status', (status) => this.end(toStatusError(status, via)));
    // The status event says everything.
    call.on('error', () => {});
  }

  /** @throws LinkError */
  ask(question: Question): Promise<GrpcAnswer> {
    const { kind, patienceMs, signal, waitMs } = question;
    if (signal?.aborted) return Promise.reject(giveUp(kind));
    const number = ++this.#lastNumber;
    const askedAt = this.#clock.monotonic();
    const settled = new AbortController();
    return new Promise<GrpcAnswer>((resolve, reject) => {
      const abort = () => {
        fail(giveUp(kind));
        const isOverdue =
          this.#clock.monotonic() - askedAt > waitMs && this.#lastReceivedAt < askedAt;
        if (isOverdue) this.#fallSilent(kind);
        else void this.#writer.writeNow({ call: number, abort: {} });
      };
      const startTimer = () => this.#clock.after(patienceMs, () => this.#fallSilent(kind));
      let stopTimer = startTimer();
      const refresh = () => {
        stopTimer();
        stopTimer = startTimer();
      };
      const settle = () => {
        stopTimer();
        signal?.removeEventListener('abort', abort);
        this.#open.delete(number);
        settled.abort();
      };
      const fail = (error: LinkError) => {
        settle();
        reject(error);
      };
      const answer = (value: GrpcAnswer) => {
        settle();
        resolve(value);
      };
      signal?.addEventListener('abort', abort, { once: true });
      this.#open.set(number, { kind, answer, fail, refresh });
      this.#send(number, question, settled.signal);
    });
  }

  /** Fails every open question with the error. */
  end(error: LinkError, how: 'ended' | 'silent' = 'ended'): void {
    if (this.#closed.signal.aborted) return;
    this.#closed.abort();
    for (const { fail } of [...this.#open.values()]) fail(error);
    this.#call.cancel();
    this.#onEnd(how);
  }

  #send(call: number, { kind, content, bodies }: Question, settled: AbortSignal): void {
    if (bodies)
      void this.#writer.writeSeries(listMessages({ call }, { kind, content, bodies }), settled);
    else void this.#writer.writeNow({ call, [kind]: content });
  }

  #fallSilent(kind: string): void {
    this.end(new LinkError('unavailable', `${kind}: no response in time`), 'silent');
  }

  #receive(message: object): void {
    this.#lastReceivedAt = this.#clock.monotonic();
    const envelope = openEnvelope(message);
    const open = this.#open.get(envelope.call);
    // The question was given up meanwhile.
    if (!open) return;
    open.refresh();
    try {
      this.#take(open, envelope);
    } catch (error) {
      if (!(error instanceof PayloadError)) throw error;
      this.end(new LinkError('unavailable', `${open.kind}: ${error.message}`));
    }
  }

  /** @throws PayloadError */
  #take(open: OpenQuestion, envelope: Envelope): void {
    const { kind, content, payload } = envelope;
    if (kind === 'refusal') {
      open.fail(toRefusalError(open.kind, content));
      return;
    }
    if (kind !== 'piece') {
      open.partial = { envelope, assembly: new PayloadAssembly(readSizes(envelope)) };
    }
    if (!open.partial) throw new PayloadError('a piece arrived before its response');
    const { assembly, envelope: first } = open.partial;
    assembly.add(payload);
    if (!assembly.isWhole) return;
    const { content: answered, kind: answerKind, ownerUrl } = first;
    open.answer({ kind: answerKind, content: answered, bodies: assembly.bodies(), ownerUrl });
  }
}

function readSizes({ kind, content }: Envelope): number[] {
  const hasLeases = typeof content === 'object' && content !== null && 'leases' in content;
  if (kind !== 'leases' || !hasLeases || !Array.isArray(content.leases)) return [];
  return readBodySizes(content.leases);
}

function giveUp(kind: string): LinkError {
  return new LinkError('unavailable', `${kind}: cancelled by the caller`);
}

/** Translates a `Refusal`; an unknown code counts as temporary. */
function toRefusalError(verb: string, refusal: unknown): LinkError {
  const members = new Map<string, unknown>(Object.entries(Object(refusal)));
  const code = LINK_ERROR_CODES.find((word) => word === members.get('code'));
  const detail = members.get('detail');
  const retryAfterMs = members.get('retryAfterMs');
  return new LinkError(
    code ?? 'unavailable',
    `${verb}: ${typeof detail === 'string' ? detail : ''}`,
    {
      retryAfterMs:
        typeof retryAfterMs === 'number' && retryAfterMs >= 0 ? limit(retryAfterMs) : undefined,
    },
  );
}

/**
 * UNAUTHENTICATED and PERMISSION_DENIED: `unauthorized`. INVALID_ARGUMENT, FAILED_PRECONDITION and
 * OUT_OF_RANGE: `invalid`. All others are temporary; a missing endpoint or service is retried
 * slowly.
 */
function toStatusError({ code, details, metadata }: StatusObject, via = ''): LinkError {
  const name = status[code] ?? String(code);
  const retryAfterMs =
    readRetryAfterMs(metadata) ?? (isMissing(code) ? NOT_FOUND_RETRY_MS : undefined);
  const why = describeDetails(details);
  // A proxy's 404 is UNIMPLEMENTED, so NOT_FOUND comes from a platform.
  const endpointMissing = code === status.NOT_FOUND;
  const linkCode = judge(code);
  // Otherwise the platform has answered.
  const clause = linkCode === 'unavailable' && !endpointMissing ? via : '';
  return new LinkError(linkCode, `stream ended: ${name} ${why}${clause}`, {
    retryAfterMs,
    endpointMissing,
  });
}

/**
 * Without a connection, the library's text contains the time and lines of OpenSSL, so that the same
 * failure would look new each time.
 */
function describeDetails(details: string): string {
  const [, said] =
    /^No connection established\. Last error: (.*)\. Resolution note:/s.exec(details) ?? [];
  if (said === undefined) {
    const isRedirect = /^Received HTTP status code 30[12378]$/.test(details);
    return isRedirect ? `${details}; the server redirects, use the URL of the gRPC port` : details;
  }
  const reason = said.replace(/\s*\(\d{4}-[\dT:.-]+Z\)$/, '').replace(/^Error: /, '');
  const [, tls] = /^[0-9A-F]+:error:[0-9A-F]+:[^:]*:[^:]*:([^:]+):/.exec(reason) ?? [];
  return `no connection: ${tls === undefined ? (HINTS.get(reason) ?? adviseTrust(reason, TRUST_ADVICE)) : `TLS: ${tls}`}`;
}

function judge(code: status): LinkErrorCode {
  switch (code) {
    case status.UNAUTHENTICATED:
    case status.PERMISSION_DENIED:
      return 'unauthorized';
    case status.INVALID_ARGUMENT:
    case status.FAILED_PRECONDITION:
    case status.OUT_OF_RANGE:
      return 'invalid';
    default:
      return 'unavailable';
  }
}

function isMissing(code: status): boolean {
  return code === status.NOT_FOUND || code === status.UNIMPLEMENTED;
}

function readRetryAfterMs(metadata: Metadata): number | undefined {
  const [text] = metadata.get(METADATA.retryAfterMs);
  return typeof text === 'string' && /^\d{1,9}$/.test(text) ? limit(Number(text)) : undefined;
}

function limit(retryAfterMs: number): number {
  return Math.min(Math.max(0, retryAfterMs), MAX_RETRY_AFTER_MS);
}
