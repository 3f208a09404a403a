// Validates the bodies of workers' reports before the queue stores them. Outputs, chunks and
// progress are inserted unparsed into JSON responses, so each must be one JSON value.
import { isUtf8 } from 'node:buffer';
import { runInSlices } from '../base/slices.ts';
import { MAX_METRICS_BYTES, type Metrics } from '../wire/chunk/chunk.ts';
import {
  BOUNDARY,
  HEAD,
  METRICS_KEY,
  PIECE_BOUNDARY,
  viewBuffer,
} from '../wire/chunk/chunk-bytes.ts';
import { ENCODING, RESERVED_METRICS } from '../wire/chunk/chunk-pieces.ts';
import { LIMITS } from '../wire/job/job.ts';
import { isPlainObject } from '../wire/json.ts';
import { CLOSE_BRACE, CLOSE_BRACKET, COMMA, OPEN_BRACKET, QUOTE } from '../wire/json-bytes.ts';
import type { Report, WorkerLink } from '../wire/link/worker-link.ts';
import { ProblemError } from '../wire/problem.ts';
import { checkJson, JsonDepthError } from './body/json-check.ts';

/** Total size of small bodies checked before a pause, each with its overhead. */
const SLICE_BYTES = 131_072;
const OVERHEAD_BYTES = 256;
/** `part`, `parts` and `encoding` are added to the handler's own metrics. */
const PIECE_METRICS_BYTES = 100;
const HEAD_BYTES = Buffer.from(HEAD);
const NO_PIECE: Metrics = {};
const NO_METRICS = Buffer.from(`${METRICS_KEY}{}}`);

export interface ReportCheckOptions {
  /** Reports of one owner are checked one after the other. */
  owner: string;
  /** Returns the ID of the endpoint for whose children the caller's handler asks. @throws ProblemError if it may not start any there */
  resolveChild: (idOrName: string) => string;
  /** Levels of arrays and objects in an output, a chunk's output or progress. */
  maxDepth: number;
}

/** Wraps `link`. `report` throws ProblemError `invalid` that names the report. */
export function checkReports(link: WorkerLink, options: ReportCheckOptions): WorkerLink {
  const { owner } = options;
  return {
    ...link,
    async report(request) {
      const reports = await runInSlices(owner, checkAll(request.reports, options));
      return link.report({ ...request, reports });
    },
  };
}

/** A fault in a report's body. The message begins with the path below the report. */
class BodyFault extends Error {}

/** @returns the reports, with outputs trimmed. Pauses after each slice. */
function* checkAll(
  reports: readonly Report[],
  options: ReportCheckOptions,
): Generator<void, Report[]> {
  const checked: Report[] = [];
  for (const [index, report] of reports.entries()) {
    try {
      checked.push(yield* checkOne(report, options));
    } catch (error) {
      if (!(error instanceof BodyFault)) throw error;
      const message = `reports[${index}].${error.message}`;
      throw new ProblemError('invalid', `A report is invalid: ${message}`, { errors: [message] });
    }
  }
  return checked;
}

function* checkOne(
  report: Report,
  { maxDepth, resolveChild }: ReportCheckOptions,
): Generator<void, Report> {
  const body = viewBuffer(report.body);
  if (report.kind === 'chunks') {
    yield* checkChunks(body, report.sizes, maxDepth);
    return report;
  }
  if (!isValue(report) || body.length === 0) return report;
  checkText(body);
  yield* requireJson(body, 'body', maxDepth);
  if (isWait(report)) return { ...report, body: resolveChildren(body, resolveChild) };
  const trimmed = trimSpace(body);
  return trimmed.length === body.length ? report : { ...report, body: trimmed };
}

function isValue(report: Report): boolean {
  if (report.kind !== 'outcome') return report.kind === 'progress' || report.kind === 'step';
  if (isWait(report)) return true;
  const { outcome } = report;
  return outcome.kind === 'completed' && outcome.output === 'value';
}

function isWait(report: Report): boolean {
  return report.kind === 'outcome' && report.outcome.kind === 'waiting';
}

/** Puts IDs in the place of names. The queue checks everything else, and what is too large. */
function resolveChildren(body: Buffer, resolveChild: (idOrName: string) => string): Buffer {
  if (body.length > LIMITS.waitBytes) return body;
  // Only parsing finds each `endpoint`: its name may be written with escapes.
  const waits: unknown = JSON.parse(body.toString());
  if (!Array.isArray(waits)) return body;
  const resolved = waits.map((wait: unknown) => {
    if (!isPlainObject(wait) || typeof wait['endpoint'] !== 'string') return wait;
    return { ...wait, endpoint: resolveChild(wait['endpoint']) };
  });
  return Buffer.from(JSON.stringify(resolved));
}

function* checkChunks(body: Buffer, sizes: readonly number[], maxDepth: number): Generator<void> {
  checkText(body);
  const bytes = sizes.reduce((sum, size) => sum + size, sizes.length - 1);
  // The queue rejects such a report, with the numbers.
  if (bytes !== body.length) return;
  let at = 0;
  let sinceYield = 0;
  let before: Metrics = NO_PIECE;
  for (const [index, size] of sizes.entries()) {
    const place = `body: chunk ${index}`;
    if (index > 0 && body[at - 1] !== COMMA) throw new BodyFault(`${place}: no comma before it`);
    const metrics = yield* checkChunk(body.subarray(at, at + size), place, maxDepth);
    // The pieces before a report's first chunk are in an earlier report.
    if (index > 0 && !follows(metrics, before)) {
      throw new BodyFault(`${place}: is not the next piece of a split output`);
    }
    before = metrics;
    at += size + 1;
    sinceYield += size + OVERHEAD_BYTES;
    if (sinceYield < SLICE_BYTES) continue;
    sinceYield = 0;
    yield;
  }
}

/** Whether a chunk may come right after another one: all pieces of a value follow each other. */
function follows(metrics: Metrics, before: Metrics): boolean {
  const { part: last = 0, parts = 0 } = before;
  if (last + 1 >= parts) return (metrics['part'] ?? 0) === 0;
  const { encoding, part } = metrics;
  return part === last + 1 && metrics['parts'] === parts && encoding === before['encoding'];
}

/** Chunks are taken apart by this layout, without parsing them. @returns the metrics */
function* checkChunk(chunk: Buffer, place: string, maxDepth: number): Generator<void, Metrics> {
  const boundary = chunk.lastIndexOf(BOUNDARY);
  const isFramed =
    boundary > HEAD.length &&
    chunk.at(-1) === CLOSE_BRACE &&
    HEAD_BYTES.equals(chunk.subarray(0, HEAD.length));
  if (!isFramed) throw new BodyFault(`${place}: must be {"output":…,"metrics":{…}}`);
  const output = chunk.subarray(HEAD.length, boundary);
  yield* requireJson(output, `${place}: output`, maxDepth);
  const end = chunk.subarray(boundary);
  if (end.equals(NO_METRICS)) return NO_PIECE;
  const metrics = readMetrics(end.subarray(METRICS_KEY.length, -1), `${place}: metrics`);
  if (RESERVED_METRICS.some((name) => Object.hasOwn(metrics, name))) {
    const isFirst = PIECE_BOUNDARY.equals(end.subarray(0, PIECE_BOUNDARY.length));
    if (!isFirst || !isPiece(metrics) || !isPieceOutput(output, metrics['encoding']))
      throw new BodyFault(`${place}: is not a piece of a split output`);
  }
  return metrics;
}

function readMetrics(json: Buffer, place: string): Record<string, number> {
  if (json.length > MAX_METRICS_BYTES + PIECE_METRICS_BYTES) {
    throw new BodyFault(`${place}: more than ${MAX_METRICS_BYTES} bytes`);
  }
  const metrics = parseMetrics(json);
  if (metrics) return metrics;
  throw new BodyFault(`${place}: must be an object of finite numbers`);
}

function parseMetrics(json: Buffer): Record<string, number> | undefined {
  try {
    const value: unknown = JSON.parse(json.toString('utf8'));
    return isNumbers(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isNumbers(value: unknown): value is Record<string, number> {
  return isPlainObject(value) && Object.values(value).every((each) => Number.isFinite(each));
}

function isPiece({ encoding, part, parts }: Record<string, number>): boolean {
  if (part === undefined || parts === undefined) return false;
  const areCounts = Number.isSafeInteger(part) && Number.isSafeInteger(parts);
  const isKnown = Object.values(ENCODING).some((known) => known === encoding);
  return areCounts && isKnown && part >= 0 && part < parts;
}

/** Pieces are joined by the text between their quotes or brackets. */
function isPieceOutput(output: Buffer, encoding: number | undefined): boolean {
  const [open] = output;
  const close = output.at(-1);
  if (encoding !== ENCODING.array) return open === QUOTE && close === QUOTE;
  const isEmpty = trimSpace(output.subarray(1, -1)).length === 0;
  return open === OPEN_BRACKET && close === CLOSE_BRACKET && !isEmpty;
}

function checkText(body: Buffer): void {
  if (!isUtf8(body)) throw new BodyFault('body: is not UTF-8');
}

function* requireJson(json: Buffer, place: string, maxDepth: number): Generator<void> {
  try {
    if (yield* checkJson(json, { maxDepth })) return;
  } catch (error) {
    if (!(error instanceof JsonDepthError)) throw error;
    throw new BodyFault(`${place}: must be nested at most ${maxDepth} levels deep`);
  }
  throw new BodyFault(`${place}: must be one JSON value`);
}

function trimSpace(json: Buffer): Buffer {
  let start = 0;
  let end = json.length;
  while (start < end && isSpace(json[start])) start++;
  while (end > start && isSpace(json[end - 1])) end--;
  return json.subarray(start, end);
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}
