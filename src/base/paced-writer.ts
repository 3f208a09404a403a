// Two kinds of messages on one stream: urgent ones, which go at once, and long series, of which only
// one message at a time is with the stream, so that a slow reader holds them up where they are.

export interface MessageSink<T> {
  /** `sent` is called when the stream is ready for more, with an error or without; perhaps never. */
  write(message: T, sent: (error?: Error | null) => void): unknown;
}

export class PacedWriter<T> {
  readonly #sink: MessageSink<T>;
  readonly #closed: AbortSignal;
  #tail: Promise<void> = Promise.resolve();

  /** `closed`: the stream takes nothing more, and nothing that is under way is waited for. */
  constructor(sink: MessageSink<T>, closed: AbortSignal) {
    this.#sink = sink;
    this.#closed = closed;
  }

  /** Passes every series by. Resolves when it is sent, or when it cannot be any more. */
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
   * One series behind the other; resolves when the last message is sent, or when the signal or the
   * end of the stream has stopped it between two messages. Rejects with what `messages` throws.
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

  /** Resolves when all series so far are through. */
  idle(): Promise<void> {
    return this.#tail;
  }
}
