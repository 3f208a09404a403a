// Stops a call on an abort or a timeout, and decides how it ends.
import type { CallEnd, RunningCall } from './calls.ts';
import type { KeptChild } from './child-keeper.ts';
import { ModelProcessError, ModelTimeoutError } from './errors.ts';
import type { CompleteOptions } from './options.ts';

export interface StartedCall {
  kept: KeptChild;
  call: RunningCall;
}

export interface StopOptions {
  signal?: AbortSignal;
  timeoutMs?: number;
}

interface StopCause {
  /** `left`: the consumer of a stream has left it. */
  kind: 'aborted' | 'timeout' | 'left';
  error: unknown;
}

/** A longer timer of Node would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Asks the child to leave the call, and replaces a child that does not. */
export class CallStop {
  readonly #options: CompleteOptions;
  readonly #started: StartedCall;
  readonly #signal: AbortSignal | undefined;
  #cause: StopCause | undefined;
  #timeout: NodeJS.Timeout | undefined;
  #patience: NodeJS.Timeout | undefined;

  constructor(options: CompleteOptions, started: StartedCall, { signal, timeoutMs }: StopOptions) {
    this.#options = options;
    this.#started = started;
    this.#signal = signal;
    signal?.addEventListener('abort', this.#abort);
    const limitMs = Math.min(timeoutMs ?? Infinity, options.callTimeoutMs ?? Infinity);
    if (Number.isFinite(limitMs)) {
      this.#timeout = setTimeout(
        () => {
          const error = new ModelTimeoutError(`the call took longer than ${limitMs} ms`);
          this.#stop({ kind: 'timeout', error });
        },
        Math.min(limitMs, MAX_TIMER_MS),
      );
    }
    if (signal?.aborted) this.#abort();
  }

  get isStopped(): boolean {
    return this.#cause !== undefined;
  }

  /** The result, or the reason why there is none. */
  async conclude(): Promise<unknown> {
    const { call } = this.#started;
    let end: CallEnd;
    try {
      end = await call.end;
    } catch (error) {
      // A call that did not leave after its timeout took the child down.
      const isCrash = error instanceof ModelProcessError && this.#cause?.kind === 'timeout';
      throw isCrash ? error : (this.#cause?.error ?? error);
    }
    if (this.#cause) throw this.#cause.error;
    if (end.kind === 'result') return end.value;
    throw new ModelProcessError('the model process cancelled a call that nobody had cancelled');
  }

  /** The consumer of a stream has left: resolves when the child has too. */
  async leave(): Promise<void> {
    this.#stop({ kind: 'left', error: new Error('the consumer left the stream') });
    await this.#started.call.end.catch(() => undefined);
  }

  end(): void {
    this.#signal?.removeEventListener('abort', this.#abort);
    clearTimeout(this.#timeout);
    clearTimeout(this.#patience);
  }

  readonly #abort = () => this.#stop({ kind: 'aborted', error: this.#signal?.reason });

  #stop(cause: StopCause): void {
    const { call, kept } = this.#started;
    if (this.#cause || call.isOver) return;
    this.#cause = cause;
    clearTimeout(this.#timeout);
    kept.child.send({ type: 'cancel', id: call.id });
    const { cancelTimeoutMs } = this.#options;
    this.#patience = setTimeout(() => {
      kept.child.fail(`did not leave a stopped call within ${cancelTimeoutMs} ms`, call.id);
    }, cancelTimeoutMs);
  }
}
