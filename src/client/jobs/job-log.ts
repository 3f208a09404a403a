// Reads what a job's handler logged, once or until the job ends.
import { sleep, systemClock } from '../../base/clock.ts';
import { isTerminal, JOB_STATUSES, type JobStatus } from '../../wire/job/job.ts';
import { STREAM_HEADERS } from '../../wire/routes/routes.ts';
import { type ApiCaller, UnreachableError } from '../api-caller.ts';

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
