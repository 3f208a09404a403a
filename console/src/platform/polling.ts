// Data of a page. If the data is that of topics, the event stream brings it; otherwise, and while there is no stream, the
// page asks at an interval.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { TopicEvent } from '../../../src/client.ts';
import { ApiError } from './calls.ts';
import { connection } from './connection.ts';
import { watchTopics } from './live.ts';

export interface Polled<T> {
  /** The last answer; it stays while the platform is lost. */
  data: T | undefined;
  /** Why the last request failed. */
  error: Error | undefined;
  reload: () => void;
}

export interface PollOptions<T> {
  /** Another key is other data: what is loaded is dropped. */
  key: string;
  load: (signal: AbortSignal) => Promise<T>;
  /** ms between an answer and the next request; null: only on demand. */
  everyMs: number | null;
  live?: Live<T> | undefined;
}

/** `read`: makes the data from that of the topics, which are in the same order. */
export interface Live<T> {
  topics: readonly string[];
  read: (...data: unknown[]) => T | Promise<T>;
}

interface Loaded<T> {
  key: string;
  data: T | undefined;
  error: Error | undefined;
}

/** So long a page waits for the event stream before it asks by itself, ms. */
const PATIENCE_MS = 1_500;

export function usePolled<T>(options: PollOptions<T>): Polled<T> {
  const { everyMs, key, live } = options;
  const [loaded, setLoaded] = useState<Loaded<T>>({ key, data: undefined, error: undefined });
  const latest = useRef(options);
  latest.current = options;
  const again = useRef(() => {});
  const topics = live?.topics.join() ?? '';

  useEffect(() => {
    const abort = new AbortController();
    let round = 0;
    const isOver = () => abort.signal.aborted;
    const put = (data: T) => !isOver() && setLoaded({ key, data, error: undefined });
    const fail = (error: unknown) => {
      if (!isOver()) setLoaded((before) => ({ ...keep(before, key), error: asError(error) }));
    };
    const asking = startAsking({
      load: async () => put(await latest.current.load(abort.signal)),
      ...{ fail, everyMs, isOver },
    });
    again.current = asking.now;
    const wake = () => {
      if (!document.hidden && connection.read() === 'up') asking.wake();
    };
    document.addEventListener('visibilitychange', wake);
    const ends = [connection.watch(wake)];
    // The first request is made at once where no stream brings the data.
    asking.in(topics === '' ? 0 : PATIENCE_MS);
    if (topics !== '') {
      ends.push(
        watchLive({
          topics: topics.split(','),
          async onData(data) {
            asking.rest();
            const mine = ++round;
            const value = await latest.current.live?.read(...data);
            // A later one may have been ready before.
            if (value !== undefined && mine === round) put(value);
          },
          ...{ fail, onSilence: () => asking.in(PATIENCE_MS) },
        }),
      );
    }
    return () => {
      abort.abort();
      asking.rest();
      document.removeEventListener('visibilitychange', wake);
      for (const end of ends) end();
    };
  }, [key, everyMs, topics]);

  const reload = useCallback(() => again.current(), []);
  const { data, error } = keep(loaded, key);
  return { data, error, reload };
}

interface LiveWatch {
  topics: readonly string[];
  /** Each topic has data. */
  onData: (data: readonly unknown[]) => Promise<void>;
  fail: (error: unknown) => void;
  onSilence: () => void;
}

function watchLive({ fail, onData, onSilence, topics }: LiveWatch): () => void {
  const seen = new Map<string, TopicEvent>();
  return watchTopics({
    topics,
    onEvent(event) {
      if (event.problem) fail(new ApiError(event.problem, undefined));
      else seen.set(event.topic, event);
      if (topics.every((topic) => seen.has(topic))) {
        onData(topics.map((topic) => seen.get(topic)?.data)).catch(fail);
      }
    },
    onSilence,
  });
}

interface Asking {
  load: () => Promise<unknown>;
  fail: (error: unknown) => void;
  everyMs: number | null;
  isOver: () => boolean;
}

/** Asks now and then, one request at a time. */
function startAsking({ everyMs, fail, isOver, load }: Asking) {
  let timer: number | undefined;
  let isLoading = false;
  let isResting = true;
  const later = (ms: number | null) => {
    clearTimeout(timer);
    isResting = false;
    if (ms !== null && !isOver() && !document.hidden) timer = window.setTimeout(loadOnce, ms);
  };
  const loadOnce = async () => {
    clearTimeout(timer);
    if (isLoading) return;
    isLoading = true;
    try {
      await load();
    } catch (error) {
      fail(error);
    } finally {
      isLoading = false;
      if (!isResting) later(everyMs);
    }
  };
  return {
    now: () => void loadOnce(),
    in: later,
    /** The platform or the page is back. */
    wake: () => {
      if (!isResting) void loadOnce();
    },
    /** The event stream brings the data. */
    rest: () => {
      isResting = true;
      clearTimeout(timer);
    },
  };
}

function keep<T>(loaded: Loaded<T>, key: string): Loaded<T> {
  return loaded.key === key ? loaded : { key, data: undefined, error: undefined };
}

export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
