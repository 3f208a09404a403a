// One call of a batch function: gives it the jobs, passes its chunks and outputs on to them, and holds the
// last job until the function has settled.
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Log } from '../../base/log.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { findSteps, type Steps } from '../attempt/chunk-emitter.ts';
import { type EndHold, type Held, HOLD } from '../attempt/hold.ts';
import { Refusal } from '../attempt/refusal.ts';
import { StopError } from '../attempt/stop.ts';
import type { BatchContext, BatchFunction, BatchJob } from '../define.ts';
import { type ConsoleOwner, currentOwner, type LogLines } from '../log-lines.ts';
import type { BatchMember } from './member.ts';

export interface BatchRunOptions {
  run: BatchFunction;
  /** One or more. */
  members: readonly BatchMember[];
  devices: readonly Device[];
  createLog: () => Log;
  lines: LogLines;
}

/** `thrown`: the jobs that have not ended are left to the caller. */
type BatchRunEnd = { kind: 'ended' } | { kind: 'thrown'; thrown: unknown };

/** Runs code outside of the attempt that happens to start the batch, and of its span. */
const runOutside = AsyncLocalStorage.snapshot();

export class BatchRun implements BatchContext, ConsoleOwner, Held {
  /** If there is one job, a crash in the function's code is that job's. */
  readonly attemptNumber: number | undefined;
  readonly devices: readonly Device[];
  readonly lines: LogLines;
  readonly #options: BatchRunOptions;
  readonly #jobs: readonly BatchJob[];
  readonly #abort = new AbortController();
  #log: Log | undefined;
  #live: number;
  #isSettled = false;

  constructor(options: BatchRunOptions) {
    const { devices, lines, members } = options;
    this.#options = options;
    this.devices = devices;
    this.lines = lines;
    this.attemptNumber = members.length === 1 ? members[0]?.ctx.number : undefined;
    this.#jobs = members.map(({ job }) => job);
    this.#live = members.length;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get log(): Log {
    this.#log ??= this.#options.createLog();
    return this.#log;
  }

  // Fields and not methods, so that `const { fail } = ctx` works.
  fail = (job: BatchJob | number, error: unknown): void => {
    const member = this.#find(job);
    if (!member) throw new TypeError(`ctx.fail: ${this.#describeForeign(job)}`);
    if (!this.#isSettled) member.failEarly(error);
  };

  refreshWorker = (): void => {
    for (const { ctx } of this.#options.members) ctx.refreshWorker();
  };

  /** A hold of all jobs of the batch. */
  [HOLD] = (): EndHold => {
    const ends = this.#options.members.map(({ ctx }) => ctx[HOLD]());
    return () => {
      for (const end of ends) end();
    };
  };

  /** Never rejects. */
  execute(): Promise<BatchRunEnd> {
    return runOutside(() => currentOwner.run(this, () => this.#execute()));
  }

  has(member: BatchMember): boolean {
    return this.#options.members.includes(member);
  }

  /**
   * A member wants to leave. The last one stays until the function has settled; at a shutdown, which
   * stops all jobs, all stay, because their outputs may still come in time.
   */
  mayLeave(reason: unknown): 'now' | 'later' {
    if (this.#isSettled) return 'now';
    this.#live -= 1;
    const isShutdown = reason instanceof StopError && reason.reason === 'shutdown';
    if (this.#live > 0) return isShutdown ? 'later' : 'now';
    this.#abort.abort(reason instanceof Error ? reason : new Error('the job has failed'));
    return 'later';
  }

  async #execute(): Promise<BatchRunEnd> {
    const { members, run } = this.#options;
    try {
      const answer: unknown = await run(this.#jobs, this);
      const steps = Array.isArray(answer) ? undefined : findSteps(answer);
      const end = steps ? await this.#drive(steps) : { returned: answer };
      this.#isSettled = true;
      if (end === 'interrupted') this.#letGo();
      else if (steps && end.returned === undefined) this.#complete('streams', undefined);
      else this.#complete(steps ? 'streams' : 'values', this.#checkOutputs(end.returned));
    } catch (thrown) {
      this.#isSettled = true;
      this.#letGo();
      if (!(thrown instanceof Refusal)) return { kind: 'thrown', thrown };
      for (const member of members) member.fail(thrown);
    }
    return { kind: 'ended' };
  }

  #letGo(): void {
    for (const member of this.#options.members) member.letGo();
  }

  /** `interrupted`: all jobs have left. */
  async #drive(steps: Steps): Promise<{ returned: unknown } | 'interrupted'> {
    while (this.#live > 0) {
      const step = await steps.next();
      if (step.done) return { returned: await step.value };
      try {
        await this.#pass(await step.value);
      } catch (error) {
        // An error during the cleanup would hide the reason of the cleanup.
        await Promise.resolve(steps.return?.()).catch(() => undefined);
        throw error;
      }
    }
    await steps.return?.();
    return 'interrupted';
  }

  #pass(value: unknown): Promise<void> | undefined {
    if (typeof value !== 'object' || value === null || !('job' in value) || !('output' in value)) {
      throw new Refusal(
        'output_invalid',
        `the batch function yielded ${describe(value)}; yield { job, output }`,
      );
    }
    const member = this.#find(value.job);
    if (!member) {
      throw new Refusal(
        'output_invalid',
        `the batch function yielded an output for a wrong job: ${this.#describeForeign(value.job)}`,
      );
    }
    const metrics = 'metrics' in value ? value.metrics : undefined;
    if (metrics === undefined) return member.push(value.output);
    try {
      return member.push(member.ctx.chunk(value.output, readMetrics(metrics)));
    } catch (error) {
      member.failEarly(error);
      return undefined;
    }
  }

  #find(job: unknown): BatchMember | undefined {
    const { members } = this.#options;
    if (typeof job === 'number') return members[job];
    return members.find((member) => member.job === job);
  }

  #describeForeign(job: unknown): string {
    const count = this.#jobs.length;
    if (typeof job === 'number')
      return `index ${job}, but the batch has ${count} jobs, 0 to ${count - 1}`;
    if (typeof job === 'object' && job !== null && 'id' in job) {
      return `job ${String(job.id)} is not one of the ${count} jobs of this batch`;
    }
    return `${describe(job)} is neither a job of this batch nor an index`;
  }

  #checkOutputs(outputs: unknown): unknown[] {
    const { length } = this.#jobs;
    if (!Array.isArray(outputs)) {
      throw new Refusal(
        'output_invalid',
        `the batch function returned ${describe(outputs)}; return an array of ${length} outputs, one for each job`,
      );
    }
    if (outputs.length !== length) {
      throw new Refusal(
        'output_invalid',
        `the batch function returned ${outputs.length} outputs for ${length} jobs`,
      );
    }
    return outputs;
  }

  #complete(kind: 'streams' | 'values', outputs: unknown[] | undefined): void {
    for (const [index, member] of this.#options.members.entries()) {
      const output: unknown = outputs?.[index];
      if (kind === 'streams') member.completeStream(output);
      else if (isStream(output)) member.fail(new Refusal('output_invalid', STREAM_IN_ARRAY));
      else member.complete(output);
    }
  }
}

const STREAM_IN_ARRAY =
  'the output of the job is a stream; make the batch function an async generator that yields { job, output }';

function isStream(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return Symbol.asyncIterator in value || ('next' in value && typeof value.next === 'function');
}

/** `ctx.chunk` checks the numbers. @throws TypeError */
function readMetrics(value: unknown): Record<string, number> {
  if (typeof value === 'object' && value !== null) return { ...value };
  throw new TypeError(`metrics must be an object of numbers, got ${describe(value)}`);
}

function describe(value: unknown): string {
  if (value === null) return 'null';
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return `an array of ${value.length}`;
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
