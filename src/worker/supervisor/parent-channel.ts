// The worker process's end of the channel to whoever started it: a supervisor, `millrace dev`, or
// nobody, and then nothing is said.
import { BEAT_MS, type FromWorker, isToWorker, type ToWorker } from './messages.ts';

export interface ParentChannel {
  tell(message: FromWorker): void;
  /** Tells from now on, at an interval, that the event loop turns. */
  beat(count: () => { running: number; ended: number }): void;
  /** What comes from now on goes there. */
  listen(listener: (message: ToWorker) => void): void;
  /** The process may end. Resolves when everything has been said. */
  close(): Promise<void>;
}

export function openParentChannel(): ParentChannel {
  let timer: NodeJS.Timeout | undefined;
  let lastWord: Promise<void> = Promise.resolve();
  let listener: (message: ToWorker) => void = () => {};
  const receive = (message: unknown) => {
    if (isToWorker(message)) listener(message);
  };
  const tell = (message: FromWorker) => {
    // A parent that has just died is noticed elsewhere.
    if (!process.connected) return;
    lastWord = new Promise((resolve) => {
      process.send?.(message, undefined, undefined, () => resolve());
    });
  };
  process.on('message', receive);
  // Listening would keep the process alive.
  process.channel?.unref();
  return {
    tell,
    beat(count) {
      const say = () => {
        const { running, ended } = count();
        tell({ type: 'beat', running, ended });
      };
      timer ??= setInterval(say, BEAT_MS);
      timer.unref();
    },
    listen(next) {
      listener = next;
    },
    async close() {
      clearInterval(timer);
      process.removeListener('message', receive);
      await lastWord;
    },
  };
}
