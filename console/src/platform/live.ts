// What the pages watch, over one event stream for the tab. A hidden tab has none.
import type { TopicEvent } from '../../../src/client.ts';
import { ApiError, platform } from './calls.ts';

export interface Watcher {
  topics: readonly string[];
  /** A topic has another snapshot, or a problem. */
  onEvent: (event: TopicEvent) => void;
  /** Nothing comes any more until the next event: the connection has ended. */
  onSilence: () => void;
}

/** Pages that follow each other share a connection if their topics are the same; ms. */
const SETTLE_MS = 20;
/** As many as a connection may have. */
const MAX_TOPICS = 16;

const watchers = new Set<Watcher>();
/** The last event of each topic of the connection. */
const last = new Map<string, TopicEvent>();
let open: { topics: string; abort: AbortController } | undefined;
let settling: number | undefined;

/** @returns the function that ends it */
export function watchTopics(watcher: Watcher): () => void {
  watchers.add(watcher);
  for (const topic of watcher.topics) {
    const known = last.get(topic);
    if (known) watcher.onEvent(known);
  }
  settle();
  return () => {
    watchers.delete(watcher);
    settle();
  };
}

document.addEventListener('visibilitychange', settle);

/** Connects to what is watched now, soon. */
function settle(): void {
  clearTimeout(settling);
  settling = window.setTimeout(connect, SETTLE_MS);
}

function connect(): void {
  const wanted = new Set(document.hidden ? [] : [...watchers].flatMap(({ topics }) => topics));
  const topics = [...wanted].sort().slice(0, MAX_TOPICS);
  if (open?.topics === topics.join()) return;
  disconnect();
  if (topics.length === 0) return;
  const abort = new AbortController();
  open = { topics: topics.join(), abort };
  void follow(topics, abort.signal);
}

function disconnect(): void {
  open?.abort.abort();
  open = undefined;
  last.clear();
  for (const { onSilence } of [...watchers]) onSilence();
}

async function follow(topics: readonly string[], signal: AbortSignal): Promise<void> {
  const onConnection = (state: 'open' | 'ended') => {
    if (state === 'ended' && !signal.aborted) for (const each of [...watchers]) each.onSilence();
  };
  try {
    for await (const event of platform.events(topics, { signal, onConnection })) {
      if (signal.aborted) return;
      last.set(event.topic, event);
      for (const each of [...watchers]) if (each.topics.includes(event.topic)) each.onEvent(event);
    }
  } catch (error) {
    // The pages go on asking by themselves.
    if (!signal.aborted && !(error instanceof ApiError)) throw error;
  }
}
