// The worker process's end of the channel to its parent: a supervisor or `millrace dev`.
import { BEAT_MS, type FromWorker, isToWorker, type ToWorker } from './messages.ts';

export interface ParentChannel {
  send(message: FromWorker): void;
  /** Reports from now on, at an interval, that the event loop runs. */
  beat(count: () => { running: number; ended: number }): void;
  /** Passes all messages, also earlier ones, to the listener. May be called once. */
  listen(listener: (message: ToWorker) => void): void;
  /** Lets the process exit. Resolves when all messages are sent. */
  close(): Promise<void>;
}

/** For a process without a supervisor; another parent's channel does not know these messages. */
export const NO_PARENT: ParentChannel = {
  send() {},
  beat() {},
  listen() {},
  close: async () => {},
};

export function openParentChannel(): ParentChannel {
  let timer: NodeJS.Timeout | undefined;
  let lastMessage: Promise<void> = Promise.resolve();
  let receive: (message: unknown) => void = () => {};
  const send = (message: FromWorker) => {
    // The death of a parent is detected elsewhere.
    if (!process.connected) return;
    lastMessage = new Promise((resolve) => {
      process.send?.(message, undefined, undefined, () => resolve());
    });
  };
  return {
    send,
    beat(count) {
      const sendBeat = () => {
        const { running, ended } = count();
        send({ type: 'beat', running, ended });
      };
      timer ??= setInterval(sendBeat, BEAT_MS);
      timer.unref();
    },
    listen(listener) {
      receive = (message) => {
        if (isToWorker(message)) listener(message);
      };
      // Node keeps messages until somebody listens.
      process.on('message', receive);
      // Listening would keep the process alive.
      process.channel?.unref();
    },
    async close() {
      clearInterval(timer);
      process.removeListener('message', receive);
      await lastMessage;
    },
  };
}
