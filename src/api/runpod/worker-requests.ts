// Reads the requests of RunPod's workers: their URLs, by hand, because these workers append "&name=value" to their URL
// templates with or without a "?"; and their bodies: a chunk, progress, or the end of an attempt. Payload bytes are cut
// out unchanged. No body is rejected, because these workers drop a rejected result.
import { isUtf8 } from 'node:buffer';
import type { IncomingHttpHeaders } from 'node:http';
import { runInSlices } from '../../base/slices.ts';
import { encodeJsonChunk, MAX_METRICS_BYTES, type Metrics } from '../../wire/chunk/chunk.ts';
import { RESERVED_METRICS } from '../../wire/chunk/chunk-pieces.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import { ERROR_CODES, LIMITS } from '../../wire/job/job.ts';
import { isPlainObject } from '../../wire/json.ts';
import {
  MAX_JOB_ID_LENGTH,
  RELEASE_REASONS,
  type ReleaseReason,
} from '../../wire/link/worker-link.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import { leaveOut } from '../body/body.ts';
import { countElements, findMember, JsonBoundError, JsonDepthError } from '../body/json-check.ts';

const ENDPOINTS = `${RUNPOD_BASE}/v2/`;
/** Default ping interval of the protocol, ms. */
const DEFAULT_PING_MS = 10_000;
const MAX_PING_MS = 600_000;
/** Limit of `take`. */
const MAX_BATCH = 1_000;
/** A URL within the 16 KB limit of headers holds fewer real IDs, of 36 characters each. */
const MAX_NAMED_JOBS = 500;

/** Form of this platform's job IDs: UUID version 7. */
const JOB_ID_FORM = /^(sync-)?[0-9a-f]{8}-[0-9a-f]{4}-7/;
/** The client whose headers and `job_in_progress` have the meaning that is used here. */
const KNOWN_CLIENT = /^RunPod-Python-SDK\//;
const KNOWN_CLIENT_ATTEMPTS = 3;

export interface WorkerCall {
  /** The worker's ID in the queue. */
  workerId: string;
  /** The job's name as the platform gave it; undefined if the path has none. */
  jobName: string | undefined;
  params: URLSearchParams;
}

/** `url` is the request's URL, `verb` the segment before the worker's ID. */
export function readWorkerCall(url: string, verb: string): WorkerCall {
  const marker = `/${verb}/`;
  // An endpoint may have the name of a verb.
  const endpointAt = url.indexOf(ENDPOINTS) + ENDPOINTS.length;
  const rest = url.slice(url.indexOf(marker, endpointAt) + marker.length);
  const end = rest.search(/[?&]/);
  const path = end < 0 ? rest : rest.slice(0, end);
  const query = end < 0 ? '' : rest.slice(end + 1).replaceAll('?', '&');
  const [worker = '', job] = path.split('/').map(decode);
  return {
    workerId: toWorkerId(worker),
    jobName: job || undefined,
    params: new URLSearchParams(query),
  };
}

/** Number of jobs that a take requests; default one. */
export function readBatchSize({ params }: WorkerCall): number {
  const size = Number(params.get('batch_size') ?? '1');
  return Number.isInteger(size) && size >= 1 ? Math.min(size, MAX_BATCH) : 1;
}

/** Interval from this platform's URL template, ms. */
export function readPingMs({ params }: WorkerCall): number {
  const every = Number(params.get('every') ?? '');
  return Number.isInteger(every) && every >= 1 ? Math.min(every, MAX_PING_MS) : DEFAULT_PING_MS;
}

/** The jobs that a ping names, each once. Each costs a lookup, hence the limit. */
export function readNamedJobs({ params }: WorkerCall): string[] {
  const named = params.getAll('job_id').flatMap((ids) => ids.split(','));
  return [...new Set(named.filter(Boolean))].slice(0, MAX_NAMED_JOBS);
}

/** Facts about a worker's process that its take reveals. */
export interface TakeSigns {
  /** It runs no job. */
  isIdle: boolean;
  /** It runs no job and has posted nothing yet: it has just started, or has never had a job. */
  isNew: boolean;
}

/**
 * runpod-python sets `X-Request-ID` with each chunk and result that it posts, and from then on also
 * sends it with its polls. Proxies use the header for IDs of their own, so only the form of a job
 * ID counts.
 */
export function readTakeSigns({ params }: WorkerCall, headers: IncomingHttpHeaders): TakeSigns {
  const isIdle = isRunpodPython(headers) && params.get('job_in_progress') === '0';
  return { isIdle, isNew: isIdle && !JOB_ID_FORM.test(String(headers['x-request-id'] ?? '')) };
}

export function isRunpodPython(headers: IncomingHttpHeaders): boolean {
  return KNOWN_CLIENT.test(headers['user-agent'] ?? '');
}

/** How often a worker sends a chunk that gets 5xx answers. Unlimited for clients other than runpod-python. */
export function readMaxAttempts(headers: IncomingHttpHeaders): number {
  return isRunpodPython(headers) ? KNOWN_CLIENT_ATTEMPTS : Number.POSITIVE_INFINITY;
}

/** The first attempt has the client's job ID, because handlers use it in file names and logs. */
export function formatAttemptId({ attempt, jobId }: { jobId: string; attempt: number }): string {
  return attempt === 1 ? jobId : `${jobId}-a${attempt}`;
}

/** Undefined for a name that this platform cannot have given. */
export function readAttemptName(name: string): { jobId: string; attempt: number } | undefined {
  const parts = /^(.+)-a(\d{1,9})$/.exec(name);
  const jobId = parts?.[1] ?? name;
  if (jobId === '' || jobId.length > MAX_JOB_ID_LENGTH) return undefined;
  return { jobId, attempt: Number(parts?.[2] ?? '1') };
}

/** The placeholder of a URL template that was not filled in: any number of workers use this ID. */
export function isSharedId(workerId: string): boolean {
  return workerId.includes('RUNPOD_POD_ID');
}

function toWorkerId(name: string): string {
  const plain = name.replaceAll(/[^A-Za-z0-9._-]/g, '-').replace(/^[^A-Za-z0-9]+/, '');
  return plain.slice(0, 128) || 'unnamed';
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export type WorkerReport =
  | { kind: 'chunks'; pieces: Uint8Array[] }
  | { kind: 'progress'; value: Uint8Array }
  /** `output` undefined: the chunks are the output. */
  /** `yields`: how many values a generator has yielded, if the output holds them. */
  | { kind: 'completed'; output: Uint8Array | undefined; yields?: number | undefined }
  | { kind: 'failed'; error: AttemptError; retry: 'default' | 'never' }
  /** A release, in the form that Millrace's own workers use here: the protocol has none. */
  | { kind: 'released'; reason: ReleaseReason };

export interface WorkerPost {
  report: WorkerReport;
  /** The worker asks for a new process in its place. */
  recycle: boolean;
}

/** Longest text of an error, because errors are stored in the job's row. */
const MAX_TEXT_CHARS = 32_000;

/** Most bytes besides the output: errors with their tracebacks. */
const MAX_BESIDE_OUTPUT_BYTES = 1_048_576;

const TRACEBACK = '\ntraceback: ';
const NULL = Buffer.from('null');
const EMPTY_OBJECT = Buffer.from('{}');

/** `owner`: large bodies of one owner are scanned one after the other. */
export interface ResultSource {
  owner: string;
  /** Most levels of arrays and objects in an output. */
  maxJsonDepth: number;
  /** From the URL. */
  isStream: boolean;
}

/** Reads the body of a job-stream: one yield, as one chunk or the pieces of one. */
export async function readYield(
  body: Buffer,
  source: Omit<ResultSource, 'isStream'>,
): Promise<WorkerReport> {
  const parsed = await parseResult(body, source);
  if (parsed instanceof Error) return refuseResult(parsed);
  const { output = NULL, rest } = parsed;
  return { kind: 'chunks', pieces: encodeJsonChunk(output, readMetrics(rest['metrics'])) };
}

/** Reads the body of a job-done. */
export async function readResult(
  body: Buffer,
  { isStream, ...source }: ResultSource,
): Promise<WorkerPost> {
  const parsed = await parseResult(body, source);
  if (parsed instanceof Error) return { report: refuseResult(parsed), recycle: false };
  const report = toReport(parsed, isStream);
  if (isStream && report.kind === 'completed' && parsed.output) {
    report.yields = await runInSlices(source.owner, countElements(parsed.output));
  }
  return { report, recycle: parsed.rest['stopPod'] === true };
}

function toReport({ output, rest }: ParsedResult, isStream: boolean): WorkerReport {
  const { error, status } = rest;
  if (status === 'IN_PROGRESS') return { kind: 'progress', value: boundProgress(output ?? NULL) };
  if (error || status === 'FAILED') return readFailure(error);
  if (isStream && output && /^\[\s*\]$/.test(output.toString('latin1', 0, 1_000))) {
    return { kind: 'completed', output: undefined };
  }
  // These workers omit the member for a handler that returned an empty dict.
  const bytes = output ?? EMPTY_OBJECT;
  if (bytes.length > LIMITS.outputBytes) return refuseSize(bytes.length);
  return { kind: 'completed', output: bytes };
}

/** Not rejected: progress is no reason to lose the job. */
function boundProgress(value: Buffer): Buffer {
  const limit = LIMITS.progressBytes;
  if (value.length <= limit) return value;
  return Buffer.from(JSON.stringify(`progress of ${value.length} bytes, the limit is ${limit}`));
}

export function refuseSize(bytes: number): WorkerReport {
  const limit = LIMITS.outputBytes;
  return refuse('output_too_large', `the output is ${bytes} bytes, the limit is ${limit}`);
}

/**
 * Fails an attempt whose output is its chunks if some may be lost: these workers drop a chunk that
 * they cannot deliver. A client that has received chunks must not get them again.
 */
export function refuseHole({ isShown }: { isShown: boolean }): WorkerReport {
  const message =
    'chunks may be missing: the platform did not receive all that the worker sent during the attempt';
  const retry = isShown ? 'never' : 'default';
  return { kind: 'failed', error: { code: 'output_incomplete', message }, retry };
}

/** Errors for which a retry would not help. */
const FINAL: ReadonlySet<string> = new Set(['input_invalid', 'output_invalid', 'output_too_large']);

function readFailure(error: unknown): WorkerReport {
  const described = readError(error);
  const errorCode = readDetails(error)?.['error_code'];
  const reason = RELEASE_REASONS.find((known) => errorCode === `released_${known}`);
  if (reason) return { kind: 'released', reason };
  return {
    kind: 'failed',
    error: described,
    retry: FINAL.has(described.code) ? 'never' : 'default',
  };
}

/** Reads an `error`: JSON as text, plain text, or any value of the handler. */
export function readError(error: unknown): AttemptError {
  const { message, stack, type, ...rest } = describeError(error);
  return {
    ...rest,
    message: cap(message),
    ...(type !== undefined && { type: cap(type) }),
    ...(stack !== undefined && { stack: cap(stack) }),
  };
}

function cap(text: string): string {
  const more = text.length - MAX_TEXT_CHARS;
  return more <= 0 ? text : `${text.slice(0, MAX_TEXT_CHARS)}… (${more} more characters)`;
}

function describeError(error: unknown): AttemptError {
  const text = typeof error === 'string' ? error : JSON.stringify(error ?? 'no reason was given');
  const details = readDetails(error);
  const raised = details?.['error_message'];
  if (details && typeof raised === 'string') return describeRaised(details, raised);
  const refusal = details && describeRefusal(details);
  if (refusal) return refusal;
  // Format of generator errors: "handler: <message>
  // traceback: Traceback (most recent call last): …".
  const at = text.indexOf(TRACEBACK);
  if (at < 0) return { code: 'handler_error', message: text };
  // Not matched together with the white space, which would take quadratic time on a long run of it.
  const message = text.slice(0, at).trimEnd();
  const stack = text.slice(at + TRACEBACK.length);
  return { code: 'handler_error', message: message.replace(/^handler: /, ''), stack };
}

function readDetails(error: unknown): Record<string, unknown> | undefined {
  const details = typeof error === 'string' ? parseObject(toJson(error)) : error;
  return isPlainObject(details) && !(details instanceof Error) ? details : undefined;
}

/** A string without an end takes the rest: searching for its end at each later quote would take quadratic time. */
const PYTHON_TOKEN =
  /'([^'\\]*(?:\\.[^'\\]*)*)(?:'|\\?$)|"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?$)|\b(?:None|True|False)\b/gs;
const PYTHON_WORDS: Record<string, string> = { None: 'null', True: 'true', False: 'false' };

/** runpod-python sends the text of a dict if a generator yields one as its error. */
function toJson(text: string): string {
  if (!text.startsWith("{'")) return text;
  return text.replaceAll(PYTHON_TOKEN, (token, single?: string, double?: string) => {
    const inner = single ?? double;
    if (inner === undefined) return PYTHON_WORDS[token] ?? token;
    const plain = inner.replaceAll(/\\(?:'|x(..))|"/g, (found, hex?: string) =>
      hex === undefined ? (found === '"' ? '\\"' : "'") : `\\u00${hex}`,
    );
    return `"${plain}"`;
  });
}

/** Statuses after which a client may send the same request again. */
const PASSING: ReadonlySet<number> = new Set([408, 409, 425, 429]);

/** The error of a model server, such as vLLM's, that refuses the request: each attempt would fail. */
function describeRefusal(details: Record<string, unknown>): AttemptError | undefined {
  const { error } = details;
  const { code, message, type } = isPlainObject(error) ? error : details;
  if (typeof message !== 'string' || typeof type !== 'string') return undefined;
  const status = Number(code);
  const isRefusal = status >= 400 && status < 500 && !PASSING.has(status);
  return isRefusal ? { code: 'input_invalid', message, type } : undefined;
}

function describeRaised(details: Record<string, unknown>, message: string): AttemptError {
  const { error_code: named, error_traceback: stack, error_type: type, event } = details;
  const known = ERROR_CODES.find((code) => code === named) ?? 'handler_error';
  const code = event === 'prestart_failed' ? 'handler_not_loaded' : known;
  const described: AttemptError = { code, message };
  // "<class 'RuntimeError'>"
  if (typeof type === 'string') described.type = /^<class '(.+)'>$/.exec(type)?.[1] ?? type;
  if (typeof stack === 'string') described.stack = stack;
  return described;
}

function refuse(code: AttemptError['code'], message: string): WorkerReport {
  return { kind: 'failed', error: { code, message }, retry: 'never' };
}

function refuseResult(error: Error): WorkerReport {
  const { message } = error;
  const isTooLarge = error instanceof JsonBoundError && !(error instanceof JsonDepthError);
  if (!isTooLarge) return refuse('output_invalid', message);
  return { kind: 'failed', error: { code: 'handler_error', message }, retry: 'default' };
}

interface ParsedResult {
  /** JSON bytes, unchanged. */
  output: Buffer | undefined;
  /** The object with an empty value as its output. */
  rest: Record<string, unknown>;
}

async function parseResult(
  body: Buffer,
  { maxJsonDepth, owner }: Omit<ResultSource, 'isStream'>,
): Promise<ParsedResult | Error> {
  if (!isUtf8(body)) return new Error('the result that the worker posted is not UTF-8');
  const search = {
    name: 'output',
    maxBesideBytes: MAX_BESIDE_OUTPUT_BYTES,
    maxDepth: maxJsonDepth,
  };
  const found = await runInSlices(owner, findMember(body, search)).catch((error: unknown) => {
    if (error instanceof JsonBoundError) return error;
    throw error;
  });
  if (found instanceof Error) return found;
  if (!found) return new Error('what the worker sent is not JSON; NaN and Infinity are not');
  const { value: output } = found;
  const rest = parseObject((output ? leaveOut(body, output) : body).toString('utf8'));
  return rest instanceof Error ? rest : { output, rest };
}

function parseObject(text: string): Record<string, unknown> | Error {
  try {
    const value: unknown = JSON.parse(text);
    return isPlainObject(value) ? value : new Error('what the worker sent is no JSON object');
  } catch {
    return new Error('what the worker sent is not JSON; NaN and Infinity are not');
  }
}

/** Only numbers count; these workers send metrics only in old versions. */
function readMetrics(given: unknown): Metrics {
  if (!isPlainObject(given)) return {};
  const metrics: Metrics = {};
  for (const [name, value] of Object.entries(given)) {
    const isReserved = RESERVED_METRICS.some((reserved) => reserved === name);
    if (typeof value === 'number' && Number.isFinite(value) && !isReserved) metrics[name] = value;
  }
  return JSON.stringify(metrics).length * 3 > MAX_METRICS_BYTES ? {} : metrics;
}
