// A queue and an executor that do what a test tells them: every call is kept, and waits for its
// answer unless a rule gives one.
import { ManualClock } from '../../../src/base/clock.ts';
import type { BatchEvent } from '../../../src/handler/batch/settings.ts';
import type { LoadedConfig } from '../../../src/handler/loading/load.ts';
import type {
  Lease,
  RenewReply,
  RenewRequest,
  Report,
  ReportReply,
  ReportRequest,
  TakeRequest,
  WorkerBye,
  WorkerHello,
  WorkerLink,
  WorkerWelcome,
} from '../../../src/wire/link/worker-link.ts';
import type {
  Execution,
  ExecutionEnd,
  ExecutionSink,
  Executor,
  ExecutorParking,
  ExecutorStart,
  StopReason,
} from '../../../src/worker/execution/executor.ts';
import { createWorker, type Worker, type WorkerOptions } from '../../../src/worker/worker.ts';

export interface OpenCall<Request, Answer> {
  request: Request;
  signal: AbortSignal;
  answer: (answer: Answer) => void;
  fail: (error: Error) => void;
}

export const welcome: WorkerWelcome = {
  protocol: 1,
  leaseMs: 15_000,
  renewEveryMs: 5_000,
  takeWaitMs: 20_000,
};

export class ScriptedLink implements WorkerLink {
  readonly hellos: WorkerHello[] = [];
  readonly takes: OpenCall<TakeRequest, Lease[]>[] = [];
  readonly renewals: OpenCall<RenewRequest, RenewReply>[] = [];
  readonly reportCalls: ReportRequest[] = [];
  readonly byes: WorkerBye[] = [];
  onHello: () => Promise<WorkerWelcome> = async () => welcome;
  onReport: (reports: Report[]) => Promise<ReportReply[]> = async (reports) =>
    reports.map(() => ({ answer: 'applied' }));
  onBye: () => Promise<void> = async () => {};

  hello(hello: WorkerHello): Promise<WorkerWelcome> {
    this.hellos.push(hello);
    return this.onHello();
  }

  take(request: TakeRequest, signal: AbortSignal): Promise<Lease[]> {
    return open(this.takes, request, signal);
  }

  renew(request: RenewRequest, signal: AbortSignal): Promise<RenewReply> {
    return open(this.renewals, request, signal);
  }

  report(request: ReportRequest): Promise<ReportReply[]> {
    this.reportCalls.push(request);
    return this.onReport(request.reports);
  }

  bye(bye: WorkerBye): Promise<void> {
    this.byes.push(bye);
    return this.onBye();
  }

  get lastTake(): OpenCall<TakeRequest, Lease[]> {
    return last(this.takes);
  }

  get lastRenewal(): OpenCall<RenewRequest, RenewReply> {
    return last(this.renewals);
  }

  /** Every report of every call, in their order, as `job#seq kind`. */
  get reported(): string[] {
    return this.reportCalls.flatMap(({ reports }) => reports.map(nameReport));
  }
}

export function nameReport(report: Report): string {
  const what = report.kind === 'outcome' ? report.outcome.kind : report.kind;
  return `${report.jobId}#${report.seq} ${what}`;
}

export class ScriptedExecution implements Execution {
  readonly lease: Lease;
  readonly timeoutMs: number;
  readonly sink: ExecutionSink;
  readonly end: Promise<ExecutionEnd>;
  readonly stops: StopReason[] = [];
  stopDetail: string | undefined;
  granted = 0;
  /** Acknowledged ones. */
  steps = 0;
  finish: (end: ExecutionEnd) => void = () => {};

  constructor(lease: Lease, timeoutMs: number, sink: ExecutionSink) {
    this.lease = lease;
    this.timeoutMs = timeoutMs;
    this.sink = sink;
    this.end = new Promise((resolve) => {
      this.finish = resolve;
    });
  }

  complete(output = '{}'): void {
    this.finish({
      outcome: { kind: 'completed', executionMs: 7, output: 'value' },
      output: Buffer.from(output),
    });
  }

  stop(reason: StopReason, detail?: string): void {
    this.stops.push(reason);
    this.stopDetail ??= detail;
  }

  grant(bytes: number): void {
    this.granted += bytes;
  }

  kept(count: number): void {
    this.steps += count;
  }
}

export class ScriptedExecutor implements Executor {
  readonly slots: number;
  readonly executions: ScriptedExecution[] = [];
  trouble: string | undefined;
  stuckThread: string | undefined;
  freeForMs: number | undefined;
  stopped = false;
  /** Calls the listener of the worker. */
  reportBatch: (event: BatchEvent) => void = () => {};
  reportStart: (start: ExecutorStart) => void = () => {};
  /** False: its slots are not to be had. */
  isUp = true;
  onStart: () => Promise<LoadedConfig> = async () => ({});
  parking: ExecutorParking | undefined;
  #free: number;
  #listener: () => void = () => {};

  constructor(slots: number) {
    this.slots = slots;
    this.#free = slots;
  }

  get free(): number {
    return this.isUp ? this.#free : 0;
  }

  get last(): ScriptedExecution {
    return last(this.executions);
  }

  start(): Promise<LoadedConfig> {
    return this.onStart();
  }

  onChange(listener: () => void): void {
    this.#listener = listener;
  }

  onBatch(listener: (event: BatchEvent) => void): void {
    this.reportBatch = listener;
  }

  onStarted(listener: (start: ExecutorStart) => void): void {
    this.reportStart = listener;
  }

  execute(lease: Lease, timeoutMs: number, sink: ExecutionSink): Execution {
    const execution = new ScriptedExecution(lease, timeoutMs, sink);
    this.executions.push(execution);
    this.#free--;
    void execution.end.then(() => {
      this.#free++;
      this.#listener();
    });
    return execution;
  }

  getStuck(reason: string): void {
    this.stuckThread = reason;
    this.#listener();
  }

  async stop(): Promise<void> {
    this.stopped = true;
  }
}

export interface Script {
  clock: ManualClock;
  link: ScriptedLink;
  executor: ScriptedExecutor;
  worker: Worker;
}

export function script(
  options: {
    slots?: number;
    clock?: ManualClock;
    parking?: ExecutorParking;
  } & Partial<WorkerOptions> = {},
): Script {
  const { slots = 4, clock = new ManualClock(), parking, ...rest } = options;
  const link = new ScriptedLink();
  const executor = new ScriptedExecutor(slots);
  executor.parking = parking;
  const worker = createWorker({
    link,
    executor,
    clock,
    workerId: 'w1',
    incarnation: 3,
    version: '0.0.0',
    devices: [],
    ...rest,
  });
  return { clock, link, executor, worker };
}

/** A worker that is ready, its first take and its first renewal open. */
export async function startScript(options: Parameters<typeof script>[0] = {}): Promise<Script> {
  const started = script(options);
  await started.worker.start();
  await started.clock.advance(0);
  return started;
}

export function lease(jobId: string, changes: Partial<Lease> = {}): Lease {
  return {
    jobId,
    attempt: 1,
    token: `token-${jobId}`,
    executionTimeoutMs: 600_000,
    solo: false,
    submittedAt: 0,
    input: Buffer.from('{}'),
    ...changes,
  };
}

function open<Request, Answer>(
  calls: OpenCall<Request, Answer>[],
  request: Request,
  signal: AbortSignal,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    calls.push({ request, signal, answer: resolve, fail: reject });
  });
}

function last<T>(items: T[]): T {
  const item = items.at(-1);
  if (item === undefined) throw new Error('there was no such call yet');
  return item;
}
