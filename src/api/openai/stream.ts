// Answers a request with `stream: true`: sends the chunks of its job as server-sent events as they come. The status of
// the answer is that of the first chunk, unless the client has waited too long for it.
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
import { isPlainObject } from '../../wire/json.ts';
import { ProblemError } from '../../wire/problem.ts';
import { beginEvents, KEEP_ALIVE_MS, loadInFlight, writeSlices } from '../http/byte-reply.ts';
import { toProblem } from '../http/problem-reply.ts';
import { countBytes } from '../routes/stream-answers.ts';
import {
  describeError,
  describeFailure,
  describeProblem,
  describeStop,
  FailedStream,
  findError,
  type OpenAiError,
  parseJson,
  TIMED_OUT,
} from './answers.ts';

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
    beginEvents(this.#reply);
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

export const DONE_EVENT = 'data: [DONE]\n\n';

/** Longest line that is kept until its end arrives; a chunk can be as large. */
const MAX_LINE_CHARS = 1_048_576;

const DONE = /^data:\s*\[DONE\]\s*$/;
const DATA = /^data:/;
const COMMENT = /^:/;
const FIELD = /^(?:event|id|retry):/;
/** A value that shows where it ends. */
const JSON_VALUE = /^data:\s*[[{]/;
/** Most characters of a line that these expressions need. */
const HEAD_CHARS = 64;

/** The events of one chunk. */
export interface Events {
  text: string;
  /** The chunk has the event that ends the stream; it is not part of `text`. */
  isDone: boolean;
}

/**
 * Encodes the chunks of one attempt: objects, or the text of an event stream as vLLM writes it, cut at any place. A line
 * may begin in one chunk and end in another.
 */
export class EventEncoder {
  /** The pieces of the line that has not ended yet. */
  #line: string[] = [];
  #lineChars = 0;
  #lineHead = '';

  /**
   * Each line `data: …` of a text is one event, with or without an empty line behind it. The elements of an array
   * are events of their own. @throws FailedStream if they cannot be sent as events
   */
  encode(output: unknown): Events {
    const all = (Array.isArray(output) ? output : [output]).map((one) => this.#encodeOne(one));
    return joinEvents(all);
  }

  /** The attempt is over: the last line needs no line break. @throws FailedStream as `encode` does */
  end(): Events {
    const line = this.#takeLine();
    if (JSON_VALUE.test(line) && parseJson(line.replace(DATA, '')) === undefined) {
      throw refuse('The handler ended in the middle of an event.');
    }
    return encodeLine(line);
  }

  #encodeOne(output: unknown): Events {
    if (typeof output === 'string') return this.#encodeText(output);
    if (typeof output !== 'object' || output === null) {
      throw refuse('The handler yielded a chunk that is neither a text nor an object.');
    }
    return joinEvents([this.end(), encodeObject(output)]);
  }

  #encodeText(text: string): Events {
    if (this.#lineChars === 0 && text.trimStart().startsWith('{')) {
      const object = parseJson(text);
      if (!isPlainObject(object)) {
        throw refuse('The handler yielded a text that begins like JSON and is none.');
      }
      return encodeObject(object);
    }
    const events: Events[] = [];
    if (this.#endsBefore(text)) events.push(this.end());
    const lines = text.split(/\r\n|\r|\n/);
    const rest = lines.pop() ?? '';
    for (const line of lines) {
      this.#keep(line);
      events.push(encodeLine(this.#takeLine()));
    }
    // A handler that yields whole lines need not end them: their events do not wait for the next chunk.
    if (isWhole(rest) && this.#lineChars === 0) events.push(encodeLine(rest));
    else this.#keep(rest);
    return joinEvents(events);
  }

  /** A chunk begins with a line of its own, so the line before it needed no line break. */
  #endsBefore(text: string): boolean {
    const head = this.#lineHead;
    const isLine = DATA.test(head) || COMMENT.test(head) || FIELD.test(head);
    return isLine && !JSON_VALUE.test(head) && (DATA.test(text) || FIELD.test(text));
  }

  #keep(piece: string): void {
    this.#lineChars += piece.length;
    if (this.#lineChars > MAX_LINE_CHARS) {
      const detail = `The handler yielded a line of more than ${MAX_LINE_CHARS} characters.`;
      throw new FailedStream(describeError(502, detail, 'output_too_large'));
    }
    if (piece !== '') this.#line.push(piece);
    if (this.#lineHead.length < HEAD_CHARS) this.#lineHead += piece.slice(0, HEAD_CHARS);
  }

  #takeLine(): string {
    const line = this.#line.join('');
    this.#line = [];
    this.#lineChars = 0;
    this.#lineHead = '';
    return line;
  }
}

/** A line that nothing can follow: more text would not be JSON. */
function isWhole(line: string): boolean {
  if (DONE.test(line)) return true;
  return JSON_VALUE.test(line) && parseJson(line.replace(DATA, '')) !== undefined;
}

function encodeLine(line: string): Events {
  if (DONE.test(line)) return { text: '', isDone: true };
  if (DATA.test(line) || COMMENT.test(line)) return { text: `${line}\n\n`, isDone: false };
  if (FIELD.test(line)) return { text: `${line}\n`, isDone: false };
  if (line.trim() === '') return { text: '', isDone: false };
  throw refuse(
    'The handler yielded a text that is no server-sent event; yield lines `data: …`, or objects.',
  );
}

function encodeObject(output: object): Events {
  return { text: `data: ${JSON.stringify(output)}\n\n`, isDone: false };
}

function joinEvents(all: readonly Events[]): Events {
  return { text: all.map(({ text }) => text).join(''), isDone: all.some(({ isDone }) => isDone) };
}

function refuse(detail: string): FailedStream {
  return new FailedStream(describeError(502, detail, 'output_invalid'));
}

/** Returns the error if the first event is one. */
export function findErrorEvent(text: string): OpenAiError | undefined {
  const [, value = ''] = /^data:([^\n]*)/m.exec(text) ?? [];
  return value.includes('error') ? findError(parseJson(value)) : undefined;
}
