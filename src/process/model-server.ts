// The public API for an HTTP model server, such as vLLM's or llama.cpp's, as a child of a handler. child-keeper.ts starts and
// replaces it; this file passes requests on to it.
import { iterateLines } from '../base/text/line-reader.ts';
import type { Context } from '../handler/define.ts';
import type { LostContext } from './calls.ts';
import { ChildKeeper } from './child-keeper.ts';
import { KeptProcess, type RunningModel } from './kept-process.ts';
import type { ProcessLog } from './messages.ts';
import { readStart, type ServerAnswer, ServerChild } from './server-child.ts';
import {
  type CompleteServerOptions,
  completeServerOptions,
  type ModelServerOptions,
} from './server-options.ts';
import { type RunningRequest, RunningRequests } from './server-requests.ts';

/** Of an answer with an error, bytes; the rest is discarded. */
const MAX_ERROR_BYTES = 1_048_576;
/** An answer of this length is read at once, bytes: its slot is free even if the caller never reads it. */
const SMALL_BYTES = 65_536;
/** An answer without a length looks complete if its server dies. How long its end may take to be noticed, ms. */
const UNNOTICED_END_MS = 50;
/** Of one event, characters. */
const MAX_EVENT_CHARS = 16_777_216;
const NO_BODY = [204, 205, 304];

export interface ServerRequest {
  /** Default: POST with a body, else GET. */
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HEAD' | 'OPTIONS';
  headers?: Readonly<Record<string, string>>;
  body?: string | Uint8Array;
  /** A body that is sent as JSON, in place of `body`. */
  json?: unknown;
}

/** A handler's `ctx` fits. Without a `signal`, a request cannot be cancelled. */
export interface ServerCallOptions extends Partial<Pick<Context, 'signal'>> {
  /** Receives what the server prints while it runs requests of this job alone. */
  log?: ProcessLog;
}

export interface ModelServer extends RunningModel {
  /**
   * Sends a request to a path of the server. Waits while the server starts, is parked, or runs `maxConcurrent` requests.
   * The body of the answer is a stream: the server waits for its reader. Read it to its end, or cancel it. An answer of at most
   * 64 KB that tells its length has been read already, and so has one with status 400 and above, up to 1 MB.
   *
   * @throws ModelProcessError if the server ends before its answer does; reading the body throws it too
   * @throws the reason of `signal` after an abort, which ends the request to the server
   */
  fetch(path: string, request?: ServerRequest, options?: ServerCallOptions): Promise<Response>;
  /** `http://127.0.0.1:PORT` of the server while it is ready; each start has another port. */
  readonly url: string | undefined;
}

/**
 * Creates a model server for one handler thread. It starts with `start`.
 *
 * @throws TypeError that names the option and its value
 */
export function createModelServer(options: ModelServerOptions): ModelServer {
  // biome-ignore lint/style/noProcessEnv: the child inherits the environment that handlers see.
  return new RestartingModelServer(completeServerOptions(options, process.env));
}

/**
 * The data of each server-sent event of an answer, without the `[DONE]` of OpenAI's API. If you leave the loop early, the
 * request ends.
 */
export async function* readEvents(response: Response): AsyncGenerator<string, void, void> {
  if (!response.body) return;
  let data: string[] = [];
  let chars = 0;
  for await (const line of iterateLines(response.body, MAX_EVENT_CHARS)) {
    if (line === '') {
      if (data.length > 0 && data[0] !== '[DONE]') yield data.join('\n');
      data = [];
      chars = 0;
    } else if (line.startsWith('data:')) {
      data.push(line.slice('data:'.length).replace(/^ /, ''));
      chars += line.length;
      if (chars > MAX_EVENT_CHARS) {
        throw new Error(`an event has more than ${MAX_EVENT_CHARS} characters`);
      }
    }
  }
}

function failIfLost(child: ServerChild, loss: LostContext | undefined): void {
  if (loss) child.fail(`has lost its GPU context: ${loss.words}`, loss.culprit);
}

function startServer(options: CompleteServerOptions, log: ProcessLog) {
  const calls = new RunningRequests();
  const child = new ServerChild(options, calls, (stream, line) => {
    // Servers write their ordinary log to either stream.
    (calls.onlyLog ?? log).info({ stream }, line);
    failIfLost(child, calls.noteLine(line));
  });
  return { calls, child };
}

class RestartingModelServer
  extends KeptProcess<ServerChild, RunningRequests>
  implements ModelServer
{
  constructor(options: CompleteServerOptions) {
    super(new ChildKeeper(options, (log) => startServer(options, log)));
  }

  get url(): string | undefined {
    return this.keeper.child?.url;
  }

  async fetch(
    path: string,
    { body, headers, json, method }: ServerRequest = {},
    options: ServerCallOptions = {},
  ): Promise<Response> {
    if (!path.startsWith('/')) throw new TypeError(`the path "${path}" does not begin with /`);
    const { log, signal } = options;
    const sent = json === undefined ? body : JSON.stringify(json);
    const type = json === undefined ? {} : { 'content-type': 'application/json' };
    const shared = await this.keeper.acquireFor(options);
    const { calls, child } = shared;
    const quotes = (words: string) => sent !== undefined && Buffer.from(sent).includes(words);
    const running = calls.begin({ log, quotes, owner: signal ?? {} });
    const requestEnd = new RequestEnd(running, signal, (how) => {
      calls.end(running, how);
      this.keeper.release(shared);
    });
    try {
      const answer = await child.request({
        method: method ?? (sent === undefined ? 'GET' : 'POST'),
        path,
        headers: { ...type, ...headers },
        body: sent ?? null,
        signal,
      });
      const loss = calls.noteAnswer(running, answer.statusCode);
      failIfLost(child, loss);
      if (loss) answer.body.on('error', () => undefined).destroy();
      if (loss) throw new Error('the model server has lost its GPU context');
      return await toResponse(answer, requestEnd);
    } catch (error) {
      throw await requestEnd.fail(error);
    }
  }
}

/** Frees the slot of a request once. */
class RequestEnd {
  readonly #running: RunningRequest;
  readonly #signal: AbortSignal | undefined;
  readonly #settle: (how: 'answered' | 'failed') => void;
  #isOver = false;

  constructor(
    running: RunningRequest,
    signal: AbortSignal | undefined,
    settle: (how: 'answered' | 'failed') => void,
  ) {
    this.#running = running;
    this.#signal = signal;
    this.#settle = settle;
    signal?.addEventListener('abort', this.#abort);
  }

  /** `isWhole`: the answer told its length. @returns an error if the server has ended before its answer */
  async complete({ isWhole }: { isWhole: boolean }): Promise<Error | undefined> {
    const error = isWhole ? undefined : await this.#running.explain(undefined, UNNOTICED_END_MS);
    this.#end(error ? 'failed' : 'answered');
    return error;
  }

  /** @returns the error that the caller gets */
  async fail(error: unknown): Promise<unknown> {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    this.#running.isUnsent = code === 'ECONNREFUSED';
    const isAborted = this.#signal?.aborted === true;
    const reason = isAborted ? this.#signal?.reason : await this.#running.explain(error);
    this.#end('failed');
    return reason;
  }

  cancel(): void {
    this.#end('answered');
  }

  readonly #abort = () => this.#end('failed');

  #end(how: 'answered' | 'failed'): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#signal?.removeEventListener('abort', this.#abort);
    this.#settle(how);
  }
}

async function toResponse(answer: ServerAnswer, end: RequestEnd): Promise<Response> {
  const { body, headers, statusCode: status } = answer;
  const init = { status, headers: copyHeaders(headers) };
  const isSmall = Number(headers['content-length']) <= SMALL_BYTES;
  const isRead = status >= 400 || isSmall || NO_BODY.includes(status);
  if (!isRead) return new Response(toStream(answer, end), init);
  const bytes = await readStart(body, MAX_ERROR_BYTES);
  const error = await end.complete({ isWhole: true });
  if (error) throw error;
  return new Response(NO_BODY.includes(status) ? null : new Uint8Array(bytes), init);
}

function toStream({ body, headers }: ServerAnswer, end: RequestEnd): ReadableStream<Uint8Array> {
  const pieces = body[Symbol.asyncIterator]();
  const isWhole = 'content-length' in headers || 'transfer-encoding' in headers;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await pieces.next();
          if (!done) return controller.enqueue(value);
          const error = await end.complete({ isWhole });
          if (error) controller.error(error);
          else controller.close();
        } catch (error) {
          controller.error(await end.fail(error));
        }
      },
      cancel() {
        body.on('error', () => undefined).destroy();
        end.cancel();
      },
    },
    // Nothing is read ahead of the consumer.
    { highWaterMark: 0 },
  );
}

function copyHeaders(headers: ServerAnswer['headers']): Headers {
  const copy = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    for (const each of [value ?? []].flat()) copy.append(name, each);
  }
  return copy;
}
