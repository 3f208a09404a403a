// The reports of one worker's stream: claims the bytes of their payload, which arrives in pieces, assembles it, and ends a
// stream that stalls.
import { giveBack } from '../../base/byte-budget.ts';
import type { Clock } from '../../base/clock.ts';
import { StallWatch } from '../../base/stall-watch.ts';
import { type ReportRequest, reportHeaders } from '../../wire/link/worker-link.ts';
import { PayloadAssembly, PayloadError, readBodySizes } from '../../wire/link/worker-stream.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import { UNCOUNTED_BYTES } from '../limits/flows.ts';
import type { StreamBudget } from './stream-budget.ts';

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
