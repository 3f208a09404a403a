// Reads the event stream, and connects again after each outage.
import { backoffMs } from '../base/backoff.ts';
import { sleep, systemClock } from '../base/clock.ts';
import type { Problem } from '../wire/problem.ts';
import { EVENT_LIMITS } from '../wire/routes/event-topics.ts';
import { EVENT_ROUTES } from '../wire/routes/routes.ts';
import { type ApiCaller, ApiError, parseAnswer, UnreachableError } from './api-caller.ts';

export interface EventsOptions {
  signal?: AbortSignal;
  /** Called when a connection has opened, and when it has ended. */
  onConnection?: (state: 'open' | 'ended') => void;
}

/** One of `data` and `problem` is present. */
export interface TopicEvent {
  topic: string;
  /** The data of the topic now. */
  data?: unknown;
  /** Why the data cannot be read. */
  problem?: Problem;
  /** No event of the topic follows. */
  final?: boolean;
}

/** A connection that is silent for so long is dead: two comments are missing, ms. */
const SILENCE_MS = 2.5 * EVENT_LIMITS.heartbeatMs;
const RECONNECT = { baseMs: 250, maxMs: 5_000, jitter: 0.2 };

/** @throws ApiError if the platform refuses the topics or the key, and the signal's reason after an abort */
export async function* readEvents(
  caller: ApiCaller,
  topics: readonly string[],
  { onConnection, signal }: EventsOptions = {},
): AsyncGenerator<TopicEvent, void, void> {
  const ended = new Set<string>();
  for (let failures = 0; ended.size < topics.length; failures++) {
    let waitMs = failures === 0 ? 0 : backoffMs(failures, RECONNECT);
    try {
      for await (const event of readOnce(caller, topics, { onConnection, signal })) {
        failures = 0;
        if (event.final) ended.add(event.topic);
        yield event;
        if (ended.size === topics.length) return;
      }
      waitMs = RECONNECT.baseMs;
    } catch (error) {
      signal?.throwIfAborted();
      waitMs = Math.max(waitMs, readWait(error));
    } finally {
      onConnection?.('ended');
    }
    await sleep(systemClock, waitMs, signal);
    signal?.throwIfAborted();
  }
}

/** @throws the error if another connection would end in the same way */
function readWait(error: unknown): number {
  if (error instanceof UnreachableError) return RECONNECT.baseMs;
  if (!(error instanceof ApiError)) throw error;
  const isForNow = error.status === 429 || error.status >= 500;
  if (isForNow) return error.retryAfterMs ?? RECONNECT.maxMs;
  throw error;
}

/** One connection. @throws ApiError, UnreachableError */
async function* readOnce(
  caller: ApiCaller,
  topics: readonly string[],
  { onConnection, signal }: { [Name in keyof EventsOptions]: EventsOptions[Name] | undefined },
): AsyncGenerator<TopicEvent, void, void> {
  const abort = new AbortController();
  const end = () => abort.abort();
  signal?.addEventListener('abort', end);
  let cancelWatch = () => {};
  const watchSilence = () => {
    cancelWatch();
    cancelWatch = systemClock.after(SILENCE_MS, end);
  };
  try {
    const body = await caller.open({
      path: EVENT_ROUTES.streamEvents.path,
      query: { topics: topics.join(',') },
      headers: { accept: 'text/event-stream' },
      signal: abort.signal,
    });
    onConnection?.('open');
    const reader = body.getReader();
    const text = new TextDecoder();
    let left = '';
    for (;;) {
      watchSilence();
      const { done, value } = await reader.read().catch(raiseBroken);
      if (done) return;
      const events = (left + text.decode(value, { stream: true })).split('\n\n');
      left = events.pop() ?? '';
      for (const event of events) yield* readEvent(event);
    }
  } finally {
    cancelWatch();
    signal?.removeEventListener('abort', end);
    abort.abort();
  }
}

/** Nothing for a comment. The platform writes the data of an event in one line. */
function* readEvent(event: string): Generator<TopicEvent> {
  const data = event.split('\n').find((line) => line.startsWith('data: '));
  if (data !== undefined) yield parseAnswer<TopicEvent>(data.slice('data: '.length));
}

function raiseBroken(cause: unknown): never {
  throw new UnreachableError('the event stream broke off', { cause });
}
