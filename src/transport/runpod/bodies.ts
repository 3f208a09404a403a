// Encodes and decodes the bodies of RunPod's worker protocol. Payloads are JSON bytes that are
// inserted unparsed; only incoming jobs are parsed, because they are one JSON value.

import { HEAD, joinOutputs, METRICS_KEY, viewBuffer } from '../../wire/chunk/chunk-bytes.ts';
import { QUOTE } from '../../wire/json-bytes.ts';
import type { Outcome, ReleaseReason } from '../../wire/link/worker-link.ts';

/** Largest result that the platform is known to accept, bytes. */
const MAX_JOINED_BYTES = 10_000_000;
const MAX_CHUNK_BYTES = 1_000_000;
const NO_METRICS = Buffer.from(`${METRICS_KEY}{}}`);
const BRACE = Buffer.from('}');
const HEAD_BYTES = Buffer.from(HEAD);

/** Facts about the reporting worker, for finding the cause of a failure. */
export interface ReporterFacts {
  hostname: string;
  workerId: string;
  /** Version of the package. */
  version: string;
}

export interface FailureFacts {
  code: string;
  message: string;
  type?: string | undefined;
  stack?: string | undefined;
}

/** The chunks of one attempt, from which its output is built; too large outputs are dropped. */
export class StreamedOutput {
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #isWhole = true;

  /** `first` is the number of the first chunk within the attempt. */
  add(first: number, chunks: readonly Uint8Array[]): void {
    // An earlier process of this worker has posted the chunks before.
    if (this.#isWhole && first !== this.#chunks.length) this.#discard();
    for (const chunk of chunks) {
      this.#bytes += chunk.length;
      if (this.#bytes > MAX_JOINED_BYTES) this.#discard();
      if (this.#isWhole) this.#chunks.push(chunk);
    }
  }

  /** Returns the JSON array of all yielded values; empty if it would be too large or is unknown. */
  join(): Uint8Array {
    return (this.#isWhole && joinOutputs(this.#chunks, MAX_JOINED_BYTES)) || Buffer.from('[]');
  }

  #discard(): void {
    this.#isWhole = false;
    this.#chunks = [];
  }
}

/** One post of a stream, and the number of chunks in it. */
interface StreamPost {
  body: Uint8Array;
  count: number;
}

/**
 * Returns the next post of the chunks from `at` on. It has one chunk. If texts may be joined, it
 * has all consecutive texts without metrics.
 */
export function composeStreamPost(
  chunks: readonly Uint8Array[],
  { at, joinsText }: { at: number; joinsText: boolean },
): StreamPost | undefined {
  const first = chunks[at];
  if (first === undefined) return undefined;
  const texts: Uint8Array[] = [];
  let bytes = 0;
  for (let index = at; joinsText && index < chunks.length; index++) {
    const text = readText(chunks[index]);
    if (text === undefined || bytes + text.length > MAX_CHUNK_BYTES / 2) break;
    texts.push(text);
    bytes += text.length;
  }
  if (texts.length < 2) return { body: stripMetrics(first), count: 1 };
  const quote = Buffer.of(QUOTE);
  const body = Buffer.concat([HEAD_BYTES, quote, ...texts, quote, BRACE]);
  return { body, count: texts.length };
}

/** The text between the quotes, if the chunk is only a text. */
function readText(chunk: Uint8Array | undefined): Uint8Array | undefined {
  if (chunk === undefined || chunk[HEAD_BYTES.length] !== QUOTE) return undefined;
  const end = chunk.length - NO_METRICS.length;
  if (!viewBuffer(chunk).subarray(end).equals(NO_METRICS)) return undefined;
  return chunk.subarray(HEAD_BYTES.length + 1, end - 1);
}

/** Removes empty metrics; other metrics stay in the chunk. */
function stripMetrics(chunk: Uint8Array): Uint8Array {
  const end = chunk.length - NO_METRICS.length;
  if (!viewBuffer(chunk).subarray(end).equals(NO_METRICS)) return chunk;
  return Buffer.concat([chunk.subarray(0, end), BRACE]);
}

/** Yields the chunks of a report: its body without the commas between them. */
export function sliceChunks(sizes: readonly number[], body: Uint8Array): Uint8Array[] {
  let at = 0;
  return sizes.map((size) => {
    const chunk = body.subarray(at, at + size);
    at += size + 1;
    return chunk;
  });
}

export function encodeProgress(value: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from('{"status":"IN_PROGRESS","output":'), value, BRACE]);
}

export function encodeOutput(output: Uint8Array, recycle: boolean): Uint8Array {
  return Buffer.concat([HEAD_BYTES, output, Buffer.from(recycle ? ',"stopPod":true}' : '}')]);
}

/** The platform shows an error only if it is a text; usually that text is JSON, as here. */
export function encodeFailure(
  { code, message, stack, type }: FailureFacts,
  { hostname, version, workerId }: ReporterFacts,
  recycle: boolean,
): Uint8Array {
  const error = JSON.stringify({
    error_type: type ?? code,
    error_message: message,
    error_traceback: stack ?? '',
    error_code: code,
    hostname,
    worker_id: workerId,
    millrace_version: version,
  });
  return Buffer.from(JSON.stringify({ error, ...(recycle && { stopPod: true }) }));
}

const RELEASED: Readonly<Record<ReleaseReason, string>> = {
  drain: 'the worker shut down before the job ended; submit the job again',
  neighbour: 'another job of the same process crashed it several times; submit the job again',
  suspect: 'this job or another of the same process crashed it; submit the job again',
  not_started: 'the worker had no free slot for the job in time; submit the job again',
};

/** Undefined if the attempt did not fail. */
export function describeFailure(outcome: Outcome): FailureFacts | undefined {
  switch (outcome.kind) {
    case 'completed':
      return undefined;
    case 'failed':
    case 'timed_out':
      return outcome.error;
    case 'cancelled':
      return { code: 'cancelled', message: 'the attempt was stopped' };
    case 'released':
      return { code: `released_${outcome.reason}`, message: RELEASED[outcome.reason] };
    case 'waiting':
      return { code: 'wait_failed', message: 'a job on RunPod cannot wait for children' };
  }
}

/** A job as received; `jobId` is undefined if its failure cannot be posted. */
export type ArrivedJob =
  | { jobId: string; input: Uint8Array; s3Config?: string }
  | { jobId: string | undefined; fault: string };

/** Reads one job, a list of jobs, or nothing. */
export function readJobs(body: unknown): ArrivedJob[] {
  if (body === undefined || body === null) return [];
  if (Array.isArray(body)) return body.map(readJob);
  return typeof body === 'object' && Object.keys(body).length === 0 ? [] : [readJob(body)];
}

function readJob(value: unknown): ArrivedJob {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { jobId: undefined, fault: 'the job is not an object' };
  }
  const { id, input, s3Config } = value as { id?: unknown; input?: unknown; s3Config?: unknown };
  const isId = (typeof id === 'string' && id !== '') || typeof id === 'number';
  const jobId = isId ? String(id) : undefined;
  if (jobId === undefined) return { jobId, fault: 'the job has no id' };
  if (input === undefined) return { jobId, fault: 'the job has no input' };
  const job = { jobId, input: Buffer.from(JSON.stringify(input)) };
  const isObject = typeof s3Config === 'object' && s3Config !== null;
  return isObject ? { ...job, s3Config: JSON.stringify(s3Config) } : job;
}

/** IDs of jobs to stop; invalid entries are ignored. */
export function readStops(body: unknown): string[] {
  if (typeof body !== 'object' || body === null || !('jobsToStop' in body)) return [];
  const { jobsToStop } = body;
  if (!Array.isArray(jobsToStop)) return [];
  return jobsToStop.filter((id): id is string => typeof id === 'string');
}
