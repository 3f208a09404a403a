// Runs a job that no platform knows: keeps what its handler remembers, sleeps where the handler sleeps, and then runs it again, as
// the queue does. It starts no children.
import { type Clock, callAt, systemClock } from '../../base/clock.ts';
import { createStoppedOutcome, type StopReason } from '../../handler/attempt/stop.ts';
import { findSleepEnd, type Wait } from '../../wire/job/memo.ts';
import type { Lease } from '../../wire/link/worker-link.ts';
import type { Execution, ExecutionEnd, ExecutionSink, Executor } from './executor.ts';

export interface LoneJobOptions {
  executor: Executor;
  /** Of the first attempt. */
  lease: Lease;
  /** Of each attempt, ms. */
  timeoutMs: number;
  /** On which the job sleeps. Absent: each sleep is over at once. */
  clock?: Clock | undefined;
  /** Why the job starts no children, and what to do. */
  noChildren: string;
}

export class LoneJob {
  readonly #options: LoneJobOptions;
  /** JSON of what the job remembers. */
  readonly #entries: string[] = [];
  #attempt: number;
  #running: Execution | undefined;
  #stopReason: StopReason | undefined;
  #wakeUp: () => void = () => {};

  constructor(options: LoneJobOptions) {
    this.#options = options;
    this.#attempt = options.lease.attempt - 1;
  }

  /** Number of the last attempt. */
  get attempt(): number {
    return this.#attempt;
  }

  /** Begins an attempt, and another one after each sleep. Call it again only to retry the job. */
  execute(sink: ExecutionSink): Omit<Execution, 'kept'> {
    return {
      end: this.#run(sink),
      stop: (reason, detail) => {
        this.#stopReason ??= reason;
        this.#running?.stop(reason, detail);
        this.#wakeUp();
      },
      grant: (bytes) => this.#running?.grant(bytes),
    };
  }

  async #run(sink: ExecutionSink): Promise<ExecutionEnd> {
    for (;;) {
      const end = await this.#runOnce(sink).end;
      if (end.outcome.kind !== 'waiting' || !end.output) return end;
      const { executionMs } = end.outcome;
      const waits: Wait[] = JSON.parse(Buffer.from(end.output).toString());
      const failure = await this.#wait(waits, executionMs);
      if (failure) return failure;
    }
  }

  #runOnce(sink: ExecutionSink): Execution {
    const { executor, lease, timeoutMs } = this.#options;
    this.#attempt += 1;
    const memo = Buffer.from(this.#entries.length === 0 ? '' : `[${this.#entries.join()}]`);
    const input = Buffer.concat([lease.input, memo]);
    const next = { ...lease, attempt: this.#attempt, input, memoBytes: memo.length };
    const running = executor.execute(next, timeoutMs, {
      ...sink,
      step: (name, result) => {
        const head = JSON.stringify({ kind: 'step', name }).slice(0, -1);
        this.#entries.push(`${head},"value":${Buffer.from(result).toString()}}`);
        // The attempt awaits this only after it has sent the result.
        queueMicrotask(() => running.kept(1));
      },
    });
    this.#running = running;
    return running;
  }

  /** @returns the end of the job, if it does not run again */
  async #wait(waits: readonly Wait[], executionMs: number): Promise<ExecutionEnd | undefined> {
    const { clock, noChildren, timeoutMs } = this.#options;
    const child = waits.find(({ kind }) => kind === 'child');
    if (child) return refuse(`ctx.run("${child.name}"): ${noChildren}`, executionMs);
    const sleeps = waits.filter((wait) => wait.kind === 'sleep');
    const { fault, until = 0 } = findSleepEnd(sleeps, (clock ?? systemClock).now());
    if (fault !== undefined) return refuse(fault, executionMs);
    if (clock && !this.#stopReason) await this.#sleep(clock, until);
    if (this.#stopReason) {
      const stopped = {
        reason: this.#stopReason,
        level: 'signal',
        executionMs,
        timeoutMs,
      } as const;
      return { outcome: createStoppedOutcome(stopped), output: undefined };
    }
    this.#entries.push(...sleeps.map(({ kind, name }) => JSON.stringify({ kind, name })));
    return undefined;
  }

  #sleep(clock: Clock, until: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = callAt(clock, until, resolve);
      this.#wakeUp = () => {
        cancel();
        resolve();
      };
    });
  }
}

function refuse(message: string, executionMs: number): ExecutionEnd {
  const error = { code: 'wait_failed', message } as const;
  return { outcome: { kind: 'failed', executionMs, error, retry: 'never' }, output: undefined };
}
