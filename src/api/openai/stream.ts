// Answers a request with `stream: true`: sends the chunks of its job as they come. The status of the answer is
// that of the first chunk, unless the client has waited too long for it.
import { setImmediate as nextIteration } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { loadPaced } from '../../base/slices.ts';
import type { Queues } from '../../queue/queues.ts';
import type { Position, StreamPage } from '../../queue/reports/streams.ts';
import { MAX_CHUNK_BYTES, type Metrics } from '../../wire/chunk/chunk.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import type { JobStatus } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  EVENTS_MEDIA_TYPE,
  KEEP_ALIVE_MS,
  loadInFlight,
  takeOver,
  writeSlices,
} from '../http/byte-reply.ts';
import { toProblem } from '../http/problem-reply.ts';
import { countBytes } from '../routes/stream-answers.ts';
import {
  describeError,
  describeFailure,
  describeProblem,
  describeStop,
  FailedStream,
  type OpenAiError,
  TIMED_OUT,
} from './answers.ts';
import { DONE_EVENT, EventEncoder, type Events, findErrorEvent } from './event-encoder.ts';

/** Without a chunk for this time the answer begins with a comment, because proxies close silent connections. */
const HEAD_MS = 10_000;
/** Bytes of chunks parsed at a time: a few ms of work. */
const PAGE_BYTES = 262_144;
const START: Position = { attempt: 0, n: -1 };

export interface JobKey {
  endpointId: string;
  id: string;
}

export interface StreamedRequest {
  queue: Queues;
  clock: Clock;
  log: Log;
  key: JobKey;
  /** How long the client waits for the first chunk, ms. */
  firstChunkMs: number;
  /** Aborts when the client disconnects. */
  signal: AbortSignal;
}

/** `isEnded`: the job has ended. `error`: nothing was sent; the caller answers with it. */
export interface StreamEnd {
  isEnded: boolean;
  error?: OpenAiError;
}

/** @throws ProblemError before anything is sent */
export function sendStream(reply: FastifyReply, request: StreamedRequest): Promise<StreamEnd> {
  return new OpenAiStream(reply, request).run();
}

class OpenAiStream {
  readonly #reply: FastifyReply;
  readonly #request: StreamedRequest;
  readonly #giveUpAt: number;
  #after = START;
  #isOpen = false;
  /** A client that has received chunks cannot be told that the job starts again. */
  #hasSent = false;
  #isDone = false;
  #encoder = new EventEncoder();

  constructor(reply: FastifyReply, request: StreamedRequest) {
    this.#reply = reply;
    this.#request = request;
    this.#giveUpAt = request.clock.now() + request.firstChunkMs;
  }

  async run(): Promise<StreamEnd> {
    try {
      return await this.#sendPages();
    } catch (error) {
      if (error instanceof FailedStream) return this.#fail(error.shown, false);
      if (!this.#isOpen) throw error;
      return this.#fail(this.#describe(error), false);
    }
  }

  async #sendPages(): Promise<StreamEnd> {
    const { clock, key, queue, signal } = this.#request;
    while (!signal.aborted) {
      // With a fast client the loop never waits otherwise.
      await nextIteration();
      const page = await this.#sendPage();
      if (!page) break;
      if (page.complete) return this.#end(page.status);
      if (queue.isClosingAt(key.endpointId)) throw describeStop();
      if (page.chunks.length > 0) continue;
      if (!this.#hasSent && clock.now() >= this.#giveUpAt) throw new FailedStream(TIMED_OUT);
      this.#open();
      this.#reply.raw.write(': waiting\n\n');
    }
    return { isEnded: false };
  }

  /** Undefined if the client has disconnected. */
  async #sendPage(): Promise<StreamPage | undefined> {
    const { key, queue, signal } = this.#request;
    const waitMs = this.#isOpen ? KEEP_ALIVE_MS : HEAD_MS;
    const reading = { ...key, after: this.#after, waitMs, maxBytes: PAGE_BYTES, signal };
    const written = { bytes: 0 };
    const loaded = await loadInFlight(this.#reply, {
      signal: () => signal,
      written,
      sizeOf: countBytes,
      measure: () => queue.streams.splitBytes(key),
      load: () => loadPaced(() => queue.streams.read(reading), countBytes),
    });
    if (!loaded) return undefined;
    try {
      await this.#send(loaded.value, written);
      return loaded.value;
    } finally {
      loaded.claim.release();
    }
  }

  async #send(page: StreamPage, written: { bytes: number }): Promise<void> {
    const { key, queue } = this.#request;
    const { chunks, needsMark, position, reset } = page;
    if (reset && this.#hasSent) {
      throw new FailedStream(describeError(500, 'The job was started again.', 'restarted'));
    }
    // If the attempt has ended meanwhile, its chunks are obsolete.
    const isStale =
      chunks.length > 0 && needsMark && !(await queue.streams.noteSending(key, position));
    if (reset || isStale) this.#encoder = new EventEncoder();
    this.#after = isStale ? START : position;
    if (isStale) return;
    for (const chunk of chunks) {
      await this.#sendEvents(this.#encoder.encode(readOutput(chunk)), written);
    }
    if (page.complete && page.status === 'COMPLETED') {
      await this.#sendEvents(this.#encoder.end(), written);
    }
  }

  async #sendEvents({ isDone, text }: Events, written: { bytes: number }): Promise<void> {
    const { signal } = this.#request;
    const error = this.#hasSent ? undefined : findErrorEvent(text);
    if (error) throw new FailedStream(error);
    if (!this.#isDone && text !== '') {
      this.#open();
      this.#hasSent = true;
      await writeSlices(this.#reply.raw, [Buffer.from(text)], { signal, written });
    }
    this.#isDone ||= isDone;
  }

  #open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    const raw = takeOver(this.#reply);
    raw.writeHead(200, {
      'content-type': EVENTS_MEDIA_TYPE,
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    raw.flushHeaders();
  }

  async #end(status: JobStatus): Promise<StreamEnd> {
    if (status !== 'COMPLETED') {
      return this.#fail(describeFailure(status, await this.#readError()), true);
    }
    if (!this.#hasSent && !this.#isDone) {
      return this.#fail(describeError(502, 'The handler gave no answer.', 'output_invalid'), true);
    }
    this.#open();
    this.#reply.raw.end(DONE_EVENT);
    return { isEnded: true };
  }

  async #readError(): Promise<AttemptError | null> {
    const { key, queue } = this.#request;
    const errors: (AttemptError | null)[] = [];
    (await queue.jobs.record(key)).compose((job) => {
      errors.push(job.error);
      return [];
    });
    return errors[0] ?? null;
  }

  /** An open stream ends with an event that clients throw as an error. */
  #fail(error: OpenAiError, isEnded: boolean): StreamEnd {
    if (!this.#isOpen) return { isEnded, error };
    this.#reply.raw.end(`data: ${JSON.stringify({ error: error.error })}\n\n`);
    return { isEnded };
  }

  #describe(error: unknown): OpenAiError {
    const { key, log } = this.#request;
    const problem = toProblem(error);
    if (!problem) log.error({ err: error, job: key.id }, 'OpenAI stream broken off');
    return describeProblem(problem ?? new ProblemError('internal', 'The platform failed.'));
  }
}

/** @throws FailedStream for a piece of a chunk that was too large */
function readOutput(chunk: Uint8Array): unknown {
  const { metrics, output }: { metrics: Metrics; output: unknown } = JSON.parse(
    Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length).toString(),
  );
  if (metrics['parts'] === undefined) return output;
  const detail = `The handler yielded a chunk of more than ${MAX_CHUNK_BYTES} bytes.`;
  throw new FailedStream(describeError(502, detail, 'output_too_large'));
}
