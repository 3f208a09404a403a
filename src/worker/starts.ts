// Where the time of the worker's last start went, and of the model processes that it has started since. The platform gets it
// with the hello and with each renewal.
import type { Clock } from '../base/clock.ts';
import type { StartParts } from '../wire/job/attempt.ts';
import type { Lease, Outcome, WorkerStart } from '../wire/link/worker-link.ts';
import type { ExecutionSink, Executor, ExecutorStart } from './execution/executor.ts';

/** What came before the worker's process. */
export interface BeforeStart {
  /** When the time of its interpreter began, Unix ms. */
  beganAt: number;
  queueMs?: number;
  installMs?: number;
}

interface WorkerStartsOptions {
  executor: Pick<Executor, 'onStarted'>;
  before: BeforeStart;
  clock: Clock;
}

/** What the platform accepts. */
const MAX_MS = 4_294_967_295;

export class WorkerStarts {
  readonly #options: WorkerStartsOptions;
  #last: WorkerStart | undefined;
  /** The first attempt after the last start. */
  #first: { lease: Lease; beganAt: number } | undefined;

  constructor(options: WorkerStartsOptions) {
    this.#options = options;
    options.executor.onStarted?.((start) => this.#note(start));
  }

  /** Undefined if none was measured. */
  get last(): WorkerStart | undefined {
    return this.#last;
  }

  /** The attempt begins. @returns the sink, watched for the first output if this is the first call after a start */
  watch(lease: Lease, sink: ExecutionSink): ExecutionSink {
    if (!this.#last || this.#first || this.#last.parts.firstCallMs !== undefined) return sink;
    this.#first = { lease, beganAt: this.#options.clock.now() };
    return {
      ...sink,
      chunks: (message) => {
        this.#noteOutput(lease);
        sink.chunks(message);
      },
    };
  }

  noteEnd(lease: Lease, { kind }: Outcome): void {
    if (kind !== 'released') this.#noteOutput(lease);
    else if (this.#first?.lease === lease) this.#first = undefined;
  }

  #noteOutput(lease: Lease): void {
    if (!this.#last || this.#first?.lease !== lease) return;
    const firstCallMs = bound(this.#options.clock.now() - this.#first.beganAt);
    this.#first = undefined;
    this.#last = { ...this.#last, parts: { ...this.#last.parts, firstCallMs } };
  }

  #note(start: ExecutorStart): void {
    const parts = start.of === 'worker' ? this.#describe(start) : describeModel(start);
    this.#first = undefined;
    this.#last = { of: start.of, at: Math.round(this.#options.clock.now()), parts };
  }

  #describe(start: Extract<ExecutorStart, { of: 'worker' }>): StartParts {
    const { beganAt, installMs, queueMs } = this.#options.before;
    return {
      ...(queueMs !== undefined && { queueMs: bound(queueMs) }),
      ...(installMs !== undefined && { installMs: bound(installMs) }),
      interpreterMs: bound(Math.max(0, start.upAt - beganAt) + start.interpreterMs),
      importMs: bound(start.importMs),
      setupMs: bound(start.setupMs),
    };
  }
}

function describeModel(start: Extract<ExecutorStart, { of: 'model' }>): StartParts {
  const { importMs, interpreterMs, setupMs } = start;
  return {
    ...(interpreterMs !== undefined && { interpreterMs }),
    ...(importMs !== undefined && { importMs }),
    setupMs,
  };
}

/** Clocks of two machines differ, and a clock may be set back. */
function bound(ms: number): number {
  return Math.min(Math.max(0, Math.round(ms)), MAX_MS);
}
