// The parts of a worker, each made after those that it needs, and closed before them. worker.ts starts and drains them.
import { Attempts } from './attempts.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import { GpuAccounts } from './gpu/gpu-accounts.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import { MemoryGuard } from './memory-guard.ts';
import { WorkerParker } from './parking/worker-parking.ts';
import { Reporter } from './reports/reporter.ts';
import { Session } from './session.ts';
import { WorkerStarts } from './starts.ts';
import { OpenTake, TakeLoop, Wakeup } from './take-loop.ts';
import type { CompleteWorkerOptions } from './worker-options.ts';

/** What parts ask of the worker. */
export interface WorkerControl {
  /** The worker cannot continue. */
  fail(error: unknown): void;
  /** The platform wants the worker to drain. */
  drain(): void;
  /** A new process must take over. `now`: do not wait for running jobs. */
  recycle(reason: string, pace: 'now' | 'idle'): void;
  /** A handler has asked for a new process, and no job runs. */
  replace(): void;
}

export interface WorkerParts {
  readonly session: Session;
  readonly starts: WorkerStarts;
  readonly reporter: Reporter;
  /** Undefined without a GPU. */
  readonly gpus: GpuAccounts | undefined;
  readonly breaker: CircuitBreaker;
  readonly attempts: Attempts;
  /** Undefined without a limit. */
  readonly memoryGuard: MemoryGuard | undefined;
  readonly parker: WorkerParker;
  readonly takeLoop: TakeLoop;
  readonly leaseKeeper: LeaseKeeper;
  /** Stops all of them; further calls have no effect. Attempts run on. */
  close(): void;
}

interface PartContext {
  readonly options: CompleteWorkerOptions;
  readonly control: WorkerControl;
  /** More jobs may fit now: wakes the take loop. */
  readonly room: Wakeup;
  readonly openTake: OpenTake;
  readonly closing: DisposableStack;
}

export function openParts(options: CompleteWorkerOptions, control: WorkerControl): WorkerParts {
  const closing = new DisposableStack();
  const signals = { room: new Wakeup(), openTake: new OpenTake() };
  const context: PartContext = { options, control, ...signals, closing };
  const starts = openStarts(context);
  const session = openSession(context, starts);
  const reporter = openReporter(context, session);
  const gpus = openGpuAccounts(context);
  const breaker = openBreaker(context);
  const attempts = openAttempts(context, { reporter, gpus, breaker, starts });
  const memoryGuard = openMemoryGuard(context, attempts);
  const parker = openParker(context, attempts);
  const before = { session, starts, reporter, gpus, breaker, attempts, memoryGuard, parker };
  const takeLoop = openTakeLoop(context, before);
  const leaseKeeper = openLeaseKeeper(context, before);
  watchExecutor(context);
  return { ...before, takeLoop, leaseKeeper, close: () => closing.dispose() };
}

function openStarts({ options }: PartContext): WorkerStarts {
  const { before = { beganAt: performance.timeOrigin }, clock, executor } = options;
  return new WorkerStarts({ executor, before, clock });
}

function openSession({ closing, options }: PartContext, starts: WorkerStarts): Session {
  const end = new AbortController();
  closing.defer(() => end.abort());
  return new Session(options, starts, end.signal);
}

function openReporter(
  { closing, control, options, room }: PartContext,
  session: Session,
): Reporter {
  const reporter = new Reporter(options, {
    session,
    onFatal: (error) => control.fail(error),
    onAnswered: () => room.wake(),
  });
  return closing.adopt(reporter, () => reporter.stop());
}

function openGpuAccounts({ control, options, room }: PartContext): GpuAccounts | undefined {
  const { clock, devices } = options;
  const count = devices.filter(({ kind }) => kind === 'gpu').length;
  if (count === 0) return undefined;
  return new GpuAccounts({
    devices: count,
    clock,
    onRelief: () => room.wake(),
    onRecycle: (reason) => control.recycle(reason, 'idle'),
  });
}

function openBreaker({ closing, control, options, room }: PartContext): CircuitBreaker {
  const breaker = new CircuitBreaker({
    clock: options.clock,
    log: options.log,
    failures: options.breakAfter,
    state: options.breakerState,
    onChange: (state) => options.observer?.breakerChanged(state),
    onRelief: () => room.wake(),
    onRecycle: (reason) => control.recycle(reason, 'idle'),
  });
  return closing.adopt(breaker, () => breaker.stop());
}

function openAttempts(
  { control, options, room }: PartContext,
  parts: Pick<WorkerParts, 'reporter' | 'gpus' | 'breaker' | 'starts'>,
): Attempts {
  const attempts = new Attempts(options, parts);
  attempts.onChange(() => {
    room.wake();
    if (attempts.mustRecycle && attempts.active === 0) control.replace();
  });
  return attempts;
}

function openMemoryGuard(
  { closing, control, options, room }: PartContext,
  attempts: Attempts,
): MemoryGuard | undefined {
  const { clock, log, memoryLimitBytes: limitBytes, readRssBytes } = options;
  if (limitBytes === undefined) return undefined;
  const guard = new MemoryGuard({
    clock,
    log,
    attempts,
    limitBytes,
    readRssBytes,
    onRelief: () => room.wake(),
    onRecycle: (reason, pace) => control.recycle(reason, pace),
  });
  return closing.adopt(guard, () => guard.stop());
}

function openParker(
  { closing, control, openTake, options, room }: PartContext,
  attempts: Attempts,
): WorkerParker {
  const { clock, executor, isSpare, log, parkingMachine: machine } = options;
  const parker = new WorkerParker({
    executor,
    machine,
    clock,
    log,
    isSpare,
    breakOff: () => openTake.breakOff(),
    isQuiet: () => attempts.active === 0 && !openTake.isOpen,
    untilQuiet: async () => {
      await openTake.breakOff();
      await attempts.idle();
    },
    onRecycle: (reason, pace) => control.recycle(reason, pace),
  });
  parker.onChange(() => {
    room.wake();
    if (parker.state) options.observer?.parkingChanged(parker.state);
  });
  return closing.adopt(parker, () => parker.stop());
}

function openTakeLoop(
  { closing, openTake, options, room }: PartContext,
  parts: Omit<WorkerParts, 'takeLoop' | 'leaseKeeper' | 'close'>,
): TakeLoop {
  const { attempts, gpus, memoryGuard, parker } = parts;
  const isPaused = () =>
    attempts.mustRecycle ||
    parker.isHolding ||
    (memoryGuard?.isHigh ?? false) ||
    (gpus?.isHolding ?? false);
  const loop = new TakeLoop(options, { ...parts, room, openTake, isPaused });
  return closing.adopt(loop, () => loop.stop());
}

function openLeaseKeeper(
  { closing, control, options }: PartContext,
  {
    attempts,
    parker,
    session,
    starts,
  }: Pick<WorkerParts, 'attempts' | 'parker' | 'session' | 'starts'>,
): LeaseKeeper {
  const onDrain = () => control.drain();
  const keeper = new LeaseKeeper(options, { session, attempts, parker, starts, onDrain });
  return closing.adopt(keeper, () => keeper.stop());
}

function watchExecutor({ control, options, room }: PartContext): void {
  const { executor, observer } = options;
  executor.onBatch((event) => observer?.batchChanged(event));
  executor.onChange(() => {
    room.wake();
    if (executor.stuckThread !== undefined) control.recycle(executor.stuckThread, 'now');
  });
}
