// The calls that run in one child: gives each its messages, and settles all when the child has ended. A brand of their
// errors tells the worker how each ends the attempt that throws it; assignBlame follows the rule of a crashed thread.
import type { MetricsRecorder } from '../handler/define.ts';
import { BRAND, findContextLoss, type RetryAdvice } from '../handler/thrown.ts';
import { FrameError } from './frame.ts';
import {
  type CallKind,
  type CallMessage,
  type ChildError,
  type ProcessLog,
  type RecordedMetrics,
  readError,
} from './messages.ts';

/** What a call reports to while it runs: a handler's `ctx` has all of it. */
interface CallSinks {
  log: ProcessLog | undefined;
  metrics: Pick<MetricsRecorder, 'add' | 'set'> | undefined;
  progress: ((value: unknown) => void) | undefined;
}

export interface CallOptions {
  id: number;
  /** Equal for calls of the same job. */
  owner: unknown;
  sinks: CallSinks;
  wants: CallKind;
  /** Lets the child send this many more bytes of items. */
  grant: (bytes: number) => void;
  windowBytes: number;
  /** The input contains these words, so an error may quote them. */
  quotes: (words: string) => boolean;
}

interface Item {
  value: unknown;
  metrics: RecordedMetrics | undefined;
  bytes: number;
}

export type CallEnd = { kind: 'result'; value: unknown } | { kind: 'cancelled' };

/** A call whose child has its frame, until the child has left it. */
export class RunningCall {
  readonly id: number;
  readonly owner: unknown;
  readonly sinks: CallSinks;
  readonly wants: CallKind;
  readonly quotes: CallOptions['quotes'];
  /** The error of the call that showed that the child has lost its context; the call ends with the child. */
  contextError: ChildError | undefined;
  /** Settles when the child has left the call; rejects with the error of the call or the child. */
  readonly end: Promise<CallEnd>;
  readonly #end = Promise.withResolvers<CallEnd>();
  readonly #grant: (bytes: number) => void;
  readonly #windowBytes: number;
  #items: Item[] = [];
  #nextItem = 0;
  #wake: (() => void) | undefined;
  #consumedBytes = 0;
  /** Credit that the child has left, bytes; the last item may exceed it. */
  #credit: number;
  #isOver = false;
  #isUnsent = false;

  constructor({ grant, id, owner, quotes, sinks, wants, windowBytes }: CallOptions) {
    this.id = id;
    this.wants = wants;
    this.quotes = quotes;
    this.owner = owner;
    this.sinks = sinks;
    this.#grant = grant;
    this.#windowBytes = windowBytes;
    this.#credit = windowBytes;
    this.end = this.#end.promise;
    this.end.catch(() => undefined);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get isUnsent(): boolean {
    return this.#isUnsent;
  }

  /** The child had closed its end before the call was written. */
  noteUnsent(): void {
    this.#isUnsent = true;
  }

  /** The next item that has arrived; its metrics are recorded now, beside its own chunk. */
  takeItem(): { value: unknown } | undefined {
    const item = this.#items[this.#nextItem];
    if (item === undefined) return undefined;
    this.#nextItem += 1;
    if (this.#nextItem === this.#items.length) {
      this.#items = [];
      this.#nextItem = 0;
    }
    this.#consumedBytes += item.bytes;
    // Half of the window at a time: an own frame for each small item would cost more than the item.
    if (!this.#isOver && this.#consumedBytes * 2 >= this.#windowBytes) {
      this.#grant(this.#consumedBytes);
      this.#credit += this.#consumedBytes;
      this.#consumedBytes = 0;
    }
    this.#record(item.metrics);
    return item;
  }

  /** Resolves when an item has arrived or the call is over. */
  async change(): Promise<void> {
    if (this.#items.length > 0 || this.#isOver) return;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
  }

  /** @throws FrameError if the child sends more than it has credit for */
  addItem(item: Item): void {
    if (this.#credit <= 0) throw new FrameError(`call ${this.id} has no credit for more items`);
    this.#credit -= item.bytes;
    this.#items.push(item);
    this.#awaken();
  }

  complete(end: CallEnd, metrics?: RecordedMetrics): void {
    this.#settle();
    try {
      this.#record(metrics);
      this.#end.resolve(end);
    } catch (error) {
      this.#end.reject(error);
    }
  }

  fail(error: Error): void {
    this.#settle();
    this.#end.reject(error);
  }

  #settle(): void {
    this.#isOver = true;
    this.#awaken();
  }

  #awaken(): void {
    this.#wake?.();
    this.#wake = undefined;
  }

  #record(recorded: RecordedMetrics | undefined): void {
    const { metrics } = this.sinks;
    if (recorded === undefined || metrics === undefined) return;
    for (const [name, value] of Object.entries(recorded.add)) metrics.add(name, value);
    for (const [name, value] of Object.entries(recorded.set)) metrics.set(name, value);
  }
}

/** A call whose error shows that the child has lost its context on a device. */
export interface LostContext {
  words: string;
  culprit: number;
}

export class RunningCalls {
  readonly #calls = new Map<number, RunningCall>();
  #completed = 0;
  /** Words of a line on standard error, since the last result, that show a lost context. */
  #printedLoss: string | undefined;
  #lastFailed: number | undefined;

  get size(): number {
    return this.#calls.size;
  }

  /** The calls that have ended while the child lived. */
  get completed(): number {
    return this.#completed;
  }

  /** The log of the only job that runs; undefined if there are none or several. */
  get onlyLog(): ProcessLog | undefined {
    const [first, ...others] = this.#calls.values();
    if (first === undefined || others.some(({ owner }) => owner !== first.owner)) return undefined;
    return first.sinks.log;
  }

  add(call: RunningCall): void {
    this.#calls.set(call.id, call);
  }

  find(id: number | undefined): RunningCall | undefined {
    return id === undefined ? undefined : this.#calls.get(id);
  }

  /**
   * A line on standard error counts if a call has failed since the last result, or fails before the next one: a function
   * may catch the error and raise another one.
   */
  noteLine(line: string): LostContext | undefined {
    const words = findContextLoss(line);
    if (words === undefined) return undefined;
    for (const call of this.#calls.values()) if (call.quotes(words)) return undefined;
    this.#printedLoss = words;
    return this.#lastFailed === undefined ? undefined : { words, culprit: this.#lastFailed };
  }

  /** @throws FrameError if the message names no running call */
  receive(message: Exclude<CallMessage, { type: 'log' }>, bytes: number): LostContext | undefined {
    const call = this.#calls.get(message.id);
    if (call === undefined) {
      // A thread of the child that outlives its call may report on.
      if (message.type === 'progress') return undefined;
      throw new FrameError(
        `a frame of type "${message.type}" names call ${message.id}, which does not run`,
      );
    }
    switch (message.type) {
      case 'item':
        call.addItem({ value: message.value, metrics: message.metrics, bytes });
        return undefined;
      case 'progress':
        this.#report(call, message.value);
        return undefined;
      default:
        return this.#end(call, message);
    }
  }

  #end(call: RunningCall, message: EndMessage): LostContext | undefined {
    const found = findError(message, call);
    const words = found && (found.words ?? this.#printedLoss);
    if (words !== undefined) {
      call.contextError = found?.error;
      return { words, culprit: call.id };
    }
    this.#calls.delete(call.id);
    this.#completed += 1;
    if (message.type === 'error') {
      this.#lastFailed = call.id;
      call.fail(new ModelCallError(message.error));
    } else if (message.type === 'cancelled') call.complete({ kind: 'cancelled' });
    else {
      this.#lastFailed = undefined;
      this.#printedLoss = undefined;
      call.complete({ kind: 'result', value: message.value }, message.metrics);
    }
    return undefined;
  }

  /** The child has ended. `describe`: the message of each call's error. */
  settleAll(describe: string, culprit: number | undefined): void {
    const calls = [...this.#calls.values()];
    const blames = assignBlame(calls, culprit);
    this.#calls.clear();
    for (const call of calls) {
      const { contextError: error } = call;
      if (error) call.fail(new ModelCallError(error, 'context_lost'));
      else call.fail(new ModelProcessError(describe, blames.get(call.id)));
    }
  }

  /** A value that is too large is the call's own error, not one of this thread. */
  #report(call: RunningCall, value: unknown): void {
    try {
      call.sinks.progress?.(value);
    } catch (error) {
      call.sinks.log?.warn({ err: error }, 'progress of a model process was refused');
    }
  }
}

type EndMessage = Extract<CallMessage, { type: 'error' | 'cancelled' | 'result' }>;

interface FoundError {
  error: ChildError;
  /** Words that show a lost context. */
  words: string | undefined;
}

/** The error of a message, or of an input of a batch if that input lost the context. */
function findError(message: EndMessage, { quotes, wants }: RunningCall): FoundError | undefined {
  const judge = (error: ChildError): FoundError => {
    const { message: text, stack = '', type } = error;
    const words = findContextLoss(`${type}: ${text}\n${stack}`);
    return { error, words: words !== undefined && !quotes(words) ? words : undefined };
  };
  if (message.type === 'error') return judge(message.error);
  if (message.type !== 'result' || wants !== 'batch' || !Array.isArray(message.value)) {
    return undefined;
  }
  for (const result of message.value) {
    const isFailed = typeof result === 'object' && result !== null && 'error' in result;
    if (!isFailed || typeof result.error !== 'object' || result.error === null) continue;
    const found = judge(readError(result.error));
    if (found.words !== undefined) return found;
  }
  return undefined;
}

/** An exception that the called function raised; `name` is its class in the child. */
export class ModelCallError extends Error {
  override readonly name: string;
  readonly [BRAND]: RetryAdvice | undefined;

  /** `context_lost`: the child had lost its context on a device, and is replaced. */
  constructor(error: ChildError, end?: 'context_lost') {
    const { message, stack, type } = error;
    super(message);
    this.name = type;
    if (stack !== undefined) this.stack = stack;
    this[BRAND] = end ? { kind: end } : readAdvice(error);
  }
}

function readAdvice({ counts = true, retry }: ChildError): RetryAdvice | undefined {
  if (retry === 'default') return undefined;
  return retry === 'never' ? { kind: 'never' } : { kind: 'after', ms: retry, counts };
}

/** How a call ended with its child: caused it alone, was one of several, or had no part in it. */
export type Blame = 'culprit' | 'suspect' | 'neighbour';

const ADVICE: Readonly<Record<Blame, RetryAdvice>> = {
  culprit: { kind: 'crashed' },
  suspect: { kind: 'released', reason: 'suspect' },
  neighbour: { kind: 'released', reason: 'neighbour' },
};

/**
 * The child died, hung or broke the protocol. An attempt that throws it fails with
 * `model_process_crashed` or `gpu_context_lost` if only this call can be the cause; else its job returns to the
 * queue without a failure.
 */
export class ModelProcessError extends Error {
  override readonly name: string = 'ModelProcessError';
  readonly blame: Blame;
  readonly [BRAND]: RetryAdvice;

  /** `context_lost`: the child had lost its context on a device, and this call is the culprit. */
  constructor(message: string, blame: Blame = 'culprit', end?: 'context_lost') {
    super(message);
    this.blame = blame;
    this[BRAND] = end && blame === 'culprit' ? { kind: end } : ADVICE[blame];
  }
}

/** The call took longer than its `timeoutMs` or the process's `callTimeoutMs`. */
export class ModelTimeoutError extends Error {
  override readonly name: string = 'TimeoutError';
}

interface RunningShare {
  id: number;
  /** Equal for calls of the same job. */
  owner: unknown;
  /** The child had closed its end before the call was written. */
  isUnsent?: boolean;
}

/**
 * A call that the child never got is a neighbour. Of the others: if the culprit is known, or all calls belong to one job,
 * only that job is to blame. If the culprit has ended before, no call is to blame. Otherwise each call is a suspect: its
 * job runs alone next.
 */
export function assignBlame(
  calls: readonly RunningShare[],
  culprit: number | undefined,
): Map<number, Blame> {
  const owners = new Set(calls.flatMap(({ isUnsent, owner }) => (isUnsent ? [] : [owner])));
  const guilty = calls.find(({ id }) => id === culprit)?.owner;
  const judge = ({ isUnsent, owner }: RunningShare): Blame => {
    if (isUnsent) return 'neighbour';
    if (culprit !== undefined) return owner === guilty ? 'culprit' : 'neighbour';
    return owners.size === 1 ? 'culprit' : 'suspect';
  };
  return new Map(calls.map((call) => [call.id, judge(call)]));
}
