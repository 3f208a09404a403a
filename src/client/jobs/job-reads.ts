// Reads what becomes of a job, across outages and new attempts: its chunks, its log and its end.
import { sleep, systemClock } from '../../base/clock.ts';
import type { Chunk } from '../../wire/chunk/chunk.ts';
import { ChunkJoiner } from '../../wire/chunk/chunk-pieces.ts';
import { isTerminal, JOB_STATUSES, type JobStatus } from '../../wire/job/job.ts';
import type { JobRecord } from '../../wire/job/job-records.ts';
import type { Json } from '../../wire/json.ts';
import { JOB_ROUTES, STREAM_HEADERS } from '../../wire/routes/routes.ts';
import { type ApiCaller, callOf, parseAnswer, UnreachableError } from '../api-caller.ts';

export interface StreamChunk<Output = Json> extends Chunk<Output> {
  /** `<attempt>.<n>`: pass it as `after` to continue after this chunk. */
  position: string;
  /** Attempt of the chunk. If it grows, the job restarted, and chunks of earlier attempts are void. */
  attempt: number;
}

export interface StreamOptions {
  /** Position of the last known chunk. Default: the start. */
  after?: string;
  /**
   * `joined`: values as the handler yielded them, however large. `raw`: chunks of at most 1,000,000
   * bytes, for `reassemble`. Default `joined`. A position within a split value needs `raw`.
   */
  pieces?: 'joined' | 'raw';
  /** How long one request waits for the next chunk, ms; 0 to 300,000. Default: the platform's 10,000. */
  waitMs?: number;
  signal?: AbortSignal;
}

interface ChunkPage {
  chunks: Chunk[];
  /** Value of `after` for the next page. */
  next: string;
  /** Attempt and number of the last chunk. */
  attempt: number;
  n: number;
  isReset: boolean;
  isOver: boolean;
}

/**
 * Reads all chunks, page by page from a position. `Output`: type of the handler's chunks, which the caller knows and
 * the platform does not check.
 */
export async function* readStream<Output>(
  caller: ApiCaller,
  path: string,
  options: StreamOptions,
): AsyncGenerator<StreamChunk<Output>, void, void> {
  const { pieces = 'joined' } = options;
  const joiner = new ChunkJoiner();
  let after = options.after ?? '0';
  for (;;) {
    const page = await readPage(caller, path, { ...options, after });
    if (page.isReset) joiner.reset();
    const first = page.n - page.chunks.length + 1;
    for (const [index, piece] of page.chunks.entries()) {
      const chunk = pieces === 'raw' ? piece : joiner.push(piece);
      const position = `${page.attempt}.${first + index}`;
      if (!chunk) continue;
      const output = chunk.output as Output;
      yield { ...chunk, output, position, attempt: page.attempt };
    }
    if (page.isOver) return;
    after = page.next;
  }
}

async function readPage(
  caller: ApiCaller,
  path: string,
  options: StreamOptions,
): Promise<ChunkPage> {
  const { body, headers } = await caller.answer({
    path,
    query: { after: options.after, wait: options.waitMs },
    signal: options.signal,
  });
  const chunks = parseAnswer<Chunk[]>(body);
  const next = headers.get(STREAM_HEADERS.next) ?? '';
  // Before the first chunk, the position is only the attempt.
  const [, attempt, n = -1] = /^(\d+)(?:\.(-?\d+))?$/.exec(next) ?? [];
  if (attempt === undefined) {
    throw new UnreachableError(`the response has no position in ${STREAM_HEADERS.next}: ${next}`);
  }
  const status = JOB_STATUSES.find((known) => known === headers.get(STREAM_HEADERS.status));
  return {
    chunks,
    next,
    attempt: Number(attempt),
    n: Number(n),
    isReset: headers.get(STREAM_HEADERS.reset) === 'true',
    isOver: chunks.length === 0 && status !== undefined && isTerminal(status),
  };
}

export interface LogOptions {
  /** Number of known bytes: `next` of an earlier page. Default 0. */
  after?: number;
  signal?: AbortSignal;
}

export interface LogPage {
  /** NDJSON: whole lines, each an object with `level`, `time` (Unix ms) and `msg`. */
  lines: string;
  /** `after` for the next page. */
  next: number;
  /** Status of the job when the page was read. */
  status: JobStatus;
  /** A final line with the number of dropped lines, if any; while following, after the last page. */
  note: string;
}

/** Poll interval of a running job's log, ms: the platform has no long poll for logs. */
const FOLLOW_EVERY_MS = 500;

export async function readLogPage(
  caller: ApiCaller,
  path: string,
  { after = 0, signal }: LogOptions,
): Promise<LogPage> {
  const { body, headers } = await caller.answer({ path, query: { after }, signal });
  const next = Number(headers.get(STREAM_HEADERS.next) ?? Number.NaN);
  const status = JOB_STATUSES.find((known) => known === headers.get(STREAM_HEADERS.status));
  if (!Number.isSafeInteger(next) || status === undefined) {
    throw new UnreachableError('the response does not give the next position of the log');
  }
  // Bytes after the log itself describe the log and do not count as part of it.
  const bytes = new TextEncoder().encode(body);
  const decode = (part: Uint8Array) => new TextDecoder().decode(part);
  const ownBytes = next - after;
  const lines = decode(bytes.subarray(0, ownBytes));
  return { lines, next, status, note: decode(bytes.subarray(ownBytes)) };
}

export async function* followLog(
  caller: ApiCaller,
  path: string,
  options: LogOptions,
): AsyncGenerator<LogPage, void, void> {
  let after = options.after ?? 0;
  for (;;) {
    const page = await readLogPage(caller, path, { ...options, after });
    const isOver = page.lines === '' && isTerminal(page.status);
    if (page.lines !== '' || (isOver && page.note !== '')) {
      yield { ...page, note: isOver ? page.note : '' };
    }
    if (isOver) return;
    if (page.lines === '') await sleep(systemClock, FOLLOW_EVERY_MS, options.signal);
    options.signal?.throwIfAborted();
    after = page.next;
  }
}

/** Wait of one request, ms. Many proxies cut a request that has been silent for 60 s. */
const REQUEST_WAIT_MS = 30_000;

/**
 * Waits by requests that the platform answers when the job ends. @throws ApiError, UnreachableError, the signal's
 * reason
 */
export async function waitForEnd<Output>(
  caller: ApiCaller,
  job: { endpoint: string; job: string },
  signal: AbortSignal | undefined,
): Promise<JobRecord<Output>> {
  for (;;) {
    const record = await caller.json<JobRecord<Output>>({
      ...callOf(JOB_ROUTES.getJobStatus, job),
      query: { wait: REQUEST_WAIT_MS },
      signal,
    });
    if (isTerminal(record.status)) return record;
  }
}
