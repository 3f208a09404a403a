// The OpenAI-compatible server behind openai-proxy: where it is, one request to it, and its refusals
// as errors that say whether to try again. Leaves the stream's contents to completion-stream.ts.
import { NonRetryableError, RetryAfterError } from 'millrace';
import { readRetryAfterMs } from 'millrace/outgoing';
import { type Dispatcher, request } from 'undici';
import { z } from 'zod';
import { collectBytes } from './collect-bytes.ts';
import { isTransient } from './retry-after.ts';

const MAX_ANSWER_BYTES = 20_000_000;
const MAX_ERROR_BYTES = 65_536;
const MAX_MESSAGE_CHARACTERS = 1_000;

export interface UpstreamConfig {
  /** Ends in a slash. */
  baseUrl: URL;
  key: string;
}

export interface UpstreamRequest {
  config: UpstreamConfig;
  /** Below the base URL. */
  path: string;
  body: unknown;
  signal: AbortSignal;
}

export interface UpstreamAnswer {
  isEventStream: boolean;
  body: AsyncIterable<Uint8Array>;
}

/** @throws NonRetryableError that names the variable which is missing or wrong. */
export function readUpstreamConfig(env: NodeJS.ProcessEnv): UpstreamConfig {
  const base = env['OPENAI_BASE_URL']?.trim() ?? '';
  const key = env['OPENAI_API_KEY']?.trim() ?? '';
  const missing = [
    ...(base === '' ? ['OPENAI_BASE_URL'] : []),
    ...(key === '' ? ['OPENAI_API_KEY'] : []),
  ];
  if (missing.length > 0) {
    throw new NonRetryableError(
      `openai-proxy is not configured: set ${missing.join(' and ')} in the worker's environment` +
        ' (for a server that wants no key, any text will do as one)',
    );
  }
  const baseUrl = URL.parse(base.endsWith('/') ? base : `${base}/`);
  if (baseUrl === null || !/^https?:$/.test(baseUrl.protocol) || baseUrl.search !== '') {
    throw new NonRetryableError(
      'OPENAI_BASE_URL is no http or https URL such as https://api.openai.com/v1',
    );
  }
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new NonRetryableError('OPENAI_API_KEY has characters that no HTTP header can carry');
  }
  return { baseUrl, key };
}

/**
 * Sends the request. How long an answer may take is for the signal alone to say: models think long.
 *
 * @throws NonRetryableError if the server refused the request, RetryAfterError if it named a time,
 * an ordinary Error if it could not be reached or was in trouble.
 */
export async function openUpstream(options: UpstreamRequest): Promise<UpstreamAnswer> {
  const { config, path, body, signal } = options;
  const url = new URL(path, config.baseUrl);
  let answer: Dispatcher.ResponseData;
  try {
    answer = await request(url, {
      method: 'POST',
      signal,
      headers: {
        authorization: `Bearer ${config.key}`,
        'content-type': 'application/json',
        accept: 'text/event-stream, application/json',
      },
      body: JSON.stringify(body),
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  } catch (error) {
    signal.throwIfAborted();
    throw new Error(`the server at OPENAI_BASE_URL cannot be reached: ${nameFailure(error)}`);
  }
  if (answer.statusCode !== 200) throw await explainRefusal(answer, config);
  const type = String(answer.headers['content-type'] ?? '');
  return {
    isEventStream: /^text\/event-stream\b/i.test(type),
    body: readPackets(answer.body, signal),
  };
}

async function* readPackets(
  body: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* body;
  } catch (error) {
    signal.throwIfAborted();
    throw new Error(`the server broke its answer off: ${nameFailure(error)}`);
  }
}

/** The whole answer as JSON. @throws Error if it is none, or more than 20 MB. */
export async function readAnswer(answer: UpstreamAnswer, config: UpstreamConfig): Promise<unknown> {
  const bytes = await collectBytes(answer.body, MAX_ANSWER_BYTES);
  if (bytes === undefined) {
    throw new NonRetryableError(`the server's answer is over ${MAX_ANSWER_BYTES} bytes`);
  }
  const json = parseJson(bytes.toString());
  if (json === undefined) {
    throw new Error(`the server's answer is not JSON: ${shorten(bytes.toString(), config)}`);
  }
  return json;
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the text of a server's error, without the key. */
export function readErrorMessage(json: unknown, config: UpstreamConfig): string | undefined {
  const parsed = errorBody.safeParse(json);
  if (!parsed.success) return undefined;
  const { error, message, detail } = parsed.data;
  const text = (typeof error === 'object' ? error?.message : error) ?? message ?? detail;
  return text === undefined ? undefined : shorten(text, config);
}

const errorBody = z.object({
  error: z.union([z.string(), z.object({ message: z.string() })]).nullish(),
  message: z.string().optional(),
  detail: z.string().optional(),
});

async function explainRefusal(
  { statusCode, headers, body }: Dispatcher.ResponseData,
  config: UpstreamConfig,
): Promise<Error> {
  const bytes = await collectBytes(body, MAX_ERROR_BYTES).catch(() => undefined);
  const text = bytes?.toString() ?? '';
  const reason = readErrorMessage(parseJson(text), config) ?? shorten(text, config);
  const message = `the server answered ${statusCode}${reason === '' ? '' : `: ${reason}`}`;
  if (!isTransient(statusCode)) return new NonRetryableError(message);
  const waitMs = readRetryAfterMs(headers['retry-after'], Date.now());
  return waitMs === undefined ? new Error(message) : new RetryAfterError(waitMs, message);
}

function shorten(text: string, { key }: UpstreamConfig): string {
  const safe = text.replaceAll(key, '[key]').trim();
  return safe.length <= MAX_MESSAGE_CHARACTERS ? safe : `${safe.slice(0, MAX_MESSAGE_CHARACTERS)}…`;
}

function nameFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}
