// One stream to the platform as questions and answers: each question has a number, and answers
// arrive in any order. When the stream ends, all open questions fail and the stream is not used
// again.
import type { ClientDuplexStream } from '@grpc/grpc-js';
import type { ResumableClock } from '../../base/clock.ts';
import { PacedWriter } from '../../base/paced-writer.ts';
import { LinkError } from '../../wire/link/worker-link.ts';
import {
  cutPayload,
  type Envelope,
  openEnvelope,
  PayloadAssembly,
  PayloadError,
  readBodySizes,
} from '../../wire/link/worker-stream.ts';
import { toRefusalError, toStatusError } from './grpc-errors.ts';

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

export interface GrpcStreamOptions {
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
    if (bodies) void this.#writer.writeSeries(listMessages(call, kind, content, bodies), settled);
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

function* listMessages(
  call: number,
  kind: string,
  content: object,
  bodies: readonly Uint8Array[],
): Generator<object, void, void> {
  let isFirst = true;
  for (const payload of cutPayload(bodies)) {
    yield isFirst ? { call, [kind]: { ...content, payload } } : { call, piece: { payload } };
    isFirst = false;
  }
}

function giveUp(kind: string): LinkError {
  return new LinkError('unavailable', `${kind}: cancelled by the caller`);
}
