// Writes two kinds of messages to one stream: urgent ones, which go at once, and long series. Of a
// series only one message at a time is in the stream's buffer, so that a slow reader delays the
// series at its source.

export interface MessageSink<T> {
  /** `sent` is called when the stream can take more, with or without an error; perhaps never. */
  write(message: T, sent: (error?: Error | null) => void): unknown;
}

export class PacedWriter<T> {
  readonly #sink: MessageSink<T>;
  readonly #closed: AbortSignal;
  #tail: Promise<void> = Promise.resolve();

  /** `closed` aborts when the stream takes no more messages; waiting writes then end. */
  constructor(sink: MessageSink<T>, closed: AbortSignal) {
    this.#sink = sink;
    this.#closed = closed;
  }

  /** Writes ahead of every series. Resolves when the message is sent, or can no longer be sent. */
  writeNow(message: T): Promise<void> {
    return new Promise((resolve) => {
      if (this.#closed.aborted) return resolve();
      const end = () => {
        this.#closed.removeEventListener('abort', end);
        resolve();
      };
      this.#closed.addEventListener('abort', end, { once: true });
      this.#sink.write(message, end);
    });
  }

  /**
   * Writes one series after the other. Resolves when the last message is sent, or when the signal
   * or the end of the stream stops the series between two messages. Rejects with errors of
   * `messages`.
   */
  writeSeries(messages: Iterable<T>, signal: AbortSignal): Promise<void> {
    const written = this.#tail.then(async () => {
      for (const message of messages) {
        if (signal.aborted || this.#closed.aborted) return;
        await this.writeNow(message);
      }
    });
    this.#tail = written.catch(() => {});
    return written;
  }

  /** Resolves when all series that were added so far have ended. */
  idle(): Promise<void> {
    return this.#tail;
  }
}
