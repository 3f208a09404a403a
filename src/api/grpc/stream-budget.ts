// What one worker's gRPC stream holds in memory: its claims in the budget of all worker calls, over HTTP and gRPC; the
// meter of messages that are still arriving; and reports, whose payload arrives in pieces.
import { type ByteBudget, type Claim, giveBack, type Transfer } from '../../base/byte-budget.ts';
import type { Clock } from '../../base/clock.ts';
import { StallWatch, type StallWatchOptions } from '../../base/stall-watch.ts';
import { type ReportRequest, reportHeaders } from '../../wire/link/worker-link.ts';
import {
  PayloadAssembly,
  PayloadError,
  PIECE_BYTES,
  readBodySizes,
} from '../../wire/link/worker-stream.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import { UNCOUNTED_BYTES } from '../limits/flows.ts';

export type UserTransfer = Omit<Transfer, 'owner'>;

export class StreamBudget {
  readonly #budget: ByteBudget;
  readonly #owner: string;

  constructor(budget: ByteBudget, owner: string) {
    this.#budget = budget;
    this.#owner = owner;
  }

  tryClaim(transfer: UserTransfer): Claim | undefined {
    return this.#budget.tryClaim({ ...transfer, owner: this.#owner });
  }

  /** Waits without a limit. Undefined if the signal has aborted. */
  claim(transfer: UserTransfer, signal: AbortSignal): Promise<Claim | undefined> {
    const waiting = { waitMs: Number.POSITIVE_INFINITY, signal };
    return this.#budget.claim({ ...transfer, owner: this.#owner }, waiting);
  }
}

/** gRPC's framing before each message: a flag and the length. */
export const PREFIX_BYTES = 5;
/** Workers send payloads in pieces; a piece with its header is not claimed. */
const UNCLAIMED_BYTES = PIECE_BYTES + 1_024;

export interface MessageMeterOptions extends StallWatchOptions {
  budget: StreamBudget;
  /** The budget has no bytes for a large message, or its claim was dropped. */
  onExcess: () => void;
}

/**
 * Meters the incomplete messages of one HTTP/2 stream. The gRPC library buffers up to 32 MB of each: large ones are
 * claimed, and all must make progress.
 */
export class MessageMeter {
  readonly #options: MessageMeterOptions;
  readonly #stalls: StallWatch;
  #prefix = Buffer.alloc(0);
  #length = 0;
  #received = 0;
  #release: (() => void) | undefined;

  constructor(options: MessageMeterOptions) {
    this.#options = options;
    this.#stalls = new StallWatch(options);
  }

  add(data: Buffer): void {
    for (let at = 0; at < data.length; ) {
      if (this.#prefix.length === 0) this.#stalls.begin();
      if (this.#prefix.length < PREFIX_BYTES) at = this.#addPrefix(data, at);
      else {
        const end = Math.min(data.length, at + this.#length - this.#received);
        this.#received += end - at;
        at = end;
      }
      if (this.#prefix.length === PREFIX_BYTES && this.#received === this.#length) this.#complete();
    }
    this.#stalls.move();
  }

  stop(): void {
    this.#stalls.stop();
    this.#release?.();
  }

  #addPrefix(data: Buffer, at: number): number {
    const end = Math.min(data.length, at + PREFIX_BYTES - this.#prefix.length);
    this.#prefix = Buffer.concat([this.#prefix, data.subarray(at, end)]);
    if (this.#prefix.length === PREFIX_BYTES) this.#begin(this.#prefix.readUInt32BE(1));
    return end;
  }

  #begin(length: number): void {
    const { budget, onExcess } = this.#options;
    this.#length = length;
    this.#received = 0;
    if (length <= UNCLAIMED_BYTES) return;
    const claim = budget.tryClaim({ bytes: length, moved: () => this.#received, drop: onExcess });
    if (claim) this.#release = () => claim.release();
    else onExcess();
  }

  #complete(): void {
    this.#release?.();
    this.#release = undefined;
    this.#prefix = Buffer.alloc(0);
    this.#stalls.end();
  }
}

/** As over HTTP: an output of 20 MB travels with other collected reports. */
const MAX_REPORT_BYTES = 64 * 1_048_576;

/** Retry-After when the budget is full, ms. */
const RETRY_MS = 1_000;

/** Bytes of a message before its piece, which have already been read. */
const MESSAGE_HEAD_BYTES = 64;

/** An unanswered call of the worker; only `report` has a payload. */
export interface IncomingReport {
  readonly number: number;
  content: unknown;
  /** The payload so far, until it is complete; `dropped` if it is not wanted. */
  payload?: PayloadAssembly | 'dropped';
  /** Releases its claimed bytes. */
  release?: () => void;
}

export interface IncomingReportsOptions {
  bounds: Pick<HttpBounds, 'stallMs' | 'transferMs'>;
  budget: StreamBudget;
  clock: Clock;
  /** Ends the stream with a status. */
  end: (problem: ProblemError) => void;
}

/** The reports of one stream whose payload arrives in pieces. */
export class IncomingReports {
  readonly #options: IncomingReportsOptions;
  readonly #arriving: StallWatch;

  constructor(options: IncomingReportsOptions) {
    this.#options = options;
    const { bounds, clock, end } = options;
    const onStall = () => end(new ProblemError('unavailable', 'a report stopped arriving'));
    this.#arriving = new StallWatch({ clock, stallMs: bounds.stallMs, onStall });
  }

  /**
   * Call it before the first piece. Returns why the report is refused: its pieces are dropped then.
   * @throws ProblemError if the stream cannot continue
   */
  begin(report: IncomingReport): ProblemError | undefined {
    const assembly = new PayloadAssembly(readReportSizes(report.content));
    const refusal = this.#claim(report, assembly);
    report.payload = refusal ? 'dropped' : assembly;
    if (!refusal) this.#arriving.begin();
    return refusal;
  }

  /**
   * Returns the bodies once the payload is complete. @throws ProblemError if the stream cannot
   * continue
   */
  add(report: IncomingReport, piece: Uint8Array): Uint8Array[] | undefined {
    const { number, payload } = report;
    if (payload === 'dropped') return undefined;
    if (!payload) throw new ProblemError('invalid', `call ${number} takes no piece`);
    try {
      payload.add(piece);
      this.#arriving.move();
      if (piece.length < payload.total) giveBack(piece, MESSAGE_HEAD_BYTES);
    } catch (error) {
      if (!(error instanceof PayloadError)) throw error;
      throw new ProblemError('invalid', error.message, { cause: error });
    }
    if (!payload.isWhole) return undefined;
    delete report.payload;
    this.#arriving.end();
    return payload.bodies();
  }

  stop(): void {
    this.#arriving.stop();
  }

  #claim(report: IncomingReport, assembly: PayloadAssembly): ProblemError | undefined {
    const { bounds, budget, clock, end } = this.#options;
    const { total: bytes } = assembly;
    if (bytes > MAX_REPORT_BYTES) {
      return new ProblemError('payload_too_large', `reports of ${bytes} bytes are too large`);
    }
    if (bytes <= UNCOUNTED_BYTES) return undefined;
    const drop = () => end(new ProblemError('unavailable', 'a report arrives too slowly'));
    const claim = budget.tryClaim({ bytes, moved: () => assembly.received, drop });
    if (!claim) {
      const detail = 'too many bytes of reports and leases are in flight; try again later';
      return new ProblemError('unavailable', detail, { retryAfterMs: RETRY_MS });
    }
    const cancel = clock.after(bounds.transferMs, () => {
      if (report.payload) drop();
    });
    report.release = () => {
      cancel();
      claim.release();
    };
    return undefined;
  }
}

const NO_BYTES = new Uint8Array(0);

/** Sizes in the payload of `reports`. */
function readReportSizes(content: unknown): number[] {
  return readBodySizes(listReports(content));
}

/** @throws FieldFault */
export function readReports(content: unknown, bodies: readonly Uint8Array[]): ReportRequest {
  const { reports, ...caller } = reportHeaders.read(content);
  return {
    ...caller,
    reports: reports.map((header, index) => ({ ...header, body: bodies[index] ?? NO_BYTES })),
  };
}

function listReports(content: unknown): unknown[] {
  const hasReports = typeof content === 'object' && content !== null && 'reports' in content;
  return hasReports && Array.isArray(content.reports) ? content.reports : [];
}
