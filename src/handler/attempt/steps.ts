// The steps, children and sleeps of one attempt: `ctx.step`, `ctx.run` and `ctx.sleep`. What earlier attempts of the job have
// done is known from its memo. An attempt that must wait ends here: the promises of its waits never settle, so that no code of the
// handler takes the wait for a failure.
import { AsyncLocalStorage } from 'node:async_hooks';
import { setImmediate } from '../../base/clock.ts';
import { LIMITS } from '../../wire/job/job.ts';
import type { ChildRequest, MemoEntry, Wait } from '../../wire/job/memo.ts';
import { isPlainObject, stringifyJson } from '../../wire/json.ts';
import { ChildFailedError, StepError } from '../step-errors.ts';

interface StepsOptions {
  /** JSON list of entries. Empty: the job remembers nothing. */
  memo: Uint8Array;
  /** Sends the result of a step, JSON; `kept` is called for each in turn. Undefined: the platform keeps none. */
  send: ((name: string, result: Uint8Array) => void) | undefined;
  /** Chunks of the attempt have left. */
  hasYielded: () => boolean;
  /** The attempt ends now, and the job waits for these: JSON list. */
  onWait: (waits: Uint8Array) => void;
  warn: (text: string) => void;
}

/** Settles a promise that the handler awaits. */
interface Pending {
  resolve: () => void;
  reject: (reason: unknown) => void;
}

export class AttemptSteps {
  readonly #options: StepsOptions;
  readonly #known = new Map<string, MemoEntry>();
  readonly #used = new Set<string>();
  #bytes: number;
  /** Steps whose function runs, or whose result is not kept yet. */
  #busy = 0;
  #unkept: Pending[] = [];
  #waits: Wait[] = [];
  #waiting: Pending[] = [];
  /** Why nothing can be started any more. */
  #stopReason: Error | undefined;
  #isOver = false;

  constructor(options: StepsOptions) {
    this.#options = options;
    this.#bytes = options.memo.length;
    if (options.memo.length === 0) return;
    const entries: MemoEntry[] = JSON.parse(Buffer.from(options.memo).toString());
    for (const entry of entries) this.#known.set(entry.name, entry);
  }

  step = async <Result>(name: string, act: () => Result | Promise<Result>): Promise<Result> => {
    const known = this.#claim('ctx.step', name, 'step');
    if (known) return readValue<Result>(known);
    this.#busy += 1;
    try {
      const value = await insideStep.run(name, act);
      const result = stringifyJson(value ?? null, `ctx.step("${name}")`);
      await this.#keep(name, Buffer.from(result));
      // As later attempts get it.
      return JSON.parse(result);
    } finally {
      this.#busy -= 1;
      this.#waitSoon();
    }
  };

  run = async <Output>(name: string, child: ChildRequest): Promise<Output> => {
    const { endpoint, input, policy } = child;
    if (!isPlainObject(input)) {
      throw new StepError(`ctx.run("${name}"): input must be an object`);
    }
    const request = {
      ...(endpoint !== undefined && { endpoint }),
      input,
      ...(policy !== undefined && { policy }),
    };
    const json = stringifyJson(request, `ctx.run("${name}")`);
    // Loaded when it is used: a worker starts without it.
    const digest = process
      .getBuiltinModule('node:crypto')
      .hash('sha256', json)
      .slice(0, DIGEST_CHARS);
    const known = this.#claim('ctx.run', name, 'child');
    if (!known) return this.#wait('ctx.run', { kind: 'child', name, digest, ...request });
    if (known.kind === 'child' && known.digest !== digest) {
      throw new StepError(
        `ctx.run("${name}"): an earlier attempt started this child with another input, endpoint or policy. Take what differs from a ctx.step, or give the child another name`,
      );
    }
    if (known.kind === 'child' && 'status' in known) throw new ChildFailedError(known);
    return readValue<Output>(known);
  };

  sleep = async (name: string, time: number | Date): Promise<void> => {
    const until = time instanceof Date ? time.getTime() : undefined;
    const forMs = time instanceof Date ? 0 : Math.ceil(time);
    if (!Number.isSafeInteger(until ?? forMs) || forMs < 0 || forMs > LIMITS.parentWaitMs) {
      throw new StepError(
        `ctx.sleep("${name}"): takes a Date, or ms from 0 to ${LIMITS.parentWaitMs} (30 days)`,
      );
    }
    if (this.#claim('ctx.sleep', name, 'sleep')) return;
    const wait: Wait = { kind: 'sleep', name, ...(until === undefined ? { forMs } : { until }) };
    await this.#wait('ctx.sleep', wait);
  };

  /** The platform has stored so many further results. */
  kept(count: number): void {
    for (const { resolve } of this.#unkept.splice(0, count)) resolve();
  }

  /** The attempt is being stopped. */
  stop(reason: Error): void {
    this.#stopReason ??= reason;
    const pending = [...this.#unkept.splice(0), ...this.#waiting.splice(0)];
    this.#waits = [];
    for (const { reject } of pending) reject(reason);
  }

  /** The handler has ended. */
  close(): void {
    const [first] = this.#waits;
    if (first && !this.#isOver) {
      this.#options.warn(
        `the handler ended without waiting for "${first.name}", so that was not started; await ctx.run and ctx.sleep`,
      );
    }
    this.#isOver = true;
  }

  /** @returns what the job remembers under the name */
  #claim(call: string, name: string, kind: MemoEntry['kind']): MemoEntry | undefined {
    if (!this.#options.send) {
      throw new StepError(`${call}: the platform of this worker keeps no steps`);
    }
    const isName = typeof name === 'string' && name !== '' && name.isWellFormed();
    if (!isName || name.length > LIMITS.stepNameCharacters) {
      throw new StepError(
        `${call}: the name must have 1 to ${LIMITS.stepNameCharacters} characters`,
      );
    }
    const outer = insideStep.getStore();
    if (outer !== undefined) {
      throw new StepError(
        `${call}: "${name}" is inside the function of step "${outer}"; call it in the handler itself`,
      );
    }
    if (this.#used.has(name)) {
      throw new StepError(
        `${call}: the name "${name}" is used twice; each step, child and sleep of a job has its own name`,
      );
    }
    this.#used.add(name);
    const known = this.#known.get(name);
    if (known && known.kind !== kind) {
      throw new StepError(
        `${call}: "${name}" was the name of a ${known.kind} in an earlier attempt`,
      );
    }
    if (!known && this.#known.size >= LIMITS.stepsOfJob) {
      throw new StepError(
        `${call}: a job has at most ${LIMITS.stepsOfJob} steps, children and sleeps`,
      );
    }
    if (!known && this.#stopReason) throw this.#stopReason;
    return known;
  }

  #keep(name: string, result: Buffer): Promise<void> {
    // As the platform keeps it.
    const head = `${JSON.stringify({ kind: 'step', name })},"value":`;
    const bytes = this.#bytes + Buffer.byteLength(head) + result.length;
    if (result.length > LIMITS.stepBytes) {
      throw new StepError(
        `ctx.step("${name}"): the result has ${result.length} bytes of JSON; the limit is ${LIMITS.stepBytes}`,
      );
    }
    if (bytes > LIMITS.memoBytes) {
      throw new StepError(
        `ctx.step("${name}"): the steps of the job have ${bytes} bytes of JSON; the limit is ${LIMITS.memoBytes}`,
      );
    }
    if (this.#stopReason) throw this.#stopReason;
    this.#bytes = bytes;
    this.#known.set(name, { kind: 'step', name, value: undefined });
    this.#options.send?.(name, result);
    return new Promise((resolve, reject) => {
      this.#unkept.push({ resolve, reject });
    });
  }

  /** The promise is only rejected, and only if the attempt is stopped before it ends. */
  #wait(call: string, wait: Wait): Promise<never> {
    if (this.#options.hasYielded()) {
      throw new StepError(
        `${call}("${wait.name}"): the handler has yielded, and clients would get that again after the wait; wait before the first yield`,
      );
    }
    this.#waits.push(wait);
    this.#waitSoon();
    return new Promise((_, reject) => {
      this.#waiting.push({ resolve: () => {}, reject });
    });
  }

  /** Ends the attempt once no step runs, and all that starts in the same moment is known. */
  #waitSoon(): void {
    if (this.#waits.length === 0) return;
    setImmediate(() => {
      if (this.#isOver || this.#busy > 0 || this.#waits.length === 0) return;
      const json = Buffer.from(stringifyJson(this.#waits, 'ctx.run'));
      if (json.length > LIMITS.waitBytes) return this.#refuseWaits(json.length);
      this.#isOver = true;
      this.#options.onWait(json);
    });
  }

  #refuseWaits(bytes: number): void {
    const text = `ctx.run: the children that start at once have ${bytes} bytes of JSON; the limit is ${LIMITS.waitBytes}. Start fewer at once, or store their inputs elsewhere`;
    this.#waits = [];
    for (const { reject } of this.#waiting.splice(0)) reject(new StepError(text));
  }
}

/** Name of the step whose function runs. */
const insideStep = new AsyncLocalStorage<string>();

/** The author says which type the JSON has. */
function readValue<Value>(entry: MemoEntry): Value {
  return ('value' in entry ? entry.value : undefined) as Value;
}

/** 64 bits: a change of the input goes unnoticed once in 2^64. */
const DIGEST_CHARS = 16;
