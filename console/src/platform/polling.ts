// Data of a page: loaded once, then again at an interval while the page is visible.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { connection } from './connection.ts';

export interface Polled<T> {
  /** The last answer; it stays while the platform is lost. */
  data: T | undefined;
  /** Why the last request failed. */
  error: Error | undefined;
  reload: () => void;
}

interface PollOptions<T> {
  /** Another key is other data: what is loaded is dropped. */
  key: string;
  load: (signal: AbortSignal) => Promise<T>;
  /** ms between an answer and the next request; null: only on demand. */
  everyMs: number | null;
}

interface Loaded<T> {
  key: string;
  data: T | undefined;
  error: Error | undefined;
}

export function usePolled<T>({ everyMs, key, load }: PollOptions<T>): Polled<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({ key, data: undefined, error: undefined });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;

  useEffect(() => {
    const abort = new AbortController();
    let timer: number | undefined;
    let isLoading = false;
    const again = () => {
      if (everyMs === null || abort.signal.aborted || document.hidden) return;
      timer = window.setTimeout(loadOnce, everyMs);
    };
    const loadOnce = async () => {
      clearTimeout(timer);
      if (isLoading) return;
      isLoading = true;
      try {
        const data = await latest.current(abort.signal);
        if (!abort.signal.aborted) setLoaded({ key, data, error: undefined });
      } catch (error) {
        if (!abort.signal.aborted)
          setLoaded((last) => ({ ...keep(last, key), error: asError(error) }));
      } finally {
        isLoading = false;
        again();
      }
    };
    const wake = () => {
      if (!document.hidden && connection.read() === 'up') void loadOnce();
    };
    void loadOnce();
    document.addEventListener('visibilitychange', wake);
    const unwatch = connection.watch(wake);
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', wake);
      unwatch();
    };
  }, [key, everyMs, round]);

  const reload = useCallback(() => setRound((n) => n + 1), []);
  const { data, error } = keep(loaded, key);
  return { data, error, reload };
}

function keep<T>(loaded: Loaded<T>, key: string): Loaded<T> {
  return loaded.key === key ? loaded : { key, data: undefined, error: undefined };
}

export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
