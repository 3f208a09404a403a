// The outgoing reports of one attempt: numbered, in order, kept until acknowledged, merged while
// they wait. The reporter decides when to send them and interprets the answers.
import type {
  LeaseRef,
  Outcome,
  Report,
  ReportHeader,
  TracedLeaseRef,
} from '../../wire/link/worker-link.ts';
import type { ChunkMessage, ExecutionEnd } from '../execution/executor.ts';

const NO_BODY = new Uint8Array(0);
const COMMA = new Uint8Array([0x2c]);
const NEWLINE = 0x0a;

/** Chunks are merged up to this size, so that one report stays a small part of a batch. */
const MERGED_CHUNKS_BYTES = 1_048_576;
/** Chunks are merged up to this number: a message may contain ten times as many. */
const MERGED_CHUNKS = 10_000;
/** Waiting log lines beyond this size are dropped, to bound memory. */
const WAITING_LOG_BYTES = 262_144;

type HeaderOf<Kind extends ReportHeader['kind']> = Extract<ReportHeader, { kind: Kind }>;

interface ReportEntry<Header extends ReportHeader = ReportHeader> {
  header: Header;
  /** Pieces of the body so far. */
  pieces: Uint8Array[];
  bytes: number;
  /** Set when first sent; a sent report may have been applied and must not change. */
  report: Report | undefined;
}

/** A report in a batch, with the attempt's round of sending that it belongs to. */
export interface SentReport {
  attempt: AttemptReports;
  round: number;
  report: Report;
}

/** Unacknowledged reports of an ended attempt, in order. */
export interface RemainingReports {
  reports: Report[];
  /** Reports before the outcome were dropped. The outcome may take the number of a dropped report. */
  hasDroppedReports: boolean;
}

export class AttemptReports {
  readonly lease: LeaseRef;
  /** Fields that every report has. */
  readonly #base: TracedLeaseRef;
  #entries: ReportEntry[] = [];
  #sent = 0;
  #round = 0;
  #nextSeq = 1;
  #chunkCount = 0;
  #bytes = 0;
  #openChunks: ReportEntry<HeaderOf<'chunks'>> | undefined;
  #openProgress: ReportEntry | undefined;
  #openPause: ReportEntry<HeaderOf<'pause'>> | undefined;
  #openLog: ReportEntry<HeaderOf<'log'>> | undefined;
  #ended = false;
  #muted = false;
  #verdict: Outcome | undefined;

  constructor({ jobId, attempt, token, traceparent }: TracedLeaseRef) {
    this.lease = { jobId, attempt, token };
    this.#base = traceparent === undefined ? this.lease : { ...this.lease, traceparent };
  }

  /** Restores an ended attempt's remaining reports with their numbers. */
  static restore(lease: LeaseRef, remaining: RemainingReports): AttemptReports {
    const { traceparent } = remaining.reports[0] ?? {};
    const attempt = new AttemptReports(
      traceparent === undefined ? lease : { ...lease, traceparent },
    );
    for (const { body, ...header } of remaining.reports) attempt.#push(header, body);
    attempt.#muted = remaining.hasDroppedReports;
    attempt.#ended = true;
    return attempt;
  }

  /** The remaining reports of an ended attempt; they no longer change. */
  get remaining(): RemainingReports {
    const reports = this.#entries.map((entry) => {
      entry.report ??= this.#seal(entry);
      return entry.report;
    });
    return { reports, hasDroppedReports: this.#muted };
  }

  /** Number of unacknowledged reports. */
  get depth(): number {
    return this.#entries.length;
  }

  /** Bytes of their bodies. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of reports that are not being sent. */
  get waiting(): number {
    return this.#entries.length - this.#sent;
  }

  /** The outcome has been added. */
  get ended(): boolean {
    return this.#ended;
  }

  addChunks({ sizes, bytes }: ChunkMessage): void {
    if (this.#ended || this.#muted) return;
    const open = this.#openChunks;
    const merged = (open?.header.sizes.length ?? 0) + sizes.length;
    if (open && open.bytes + bytes.length < MERGED_CHUNKS_BYTES && merged <= MERGED_CHUNKS) {
      for (const size of sizes) open.header.sizes.push(size);
      open.pieces.push(COMMA, bytes);
      this.#grow(open, bytes.length + 1);
    } else {
      const header = {
        ...this.#number(),
        kind: 'chunks' as const,
        first: this.#chunkCount,
        sizes: [...sizes],
      };
      this.#openChunks = this.#push(header, bytes);
    }
    this.#chunkCount += sizes.length;
  }

  /** Adds a progress value; replaces an earlier value that is not sent yet. */
  addProgress(value: Uint8Array): void {
    if (this.#ended || this.#muted) return;
    const open = this.#openProgress;
    if (open) {
      this.#grow(open, value.length - open.bytes);
      open.pieces = [value];
    } else {
      this.#openProgress = this.#push({ ...this.#number(), kind: 'progress' }, value);
    }
  }

  /** Adds a pause of the job's group or of a shared limit; extends an earlier one that is not sent yet. */
  addPause(forMs: number, limit?: string): void {
    if (this.#ended || this.#muted) return;
    const open = this.#openPause;
    if (open && open.header.limit === limit) {
      open.header.forMs = Math.max(open.header.forMs, forMs);
      return;
    }
    const header = { ...this.#number(), kind: 'pause' as const, forMs };
    this.#openPause = this.#push(limit === undefined ? header : { ...header, limit }, NO_BODY);
  }

  addStep(name: string, result: Uint8Array): void {
    if (this.#ended || this.#muted) return;
    this.#push({ ...this.#number(), kind: 'step' as const, name }, result);
  }

  addLog(lines: Uint8Array, dropped: number): void {
    if (this.#ended || this.#muted) return;
    const open = this.#openLog;
    if (!open) {
      this.#openLog = this.#push({ ...this.#number(), kind: 'log' as const, dropped }, lines);
    } else if (open.bytes + lines.length > WAITING_LOG_BYTES) {
      open.header.dropped += dropped + countLines(lines);
    } else {
      open.header.dropped += dropped;
      if (open.pieces.at(-1)?.at(-1) !== NEWLINE) {
        open.pieces.push(new Uint8Array([NEWLINE]));
        this.#grow(open, 1);
      }
      open.pieces.push(lines);
      this.#grow(open, lines.length);
    }
  }

  /** Adds the outcome; later reports are ignored. */
  addOutcome({ recycle, outcome, output, usage, waitedMs }: ExecutionEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    const body = this.#verdict ? undefined : output;
    const header = {
      ...this.#number(),
      kind: 'outcome' as const,
      outcome: this.#verdict ?? outcome,
      ...(recycle && { recycle }),
      ...(usage && { usage }),
      ...(waitedMs && { waitedMs }),
    };
    this.#push(header, body ?? NO_BODY);
  }

  /** Returns the next report that is not being sent and marks it as being sent; or undefined. */
  takeNext(): SentReport | undefined {
    const entry = this.#entries[this.#sent];
    if (!entry) return undefined;
    this.#sent++;
    entry.report ??= this.#seal(entry);
    return { attempt: this, round: this.#round, report: entry.report };
  }

  /** Bytes of the report that `takeNext` would return. */
  get nextBytes(): number {
    return this.#entries[this.#sent]?.bytes ?? 0;
  }

  /** Chunks of the report that `takeNext` would return. */
  get nextChunks(): number {
    const header = this.#entries[this.#sent]?.header;
    return header?.kind === 'chunks' ? header.sizes.length : 0;
  }

  /** False if the attempt began to resend after this report was sent: ignore the answer. */
  isCurrent(sentReport: SentReport): boolean {
    return sentReport.round === this.#round;
  }

  /** Removes all reports up to this one. @returns bytes of the chunks among them, and number of the steps */
  acknowledge(seq: number): { chunkBytes: number; steps: number } {
    let chunkBytes = 0;
    let steps = 0;
    for (let first = this.#entries[0]; first && first.header.seq <= seq; first = this.#entries[0]) {
      this.#entries.shift();
      this.#bytes -= first.bytes;
      if (this.#sent > 0) this.#sent--;
      if (first.header.kind === 'chunks') chunkBytes += sum(first.header.sizes);
      if (first.header.kind === 'step') steps++;
    }
    return { chunkBytes, steps };
  }

  /**
   * Marks everything from `expected` on as unsent. Returns false if that report is no longer here.
   * If only the outcome remains, it takes the number `expected` of a dropped report.
   */
  resendFrom(expected: number): boolean {
    this.#beginRound();
    const first = this.#entries[0];
    if (!first) return !this.#ended;
    if (first.header.seq === expected) return true;
    if (!this.#muted || first.header.kind !== 'outcome') return false;
    this.#entries[0] = { ...first, header: { ...first.header, seq: expected }, report: undefined };
    return true;
  }

  /** Only the outcome is still wanted: drops all other reports, now and later. */
  mute(): void {
    this.#beginRound();
    this.#muted = true;
    this.#keep((entry) => entry.header.kind === 'outcome');
  }

  /**
   * The platform rejected the report with this number as invalid: drops it and all later ones, and
   * delivers `verdict` as the outcome under this number. Returns false if `verdict` was rejected
   * too.
   */
  replaceFrom(seq: number, verdict: Outcome): boolean {
    if (this.#verdict && this.#ended) return false;
    this.#beginRound();
    this.#muted = true;
    this.#verdict = verdict;
    this.#keep((entry) => entry.header.seq < seq);
    this.#nextSeq = seq;
    if (this.#ended) {
      this.#ended = false;
      this.addOutcome({ outcome: verdict, output: undefined });
    }
    return true;
  }

  #beginRound(): void {
    this.#round++;
    this.#sent = 0;
  }

  #keep(wanted: (entry: ReportEntry) => boolean): void {
    this.#entries = this.#entries.filter(wanted);
    this.#bytes = sum(this.#entries.map((entry) => entry.bytes));
    this.#openChunks = undefined;
    this.#openProgress = undefined;
    this.#openPause = undefined;
    this.#openLog = undefined;
  }

  #number(): TracedLeaseRef & { seq: number } {
    return { ...this.#base, seq: this.#nextSeq++ };
  }

  #push<Header extends ReportHeader>(header: Header, body: Uint8Array): ReportEntry<Header> {
    const entry: ReportEntry<Header> = { header, pieces: [body], bytes: 0, report: undefined };
    this.#entries.push(entry);
    this.#grow(entry, body.length + measureError(header));
    return entry;
  }

  #grow(entry: ReportEntry, bytes: number): void {
    entry.bytes += bytes;
    this.#bytes += bytes;
  }

  #seal(entry: ReportEntry): Report {
    if (entry === this.#openChunks) this.#openChunks = undefined;
    if (entry === this.#openProgress) this.#openProgress = undefined;
    if (entry === this.#openPause) this.#openPause = undefined;
    if (entry === this.#openLog) this.#openLog = undefined;
    const [only] = entry.pieces;
    const body =
      entry.pieces.length === 1 && only ? only : Buffer.concat(entry.pieces, entry.bytes);
    entry.pieces = [body];
    return { ...entry.header, body };
  }
}

/** The texts of an outcome's error are in the header and can be the larger part of a report. */
function measureError(header: ReportHeader): number {
  const error = header.kind === 'outcome' && 'error' in header.outcome && header.outcome.error;
  if (!error) return 0;
  return error.message.length + (error.stack?.length ?? 0) + (error.stuck?.stack?.length ?? 0);
}

function sum(numbers: readonly number[]): number {
  let total = 0;
  for (const number of numbers) total += number;
  return total;
}

function countLines(lines: Uint8Array): number {
  let count = 0;
  for (const byte of lines) if (byte === NEWLINE) count++;
  return lines.at(-1) === NEWLINE ? count : count + 1;
}
