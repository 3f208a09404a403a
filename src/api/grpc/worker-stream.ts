// One worker's stream: passes its questions to the five verbs and writes the answers as they become available. Open
// questions and their bytes are bounded, so that no peer can fill the memory. An error becomes the status of the
// stream, or the refusal of one question.
import { randomUUID } from 'node:crypto';
import { Metadata, type ServerDuplexStream, status } from '@grpc/grpc-js';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { PacedWriter } from '../../base/paced-writer.ts';
import {
  type LinkErrorCode,
  renewRequest,
  takeRequest,
  type WorkerBye,
  workerBye,
  workerHello,
} from '../../wire/link/worker-link.ts';
import {
  addBodySizes,
  type Envelope,
  listMessages,
  METADATA,
  openEnvelope,
  PayloadAssembly,
  PIECE_BYTES,
} from '../../wire/link/worker-stream.ts';
import { type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { toProblem } from '../http/problem-reply.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import { UNCOUNTED_BYTES } from '../limits/flows.ts';
import type { ServedLink } from '../worker/worker-routes.ts';
import {
  type IncomingReport,
  IncomingReports,
  readReports,
  type StreamBudget,
  type UserTransfer,
} from './stream-budget.ts';

/** Open questions of one worker, which has about four. A question is open until its answer is written. */
const MAX_OPEN = 128;
/** Kind of a message that was not decoded because it exceeds its bounds; its content says which. */
export const EXCESS = 'excess';

export interface WorkerStreamOptions {
  link: ServedLink;
  /** Resolves when the worker's user may use the event loop. */
  schedule: () => Promise<void>;
  /** Called before each verb. @throws ProblemError if the caller may not continue */
  admit: () => Promise<void>;
  /** Says hello. @throws ProblemError if the key has too many workers, and what `hello` throws */
  admitHello: <T>(workerId: string, hello: () => Promise<T>) => Promise<T>;
  /** A worker has died or could not be started, as its supervisor reports. */
  noteCrash: (bye: WorkerBye) => void;
  log: Log;
  clock: Clock;
  bounds: Pick<HttpBounds, 'stallMs' | 'transferMs'>;
  /** For the bytes of incoming reports and outgoing leases. */
  budget: StreamBudget;
}

/** An unanswered question. */
interface OpenCall extends IncomingReport {
  readonly abort: AbortController;
}

export class WorkerStream {
  readonly #call: ServerDuplexStream<object, object>;
  readonly #options: WorkerStreamOptions;
  readonly #closed = new AbortController();
  readonly #writer: PacedWriter<object>;
  readonly #open = new Map<number, OpenCall>();
  readonly #incoming: IncomingReports;
  #sentMessages = 0;
  #isHalfClosed = false;

  constructor(call: ServerDuplexStream<object, object>, options: WorkerStreamOptions) {
    this.#call = call;
    this.#options = options;
    const end = (problem: ProblemError) => this.end(problem);
    this.#incoming = new IncomingReports({ ...options, end });
    this.#writer = new PacedWriter(
      { write: (message, sent) => this.#write(message, sent) },
      this.#closed.signal,
    );
    call.on('data', (message: object) => this.#receive(message));
    call.on('end', () => this.#halfClose());
    for (const event of ['cancelled', 'error', 'close']) call.on(event, () => this.#abandon());
  }

  /** Ends the wait of every open question: each is answered at once. */
  abortOpen(): void {
    for (const { abort } of this.#open.values()) abort.abort();
  }

  /** Ends the stream with a status; the worker may open another. */
  end(problem: ProblemError): void {
    if (this.#closed.signal.aborted) return;
    this.#abandon();
    this.#call.emit('error', toStatus(problem));
  }

  #write(message: object, sent: (error?: Error | null) => void): void {
    this.#call.write(message, (error?: Error | null) => {
      this.#sentMessages++;
      sent(error);
    });
  }

  #receive(message: object): void {
    if (this.#closed.signal.aborted) return;
    const envelope = openEnvelope(message);
    const open = this.#open.get(envelope.call);
    try {
      if (envelope.kind === 'abort') open?.abort.abort();
      // The piece has no open question: the platform refused it, or the worker gave it up.
      else if (envelope.kind === 'piece') open && this.#addPiece(open, envelope.payload);
      else this.#begin(envelope);
    } catch (error) {
      this.end(showProblem(error, this.#options.log));
    }
  }

  /** @throws ProblemError if the stream cannot continue */
  #begin({ call: number, kind, content, payload }: Envelope): void {
    if (this.#open.has(number)) throw new ProblemError('invalid', `call ${number} is open already`);
    if (this.#open.size >= MAX_OPEN) {
      throw new ProblemError('payload_too_large', `more than ${MAX_OPEN} calls are open`);
    }
    const call: OpenCall = { number, content, abort: new AbortController() };
    this.#open.set(number, call);
    // The pieces of its payload may still arrive.
    if (kind === EXCESS) call.payload = 'dropped';
    if (kind === 'reports') this.#beginReport(call, payload);
    else this.#settle(call, () => this.#answer(call, kind));
  }

  /** @throws ProblemError if the stream cannot continue */
  #beginReport(call: OpenCall, payload: Uint8Array): void {
    const refusal = this.#incoming.begin(call);
    if (refusal) this.#settle(call, () => Promise.reject(refusal));
    else this.#addPiece(call, payload);
  }

  /** @throws ProblemError if the stream cannot continue */
  #addPiece(call: OpenCall, piece: Uint8Array): void {
    const bodies = this.#incoming.add(call, piece);
    if (bodies) this.#settle(call, () => this.#report(call, bodies));
  }

  /** Runs a verb; its error becomes the answer. */
  #settle(call: OpenCall, run: () => Promise<void>): void {
    const answer = async () => {
      try {
        await this.#options.schedule();
        await this.#options.admit();
        await run();
      } catch (error) {
        const refusal = toRefusal(showProblem(error, this.#options.log));
        await this.#writer.writeNow({ call: call.number, refusal });
      } finally {
        call.release?.();
        this.#open.delete(call.number);
        if (this.#isHalfClosed && this.#open.size === 0) this.#call.end();
      }
    };
    void answer();
  }

  async #answer(call: OpenCall, kind: string | undefined): Promise<void> {
    const { abort, content, number } = call;
    const { link, noteCrash } = this.#options;
    switch (kind) {
      case EXCESS:
        throw new ProblemError('invalid', `${content}`);
      case 'hello': {
        // The worker has left while its call waited for its turn.
        if (abort.signal.aborted) return;
        const hello = workerHello.read(content);
        const { admitHello } = this.#options;
        const welcome = await admitHello(hello.workerId, () => link.hello(hello));
        return this.#writeAnswer(number, { welcome });
      }
      case 'credit':
        return abort.signal.aborted ? undefined : this.#grant(call);
      case 'renew': {
        const renew = renewRequest.read(content);
        const renewed = await link.renew(renew, abort.signal);
        return this.#writeAnswer(number, { renewed });
      }
      case 'bye': {
        const bye = workerBye.read(content);
        await link.bye(bye);
        if (bye.reason === 'crashed') noteCrash(bye);
        return this.#writeAnswer(number, { goodbye: {} });
      }
      default:
        throw new ProblemError('invalid', `unknown kind of call ${number}`);
    }
  }

  async #grant(call: OpenCall): Promise<void> {
    const { abort, content, number } = call;
    const take = takeRequest.read(content);
    // Inputs that the worker has not read yet are in memory; more follow when they are sent.
    await this.#writer.idle();
    const { budget, link } = this.#options;
    let leases = await link.take(take, abort.signal);
    const owner = this.#describeOwner();
    const bytes = leases.reduce((sum, { input }) => sum + input.length, 0);
    if (bytes > UNCOUNTED_BYTES) {
      const transfer = this.#describeLeases(bytes);
      let claim = budget.tryClaim(transfer);
      if (!claim) {
        // A repeated take returns the same leases, so they are not kept in memory while they wait
        // for the budget.
        leases = [];
        claim = await budget.claim(transfer, abort.signal);
        leases = claim ? await link.take(take, abort.signal) : [];
      }
      call.release = () => claim?.release();
    }
    // Even if the worker has given up meanwhile: half a payload would be useless.
    const bodies = leases.map(({ input }) => input);
    const headers = leases.map(({ input: _, ...header }) => header);
    await this.#writer.writeSeries(
      listMessages(
        { call: number, ...owner },
        { kind: 'leases', content: { leases: addBodySizes(headers, bodies) }, bodies },
      ),
      this.#closed.signal,
    );
  }

  #describeLeases(bytes: number): UserTransfer {
    const sentBefore = this.#sentMessages;
    return {
      bytes,
      moved: () => (this.#sentMessages - sentBefore) * PIECE_BYTES,
      drop: () =>
        this.end(new ProblemError('unavailable', 'the worker reads its leases too slowly')),
    };
  }

  async #report({ content, number }: OpenCall, bodies: readonly Uint8Array[]): Promise<void> {
    const answers = await this.#options.link.report(readReports(content, bodies));
    await this.#writeAnswer(number, { reportAnswers: { answers } });
  }

  #writeAnswer(call: number, answer: object): Promise<void> {
    return this.#writer.writeNow({ call, ...answer, ...this.#describeOwner() });
  }

  /** Of the last call: read it before the next one ends. */
  #describeOwner(): { ownerUrl?: string } {
    const { ownerUrl } = this.#options.link;
    return ownerUrl === undefined ? {} : { ownerUrl };
  }

  /** The worker sends nothing more; open questions are still answered. */
  #halfClose(): void {
    this.#isHalfClosed = true;
    this.#incoming.stop();
    for (const { abort } of this.#open.values()) abort.abort();
    this.#forgetParts();
    if (this.#open.size === 0) this.#call.end();
  }

  /** The worker has disconnected: aborts its open questions. */
  #abandon(): void {
    this.#closed.abort();
    this.#incoming.stop();
    for (const { abort } of this.#open.values()) abort.abort();
    this.#forgetParts();
    this.#open.clear();
  }

  /** Drops the reports whose payload is incomplete: the rest will not arrive. */
  #forgetParts(): void {
    for (const { number, payload, release } of this.#open.values()) {
      if (!(payload instanceof PayloadAssembly)) continue;
      this.#open.delete(number);
      release?.();
    }
  }
}

const STATUSES: Partial<Record<ProblemCode, status>> = {
  malformed: status.INVALID_ARGUMENT,
  invalid: status.INVALID_ARGUMENT,
  unauthorized: status.UNAUTHENTICATED,
  forbidden: status.PERMISSION_DENIED,
  not_found: status.NOT_FOUND,
  payload_too_large: status.RESOURCE_EXHAUSTED,
  unavailable: status.UNAVAILABLE,
};

const LINK_CODES: Partial<Record<ProblemCode, LinkErrorCode>> = {
  malformed: 'invalid',
  invalid: 'invalid',
  payload_too_large: 'invalid',
  unauthorized: 'unauthorized',
  forbidden: 'unauthorized',
  stale_incarnation: 'stale_incarnation',
  unknown_worker: 'unknown_worker',
};

/** In the form that `call.destroy` expects. */
export function toStatus(problem: ProblemError): Error {
  const metadata = new Metadata();
  if (problem.retryAfterMs !== undefined) {
    metadata.set(METADATA.retryAfterMs, String(Math.ceil(problem.retryAfterMs)));
  }
  const code = STATUSES[problem.code] ?? status.INTERNAL;
  return Object.assign(new Error(problem.message), { code, details: problem.message, metadata });
}

/** Content of a `Refusal`. */
function toRefusal(problem: ProblemError): object {
  const { code, errors, message, retryAfterMs } = problem;
  return {
    code: LINK_CODES[code] ?? 'unavailable',
    detail: errors && errors.length > 0 && code === 'malformed' ? errors.join('; ') : message,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

/** An internal error is logged and shown only by its ID. */
export function showProblem(error: unknown, log: Log): ProblemError {
  const problem = toProblem(error);
  if (problem) return problem;
  const id = randomUUID();
  log.error({ err: error, errorId: id }, 'worker call failed');
  return new ProblemError('internal', `The platform failed; its log has the cause under ${id}.`);
}
