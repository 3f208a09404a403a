// Writes to standard output and standard error, and keeps the process running when a write fails: the reader has
// gone, or the disk is full.
import { writeSync } from 'node:fs';

const STREAMS = ['stdout', 'stderr'] as const;

/** Writes that failed since the start, and lines that were dropped. */
export const failedWrites: Record<(typeof STREAMS)[number], number> = { stdout: 0, stderr: 0 };

/** Calls the listener, instead of ending the process, when one of the streams cannot be written. */
export function onFailedWrite(
  listener: (stream: (typeof STREAMS)[number], error: NodeJS.ErrnoException) => void,
): void {
  for (const stream of STREAMS) {
    process[stream].on('error', (error) => {
      failedWrites[stream] += 1;
      listener(stream, error);
    });
  }
}

const STDERR = 2;
const MAX_WAITING_BYTES = 1_048_576;
const RETRY_MS = 100;

/** Writes log lines to standard error. Lines wait, up to a bound, while it accepts none. */
export class StandardErrorLines {
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #timer: NodeJS.Timeout | undefined;

  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) {
      failedWrites.stderr += 1;
    } else {
      this.#waiting.push(bytes);
      this.#waitingBytes += bytes.length;
    }
    this.#flush();
  }

  #flush(): void {
    try {
      for (;;) {
        const [first] = this.#waiting;
        if (!first) return;
        const written = writeSync(STDERR, first);
        this.#waitingBytes -= written;
        if (written === first.length) this.#waiting.shift();
        else this.#waiting[0] = first.subarray(written);
      }
    } catch (error) {
      this.#noteFailure(error);
    }
  }

  #noteFailure(error: unknown): void {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'EAGAIN') {
      // The reader is slow: waiting for it would block the process.
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.#flush();
      }, RETRY_MS).unref();
      return;
    }
    failedWrites.stderr += 1;
    // The next line tries again, unless the reader has gone.
    if (code !== 'EPIPE') return;
    this.#waiting = [];
    this.#waitingBytes = 0;
  }
}
