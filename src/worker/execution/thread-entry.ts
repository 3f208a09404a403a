// The code inside a handler thread: loads the handler's module, runs its setup, then its jobs, as
// long as the thread lives. Imports no zod, no pino, nothing large: each thread would need that
// memory.
import { enableCompileCache, flushCompileCache } from 'node:module';
import { getHeapStatistics } from 'node:v8';
import { type MessagePort, threadId } from 'node:worker_threads';
import {
  type Clock,
  clearTimeout,
  elapsedTime,
  setImmediate,
  setTimeout,
} from '../../base/clock.ts';
import { onModelStart } from '../../base/process/model-starts.ts';
import { addKnown, listParkables, NO_ROOM, type Parkable } from '../../base/process/parkables.ts';
import { shareGroups } from '../../base/process/process-groups.ts';
import type { EndHold } from '../../handler/attempt/hold.ts';
import { type AttemptSink, type Invocation, invoke } from '../../handler/attempt/invoke.ts';
import { StopError } from '../../handler/attempt/stop.ts';
import { type BatchCollector, bindBatches } from '../../handler/batch/collector.ts';
import type { SetupContext } from '../../handler/define.ts';
import {
  describeInput,
  HandlerLoadError,
  type LoadedHandler,
  loadHandler,
} from '../../handler/loading/load.ts';
import { CheckError, runRegisteredChecks } from '../../handler/loading/registered-checks.ts';
import {
  type ConsoleOwner,
  captureConsole,
  captureOutput,
  createLinesLog,
  currentOwner,
  LogLines,
} from '../../handler/log-lines.ts';
import { describeThrown } from '../../handler/thrown.ts';
import { PortOutbox, unpack } from './port-outbox.ts';
import type {
  FromThread,
  LaneTask,
  ParkingAct,
  ParkingAnswer,
  ThreadEnding,
  ToThread,
} from './thread-messages.ts';

const { timeOrigin } = performance;
/** On the timers from before a job replaces them. */
const monotonicClock: Clock = {
  now: () => timeOrigin + elapsedTime(),
  after(ms, act) {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
};

/** The piscina task of a thread; it ends after teardown, or with the thread. */
export function serveLane(task: LaneTask): Promise<void> {
  return new ThreadLane(task).serve();
}

class ThreadLane implements ConsoleOwner {
  readonly attemptNumber = undefined;
  readonly #task: LaneTask;
  readonly #port: MessagePort;
  readonly #outbox: PortOutbox<FromThread>;
  readonly #lines: LogLines;
  readonly #attempts = new Map<number, Invocation>();
  readonly #setupAbort = new AbortController();
  #handler: LoadedHandler | undefined;
  /** Of a batch handler. */
  #batches: BatchCollector | undefined;
  /** Number of the last job that has arrived. */
  #received = 0;
  #isCapacityDue = false;
  /** The attempts stand still while the model processes are suspended. */
  #standing: EndHold[] | undefined;
  #end: () => void = () => undefined;

  constructor(task: LaneTask) {
    this.#task = task;
    this.#port = task.port;
    this.#outbox = new PortOutbox({
      port: task.port,
      schedule: setImmediate,
      payloads: 'given',
    });
    this.#lines = new LogLines({ thread: threadId }, (lines, dropped) => {
      this.#outbox.push({ kind: 'log', number: undefined, dropped }, lines);
    });
  }

  /** Log for output outside of any attempt's code. If only one attempt runs, the output counts as its own. */
  get lines(): LogLines {
    const [attempt] = this.#attempts.values();
    return attempt && this.#attempts.size === 1 ? attempt.lines : this.#lines;
  }

  async serve(): Promise<void> {
    const ended = new Promise<void>((resolve) => {
      this.#end = resolve;
    });
    this.#port.on('message', (packet) => {
      unpack<ToThread>(packet, (message, payload) => this.#receive(message, payload));
    });
    // The worker gave up this lane before it began.
    this.#port.on('close', () => this.#end());
    captureConsole(this);
    captureOutput(this);
    shareGroups(this.#task.groups);
    onModelStart(({ importMs, interpreterMs, setupMs }) => {
      this.#outbox.push({ kind: 'model_started', interpreterMs, importMs, setupMs });
    });
    this.#reportEnd();
    this.#outbox.push({
      kind: 'up',
      threadId,
      heapLimitBytes: getHeapStatistics().heap_size_limit,
    });
    this.#outbox.flush();
    await this.#start();
    await ended;
    this.#port.close();
  }

  async #start(): Promise<void> {
    try {
      // A cached handler needs no type stripper, which takes 18 MB. A thread does not inherit the
      // process's compile cache, and writes its own only at its end unless it is flushed.
      if (this.#task.codeCache !== undefined) enableCompileCache(this.#task.codeCache);
      const handler = await loadHandler(this.#task.handlerPath);
      flushCompileCache();
      const described = this.#task.describesInput && { describedInput: describeInput(handler) };
      this.#outbox.push({ kind: 'loaded', config: { ...handler.config, ...described } });
      this.#outbox.flush();
      const ctx = this.#createSetupContext();
      await runRegisteredChecks(ctx);
      await handler.setup?.(ctx);
      this.#handler = this.#bind(handler);
      this.#lines.flush();
      this.#outbox.push({ kind: 'ready' });
    } catch (error) {
      this.#lines.flush();
      const check = error instanceof CheckError ? error.check : undefined;
      this.#outbox.push({ kind: 'failed', reason: this.#explain(error), check });
    }
    this.#outbox.flush();
  }

  #bind(loaded: LoadedHandler): LoadedHandler {
    const { devices } = this.#task;
    const { batches, handler } = bindBatches(loaded, {
      devices,
      clock: monotonicClock,
      createLog: (bindings) => createLinesLog(this.#lines, bindings),
      lines: this.#lines,
      onChange: () => this.#noteCapacity(),
      onEvent: (event) => this.#outbox.push({ kind: 'batch', event }),
    });
    this.#batches = batches;
    return handler;
  }

  /** Reports the free places of batches, once for all changes of one iteration of the event loop. */
  #noteCapacity(): void {
    if (!this.#batches || this.#isCapacityDue) return;
    this.#isCapacityDue = true;
    setImmediate(() => {
      this.#isCapacityDue = false;
      if (!this.#batches) return;
      const { fillMs, waiting } = this.#batches;
      const free = this.#batches.countFree(this.#attempts.size);
      this.#outbox.push({ kind: 'capacity', received: this.#received, free, waiting, fillMs });
      this.#outbox.flush();
    });
  }

  #explain(error: unknown): string {
    if (error instanceof HandlerLoadError || error instanceof CheckError) return error.message;
    const { message, stack } = describeThrown(error);
    return `${this.#task.handlerPath}: setup() threw: ${stack ?? message}`;
  }

  #createSetupContext(): SetupContext {
    const lines = this.#lines;
    return {
      signal: this.#setupAbort.signal,
      devices: this.#task.devices,
      get log() {
        return createLinesLog(lines, { thread: threadId });
      },
    };
  }

  #receive(message: ToThread, payload: Uint8Array | undefined): void {
    switch (message.kind) {
      case 'job':
        this.#run(message, payload ?? new Uint8Array(0));
        return;
      case 'stop':
        this.#attempts.get(message.number)?.stop(message.reason, message.detail);
        return;
      case 'grant':
        this.#attempts.get(message.number)?.grant(message.bytes);
        return;
      case 'kept':
        this.#attempts.get(message.number)?.kept(message.count);
        return;
      case 'parking':
        void this.#park(message);
        return;
      case 'teardown':
        void this.#tearDown(message.thenWait);
    }
  }

  #run(job: Extract<ToThread, { kind: 'job' }>, input: Uint8Array): void {
    if (!this.#handler) return;
    const { devices, endpointId, windowBytes, limits, tempParent } = this.#task;
    const { number, jobId, attempt, timeoutMs, traceparent, tracestate, s3Config, schedule, solo } =
      job;
    const { keepsSteps, memoBytes } = job;
    this.#received = number;
    const outbox = this.#outbox;
    const sink: AttemptSink = {
      chunks: ({ sizes, bytes }) => outbox.push({ kind: 'chunks', number, sizes }, bytes),
      progress: (value) => outbox.push({ kind: 'progress', number }, value),
      pause: (forMs, limit) => outbox.push({ kind: 'pause', number, forMs, limit }),
      ...(keepsSteps && {
        step: (name, result) => outbox.push({ kind: 'step', number, name }, result),
      }),
      log: (lines, dropped) => outbox.push({ kind: 'log', number, dropped }, lines),
      held: (isHeld) => outbox.push({ kind: 'held', number, isHeld }),
    };
    const clock = monotonicClock;
    const trace = { traceparent, tracestate };
    const lent = { endpointId, timeoutMs, devices, windowBytes, limits, clock, tempParent };
    const given = { input, memoBytes, s3Config, schedule, solo };
    const call = { number, jobId, attempt, ...given, ...trace, ...lent };
    const running = invoke(this.#handler, call, sink);
    this.#attempts.set(number, running);
    this.#standing?.push(running.standStill());
    void running.end.then(({ contextLoss, recycle, outcome, output }) => {
      this.#attempts.delete(number);
      outbox.push({ kind: 'end', number, outcome, recycle, contextLoss }, output);
      this.#noteCapacity();
    });
  }

  async #park({ act, number }: Extract<ToThread, { kind: 'parking' }>): Promise<void> {
    if (act === 'suspend') {
      this.#standing ??= [...this.#attempts.values()].map((attempt) => attempt.standStill());
    }
    const answer = await moveParkables(act);
    if (act === 'wake' && !answer.failure?.hasNoRoom) {
      for (const goOn of this.#standing ?? []) goOn();
      this.#standing = undefined;
    }
    this.#lines.flush();
    this.#outbox.push({ kind: 'parking', number, ...answer });
    this.#outbox.flush();
  }

  async #tearDown(thenWait: boolean): Promise<void> {
    this.#setupAbort.abort(new StopError('shutdown'));
    try {
      await this.#handler?.teardown?.();
    } catch (error) {
      const { message, stack } = describeThrown(error);
      this.#lines.writeText('error', `teardown() threw: ${stack ?? message}`);
    }
    this.#lines.flush();
    if (thenWait) this.#outbox.push({ kind: 'torn_down' });
    this.#outbox.flush();
    if (!thenWait) this.#end();
  }

  /**
   * Reports why the thread ends, and which attempt caused it. The async context of the exception or
   * exit identifies the attempt, so the thread's other attempts are not blamed.
   */
  #reportEnd(): void {
    let because: ThreadEnding['because'] = 'exit';
    let number: number | undefined;
    let thrown: ThreadEnding['thrown'];
    process.on('uncaughtExceptionMonitor', (error, origin) => {
      thrown = describeThrown(error);
      because = origin === 'unhandledRejection' ? 'rejection' : 'uncaught';
      number = currentOwner.getStore()?.attemptNumber;
      // A listener of the handler may keep the thread alive. A later end then has another reason.
      setImmediate(() => {
        because = 'exit';
        number = undefined;
        thrown = undefined;
      });
    });
    process.on('exit', (given) => {
      this.#lines.end();
      // A handler may emit the event itself, with anything or nothing.
      const code = Number.isSafeInteger(given) ? given : 0;
      const culprit = number ?? currentOwner.getStore()?.attemptNumber;
      this.#outbox.push({ kind: 'exit', code, number: culprit, because, thrown });
      this.#outbox.flush();
    });
  }
}

/** Acts on all model processes of this thread, one after the other: a device copies no faster for two. */
async function moveParkables(act: ParkingAct): Promise<ParkingAnswer> {
  const parkables = listParkables();
  try {
    if (act === 'describe') {
      const found = await Promise.all(parkables.map((each) => each.describeParking()));
      const ways = found.map(({ way }) => way);
      if (ways.includes(undefined)) return { bytes: 0 };
      return { way: ways.includes('driver') ? 'driver' : ways[0], bytes: 0 };
    }
    if (act === 'probe') {
      const able = await Promise.all(parkables.map((each) => each.canSuspend?.() ?? false));
      return { bytes: 0, canSuspend: able.length > 0 && !able.includes(false) };
    }
    if (act === 'wake') return await wakeAll(parkables);
    if (act === 'suspend') return await suspendAll(parkables);
    let bytes: number | undefined = 0;
    for (const parkable of parkables) {
      const freed = await parkable.letGo(act === 'park' ? 'parked' : 'ended');
      const isUnknown = freed.bytes === 0 && freed.way === 'hooks';
      bytes = addKnown(bytes, isUnknown ? undefined : freed.bytes);
    }
    return { bytes };
  } catch (error) {
    return { bytes: 0, failure: describeFailure(error) };
  }
}

/** All or none: the caller wakes those that are suspended if one is not. */
async function suspendAll(parkables: readonly Parkable[]): Promise<ParkingAnswer> {
  let bytes = 0;
  for (const parkable of parkables) {
    try {
      if (!parkable.suspend) throw new Error('the handler has an earlier version of Millrace');
      bytes += (await parkable.suspend()).bytes;
    } catch (error) {
      return { bytes, failure: describeFailure(error) };
    }
  }
  return { bytes };
}

/** One without room leaves the others parked. One that does not start is tried again by itself, and the others wake. */
async function wakeAll(parkables: readonly Parkable[]): Promise<ParkingAnswer> {
  let failure: ParkingAnswer['failure'];
  for (const parkable of parkables) {
    try {
      await parkable.wakeUp();
    } catch (error) {
      failure = describeFailure(error);
      if (failure.hasNoRoom) break;
    }
  }
  return { bytes: 0, failure };
}

function describeFailure(error: unknown): { message: string; hasNoRoom: boolean } {
  const { message } = describeThrown(error);
  return { message, hasNoRoom: error instanceof Error && error.name === NO_ROOM };
}
