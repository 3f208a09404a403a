// The public API of `millrace/process`: a long-lived child process that runs a handler's model.
// child-keeper.ts starts and replaces the child; this file makes calls, and stops them on an abort or a timeout.
import { callAfterRun, systemClock } from '../base/clock.ts';
import type { Context } from '../handler/define.ts';
import {
  type CallEnd,
  type LostContext,
  ModelCallError,
  ModelProcessError,
  ModelTimeoutError,
  RunningCall,
  RunningCalls,
} from './calls.ts';
import { ModelChild } from './child.ts';
import { ChildKeeper, type SharedChild } from './child-keeper.ts';
import { detachBytes, encodeFrame, measureFrame } from './frame.ts';
import { KeptProcess, type ModelStartOptions, type RunningModel } from './kept-process.ts';
import { Launcher } from './launcher.ts';
import {
  type CallKind,
  type CallMessage,
  type ProcessLog,
  readError,
  type ToChild,
} from './messages.ts';
import {
  buildEnvironment,
  type CompleteOptions,
  completeOptions,
  type ModelProcessOptions,
} from './options.ts';
import type { OutputStream } from './program.ts';

/** A handler's `ctx` fits. Without a `signal`, a call cannot be cancelled. */
export interface ModelCallOptions extends Partial<Pick<Context, 'signal' | 'metrics'>> {
  /** Receives log lines of the call, and what the child prints while it runs this call alone. */
  log?: ProcessLog;
  progress?: (value: unknown) => void;
  /** Unix ms; the called function can read how much time is left. */
  deadline?: number;
  /** Longest time of the call in the child, ms; beside the process's `callTimeoutMs`. */
  timeoutMs?: number;
}

/** One output of `streamBatch`, for `inputs[index]`. */
export interface BatchItem<Output> {
  index: number;
  output: Output;
}

export interface ModelProcess extends RunningModel {
  /**
   * Calls a function of the child. Bytes in input and output stay bytes. The type of the output is
   * not checked: give the handler an `output` schema.
   *
   * @throws ModelCallError if the function raises an exception. If the exception says that the child has lost its GPU
   * context, the child is dead by then, and the next call gets a new one
   * @throws ModelProcessError if the child ends before the call does
   * @throws the reason of `signal` after an abort, as soon as the child has left the call
   */
  call<Output = unknown>(name: string, input: unknown, options?: ModelCallOptions): Promise<Output>;
  /** Calls a generator of the child. To leave the loop early cancels the call. Throws as `call`. */
  stream<Item = unknown>(
    name: string,
    input: unknown,
    options?: ModelCallOptions,
  ): AsyncGenerator<Item, unknown, void>;
  /** Calls a batch function: the results are in the order of the inputs. Throws as `call`. */
  callBatch<Output = unknown>(
    name: string,
    inputs: readonly unknown[],
    options?: ModelCallOptions,
  ): Promise<PromiseSettledResult<Output>[]>;
  /** Calls a batch generator, which yields outputs of any input in any order. Throws as `call`. */
  streamBatch<Output = unknown>(
    name: string,
    inputs: readonly unknown[],
    options?: ModelCallOptions,
  ): AsyncGenerator<BatchItem<Output>, void, void>;
}

/**
 * Creates a model process for one handler thread. It starts with `start`.
 *
 * @throws TypeError that names the option and its value
 */
export function createModelProcess(options: ModelProcessOptions): ModelProcess {
  // biome-ignore lint/style/noProcessEnv: the child inherits the environment that handlers see.
  return new RestartingModelProcess(completeOptions(options, process.env));
}

function startChild(
  options: CompleteOptions,
  log: ProcessLog,
  launcher: Launcher | undefined,
): ChildWithCalls {
  const calls = new RunningCalls();
  const failIfLost = (loss: LostContext | undefined) => {
    if (loss) child.fail(`has lost its GPU context: ${loss.words}`, loss.culprit);
  };
  const receive = (message: CallMessage, bytes: number) => {
    if (message.type !== 'log') return calls.receive(message, bytes);
    const own = calls.find(message.id)?.sinks.log ?? log;
    own[message.level](message.fields, message.message);
    return undefined;
  };
  const events = {
    message: (message: CallMessage, bytes: number) => failIfLost(receive(message, bytes)),
    line: (stream: OutputStream, line: string) => {
      const level = stream === 'stdout' ? 'info' : 'warn';
      (calls.onlyLog ?? log)[level]({ stream }, line);
      if (stream === 'stderr') failIfLost(calls.noteLine(line));
    },
  };
  const child = new ModelChild(options, events, launcher);
  if (launcher) {
    // It does not slow down the start of the model.
    const env = buildEnvironment(options.inherited, options.env);
    child.ready.then(
      () => launcher.open(env, log),
      () => undefined,
    );
  }
  return { calls, child };
}

class RestartingModelProcess extends KeptProcess<ModelChild, RunningCalls> implements ModelProcess {
  readonly #options: CompleteOptions;
  readonly #launcher: Launcher | undefined;
  #nextId = 1;

  constructor(options: CompleteOptions) {
    const launcher = options.preload.length > 0 ? new Launcher(options) : undefined;
    super(new ChildKeeper(options, (log) => startChild(options, log, launcher)));
    this.#options = options;
    this.#launcher = launcher;
  }

  override async start(options?: ModelStartOptions): Promise<void> {
    try {
      await super.start(options);
    } catch (error) {
      // Nobody calls `teardown` after a setup that failed.
      this.#launcher?.stop();
      throw error;
    }
  }

  override async stop(): Promise<void> {
    await super.stop();
    this.#launcher?.stop();
  }

  async call<Output>(name: string, input: unknown, options: ModelCallOptions = {}) {
    // The type is the caller's claim about what their own program returns.
    return (await this.#complete('value', name, input, options)) as Output;
  }

  async callBatch<Output>(
    name: string,
    inputs: readonly unknown[],
    options: ModelCallOptions = {},
  ): Promise<PromiseSettledResult<Output>[]> {
    const results = await this.#complete('batch', name, inputs, options);
    if (!Array.isArray(results) || results.length !== inputs.length) {
      const found = Array.isArray(results) ? `${results.length} results` : typeof results;
      throw new TypeError(`${name} returned ${found} for ${inputs.length} inputs`);
    }
    return results.map((result) => readResult<Output>(name, result));
  }

  async *stream<Item>(
    name: string,
    input: unknown,
    options: ModelCallOptions = {},
  ): AsyncGenerator<Item, unknown, void> {
    const { call, shared } = await this.#begin('items', name, input, options);
    const stop = new CallStop(this.#options, { call, shared }, options);
    try {
      while (!stop.isStopped) {
        const item = call.takeItem();
        if (item) yield item.value as Item;
        else if (call.isOver) break;
        else await call.change();
      }
      // A generator that returns nothing has no value, as in JavaScript.
      return (await stop.conclude()) ?? undefined;
    } finally {
      if (!call.isOver) await stop.leave();
      stop.end();
    }
  }

  async *streamBatch<Output>(
    name: string,
    inputs: readonly unknown[],
    options: ModelCallOptions = {},
  ): AsyncGenerator<BatchItem<Output>, void, void> {
    for await (const item of this.stream(name, inputs, options)) {
      const [index, output] = Array.isArray(item) ? item : [];
      if (!Number.isInteger(index) || index < 0 || index >= inputs.length) {
        const found = JSON.stringify(index);
        throw new TypeError(`${name} yielded index ${found} for ${inputs.length} inputs`);
      }
      yield { index, output };
    }
  }

  async #complete(wants: CallKind, name: string, input: unknown, options: ModelCallOptions) {
    const started = await this.#begin(wants, name, input, options);
    const stop = new CallStop(this.#options, started, options);
    try {
      return await stop.conclude();
    } finally {
      stop.end();
    }
  }

  async #begin(
    wants: CallKind,
    name: string,
    input: unknown,
    options: ModelCallOptions,
  ): Promise<StartedCall> {
    const { signal } = options;
    const shared = await this.keeper.acquireFor(options);
    try {
      shared.checkName(name);
      const id = this.#nextId++;
      const { streamWindowBytes: windowBytes } = this.#options;
      const frame = this.#encodeCall({ id, name, wants }, input, options);
      const { log, metrics } = options;
      const call = new RunningCall({
        id,
        wants,
        quotes: (words) => detachBytes(input, 'input').json.includes(words),
        owner: signal ?? {},
        sinks: { log, metrics, progress: options.progress },
        grant: (bytes) => shared.child.send({ type: 'credit', id, bytes }),
        windowBytes,
      });
      shared.calls.add(call);
      shared.child.write(frame, () => call.noteUnsent());
      void call.end.catch(() => undefined).then(() => this.keeper.release(shared));
      return { shared, call };
    } catch (error) {
      this.keeper.release(shared);
      throw error;
    }
  }

  #encodeCall(
    { id, name, wants }: { id: number; name: string; wants: CallKind },
    input: unknown,
    { deadline, timeoutMs }: ModelCallOptions,
  ): Uint8Array[] {
    const { callTimeoutMs, maxFrameBytes, streamWindowBytes } = this.#options;
    const { attachments, json, pieces } = detachBytes(input, 'input');
    const left = deadline === undefined ? Number.POSITIVE_INFINITY : deadline - Date.now();
    // A deadline of another clock, as in a test, says nothing.
    const times = [callTimeoutMs, timeoutMs, left > 0 ? left : undefined];
    const remainingMs = Math.min(...times.filter((time) => time !== undefined));
    const message: ToChild = {
      type: 'call',
      id,
      name,
      wants,
      ...(wants === 'items' && { credit: streamWindowBytes }),
      ...(Number.isFinite(remainingMs) && { remainingMs: Math.round(remainingMs) }),
    };
    const more = attachments.length === 0 ? '' : `,"attachments":${JSON.stringify(attachments)}`;
    const head = `${JSON.stringify(message).slice(0, -1)}${more},"value":${json}}`;
    const frame = encodeFrame(head, pieces);
    const bytes = measureFrame(frame);
    if (bytes <= maxFrameBytes) return frame;
    throw new TypeError(
      `the input of ${name} is ${bytes} bytes; the limit of its process is ${maxFrameBytes} (maxFrameBytes)`,
    );
  }
}

function readResult<Output>(name: string, result: unknown): PromiseSettledResult<Output> {
  if (typeof result === 'object' && result !== null) {
    if ('value' in result) return { status: 'fulfilled', value: result.value as Output };
    if ('error' in result) {
      return { status: 'rejected', reason: new ModelCallError(readError(result.error)) };
    }
  }
  throw new TypeError(`${name} returned a result without value and error`);
}

interface ChildWithCalls {
  child: ModelChild;
  calls: RunningCalls;
}

type SharedProcess = SharedChild<ModelChild, RunningCalls>;

interface StartedCall {
  shared: SharedProcess;
  call: RunningCall;
}

interface StopOptions {
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
class CallStop {
  readonly #options: CompleteOptions;
  readonly #started: StartedCall;
  readonly #signal: AbortSignal | undefined;
  #cause: StopCause | undefined;
  #endTimeout: (() => void) | undefined;
  #patience: NodeJS.Timeout | undefined;

  constructor(options: CompleteOptions, started: StartedCall, { signal, timeoutMs }: StopOptions) {
    this.#options = options;
    this.#started = started;
    this.#signal = signal;
    signal?.addEventListener('abort', this.#abort);
    const limitMs = Math.min(timeoutMs ?? Infinity, options.callTimeoutMs ?? Infinity);
    if (Number.isFinite(limitMs)) {
      const { standstill } = started.shared;
      this.#endTimeout = callAfterRun(
        systemClock,
        Math.min(limitMs, MAX_TIMER_MS),
        standstill,
        () => {
          const error = new ModelTimeoutError(`the call took longer than ${limitMs} ms`);
          this.#stop({ kind: 'timeout', error });
        },
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
    this.#endTimeout?.();
    clearTimeout(this.#patience);
  }

  readonly #abort = () => this.#stop({ kind: 'aborted', error: this.#signal?.reason });

  #stop(cause: StopCause): void {
    const { call, shared } = this.#started;
    if (this.#cause || call.isOver) return;
    this.#cause = cause;
    this.#endTimeout?.();
    shared.child.send({ type: 'cancel', id: call.id });
    const { cancelTimeoutMs } = this.#options;
    this.#patience = setTimeout(() => {
      shared.child.fail(`did not leave a stopped call within ${cancelTimeoutMs} ms`, call.id);
    }, cancelTimeoutMs);
  }
}
