// One worker's stream: its questions put to whatever implements the five verbs, the answers written back
// when they come. What it may have open is bounded, so that no peer can fill the memory.
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { Log } from '../../base/log.ts';
import { PacedWriter } from '../../base/paced-writer.ts';
import { giveBack } from '../../base/spent-bytes.ts';
import type { WorkerBye, WorkerLink } from '../../wire/link/worker-link.ts';
import {
  renewRequest,
  takeRequest,
  workerBye,
  workerHello,
  workerIdentity,
} from '../../wire/link/worker-link-schemas.ts';
import {
  type Envelope,
  openEnvelope,
  PayloadAssembly,
  PayloadError,
} from '../../wire/link/worker-stream.ts';
import { ProblemError } from '../../wire/problem.ts';
import { checkContent, listLeases, readReportSizes, readReports } from './questions.ts';
import { showProblem, toRefusal, toStatus } from './refusals.ts';

/** A worker has four or so; one whose answer is not written yet counts. */
const MAX_OPEN = 128;
/** As over HTTP: an output of 20 MB travels with what else the worker has gathered meanwhile. */
const MAX_REPORT_BYTES = 64 * 1_048_576;

/** What stands before the piece in the message that it came in; it has been read by then. */
const MESSAGE_HEAD_BYTES = 64;

/** Kind of a message that was not decoded, because it holds too much: its content says what of. */
export const EXCESS = 'excess';

export interface WorkerStreamOptions {
  link: WorkerLink;
  /** Asked before each verb. @throws ProblemError if the caller may not go on. */
  admit: () => Promise<void>;
  /** Asked before a hello. @throws ProblemError if the key has too many workers. */
  admitId: (workerId: string) => void;
  /** A supervisor saw a worker die, or one that could not be started. */
  noteCrash: (bye: WorkerBye) => void;
  log: Log;
}

/** A question that is not answered yet. */
interface OpenCall {
  readonly number: number;
  readonly abort: AbortController;
  /** Of reports: what has come so far, until it is whole; `dropped` where it is not wanted. */
  payload?: PayloadAssembly | 'dropped';
  content: unknown;
}

export class WorkerStream {
  readonly #call: ServerDuplexStream<object, object>;
  readonly #options: WorkerStreamOptions;
  readonly #closed = new AbortController();
  readonly #writer: PacedWriter<object>;
  readonly #open = new Map<number, OpenCall>();
  /** Payload of the reports that are open. */
  #reportBytes = 0;
  #isLeaving = false;

  constructor(call: ServerDuplexStream<object, object>, options: WorkerStreamOptions) {
    this.#call = call;
    this.#options = options;
    this.#writer = new PacedWriter(call, this.#closed.signal);
    call.on('data', (message: object) => this.#receive(message));
    call.on('end', () => this.#leave());
    for (const event of ['cancelled', 'error', 'close']) call.on(event, () => this.#abandon());
  }

  /** Ends it with a status; the worker may open another. */
  end(problem: ProblemError): void {
    if (this.#closed.signal.aborted) return;
    this.#abandon();
    this.#call.emit('error', toStatus(problem));
  }

  #receive(message: object): void {
    if (this.#closed.signal.aborted) return;
    const envelope = openEnvelope(message);
    const open = this.#open.get(envelope.call);
    try {
      if (envelope.kind === 'abort') open?.abort.abort();
      // Without a question: it was refused, or given up.
      else if (envelope.kind === 'piece') open && this.#addPiece(open, envelope.payload);
      else this.#begin(envelope);
    } catch (error) {
      this.end(showProblem(error, this.#options.log));
    }
  }

  /** @throws ProblemError when the stream cannot go on */
  #begin({ call: number, kind, content, payload }: Envelope): void {
    if (this.#open.has(number)) throw new ProblemError('invalid', `call ${number} is open already`);
    if (this.#open.size >= MAX_OPEN) {
      throw new ProblemError('payload_too_large', `more than ${MAX_OPEN} calls are open`);
    }
    const call: OpenCall = { number, content, abort: new AbortController() };
    this.#open.set(number, call);
    // The pieces of its payload may be on their way.
    if (kind === EXCESS) call.payload = 'dropped';
    if (kind === 'reports') this.#beginReport(call, payload);
    else this.#settle(call, () => this.#answer(call, kind));
  }

  /** @throws ProblemError when the stream cannot go on */
  #beginReport(call: OpenCall, payload: Uint8Array): void {
    const assembly = new PayloadAssembly(readReportSizes(call.content));
    const refusal = this.#judgeSize(assembly.total);
    if (refusal) {
      call.payload = 'dropped';
      this.#settle(call, () => Promise.reject(refusal));
      return;
    }
    call.payload = assembly;
    this.#reportBytes += assembly.total;
    this.#addPiece(call, payload);
  }

  #judgeSize(bytes: number): ProblemError | undefined {
    if (bytes > MAX_REPORT_BYTES) {
      return new ProblemError('payload_too_large', `reports of ${bytes} bytes are too large`);
    }
    if (this.#reportBytes + bytes <= MAX_REPORT_BYTES) return undefined;
    return new ProblemError('unavailable', 'the reports before these are not stored yet');
  }

  /** @throws ProblemError when the stream cannot go on */
  #addPiece(call: OpenCall, piece: Uint8Array): void {
    const { payload } = call;
    if (payload === 'dropped') return;
    if (!payload) throw new ProblemError('invalid', `call ${call.number} takes no piece`);
    try {
      payload.add(piece);
      if (piece.length < payload.total) giveBack(piece, MESSAGE_HEAD_BYTES);
    } catch (error) {
      if (!(error instanceof PayloadError)) throw error;
      throw new ProblemError('invalid', error.message, { cause: error });
    }
    if (!payload.isWhole) return;
    delete call.payload;
    this.#settle(call, async () => {
      try {
        await this.#report(call, payload.bodies());
      } finally {
        this.#reportBytes -= payload.total;
      }
    });
  }

  /** Runs a verb; what it throws is its answer. */
  #settle(call: OpenCall, run: () => Promise<void>): void {
    const answer = async () => {
      try {
        await this.#options.admit();
        await run();
      } catch (error) {
        const refusal = toRefusal(showProblem(error, this.#options.log));
        await this.#writer.writeNow({ call: call.number, refusal });
      } finally {
        this.#open.delete(call.number);
        if (this.#isLeaving && this.#open.size === 0) this.#call.end();
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
        const hello = checkContent(content, workerHello, 'hello');
        this.#options.admitId(hello.workerId);
        const welcome = await link.hello(hello);
        return this.#writer.writeNow({ call: number, welcome });
      }
      case 'credit':
        return this.#grant(call);
      case 'renew': {
        const renew = checkContent(content, renewRequest, 'renew');
        const renewed = await link.renew(renew, abort.signal);
        return this.#writer.writeNow({ call: number, renewed });
      }
      case 'bye': {
        const bye = checkContent(content, workerBye, 'bye');
        await link.bye(bye);
        if (bye.reason === 'crashed') noteCrash(bye);
        return this.#writer.writeNow({ call: number, goodbye: {} });
      }
      default:
        throw new ProblemError('invalid', `this platform does not know the kind of call ${number}`);
    }
  }

  async #grant({ abort, content, number }: OpenCall): Promise<void> {
    const take = checkContent(content, takeRequest, 'credit');
    // Inputs that the worker has not read yet are in memory; more come when they are through.
    await this.#writer.idle();
    const leases = await this.#options.link.take(take, abort.signal);
    // Also when the worker has given it up meanwhile: half a payload would be no use to anybody.
    await this.#writer.writeSeries(listLeases(number, leases), this.#closed.signal);
  }

  async #report({ content, number }: OpenCall, bodies: readonly Uint8Array[]): Promise<void> {
    const caller = checkContent(content, workerIdentity, 'reports');
    const reports = readReports(content, bodies);
    const answers = await this.#options.link.report({ ...caller, reports });
    await this.#writer.writeNow({ call: number, reportAnswers: { answers } });
  }

  /** The worker says nothing more; what it has asked is still answered. */
  #leave(): void {
    this.#isLeaving = true;
    for (const { abort, number, payload } of this.#open.values()) {
      abort.abort();
      // The rest of it will not come any more.
      if (payload instanceof PayloadAssembly) this.#open.delete(number);
    }
    if (this.#open.size === 0) this.#call.end();
  }

  /** Nobody is there for an answer. */
  #abandon(): void {
    this.#closed.abort();
    for (const { abort } of this.#open.values()) abort.abort();
    this.#open.clear();
  }
}
