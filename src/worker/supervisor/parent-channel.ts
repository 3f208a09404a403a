// The worker process's end of the channel to whoever started it: a supervisor or `millrace dev`.
import { BEAT_MS, type FromWorker, isToWorker, type ToWorker } from './messages.ts';

export interface ParentChannel {
  tell(message: FromWorker): void;
  /** Tells from now on, at an interval, that the event loop turns. */
  beat(count: () => { running: number; ended: number }): void;
  /** What has come and what comes goes there. Once. */
  listen(listener: (message: ToWorker) => void): void;
  /** The process may end. Resolves when everything has been said. */
  close(): Promise<void>;
}

/** Of a process that nobody watches; whoever may be at the other end of a channel knows no such words. */
export const NO_PARENT: ParentChannel = {
  tell() {},
  beat() {},
  listen() {},
  close: async () => {},
};

export function openParentChannel(): ParentChannel {
  let timer: NodeJS.Timeout | undefined;
  let lastWord: Promise<void> = Promise.resolve();
  let receive: (message: unknown) => void = () => {};
  const tell = (message: FromWorker) => {
    // A parent that has just died is noticed elsewhere.
    if (!process.connected) return;
    lastWord = new Promise((resolve) => {
      process.send?.(message, undefined, undefined, () => resolve());
    });
  };
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
    listen(listener) {
      receive = (message) => {
        if (isToWorker(message)) listener(message);
      };
      // Until somebody listens, Node keeps what comes.
      process.on('message', receive);
      // Listening would keep the process alive.
      process.channel?.unref();
    },
    async close() {
      clearInterval(timer);
      process.removeListener('message', receive);
      await lastWord;
    },
  };
}
