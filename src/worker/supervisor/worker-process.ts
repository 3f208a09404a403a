// One worker process from its parent's side: starts it, receives its messages, checks its heartbeats, asks it to exit,
// and reports its death to the platform. keeper.ts decides about its replacement, and which deaths are reported.
import { type ChildProcess, spawn } from 'node:child_process';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { readLines } from '../../base/text/line-reader.ts';
import type { LeaseRef, WorkerBye, WorkerIdentity } from '../../wire/link/worker-link.ts';
import { MAX_LISTED } from '../../wire/message-bounds.ts';
import type { BreakerState } from '../circuit-breaker.ts';
import { createTag, endLeftProcesses, removeTempFolders, TAG_VARIABLE } from '../leftovers.ts';
import type { WorkerHealth } from '../worker.ts';
import { type FromWorker, isFromWorker, type ToWorker } from './parent-channel.ts';

/** Longest line of its output. */
const MAX_LINE_CHARS = 65_536;

/** How long a worker may take to answer; its event loop runs no handler code. */
const ANSWER_MS = 2_000;

const CHECK_MS = 5_000;
/**
 * Checks in a row without a new heartbeat before the process counts as silent. Checks are counted
 * instead of time, because after a pause of the whole machine everything is late.
 */
const MAX_MISSED = 12;

const RETRY_MS = [200, 1_000];
const MAX_DETAIL = 4_000;

interface WorkerProcessOptions {
  /** Program and arguments. */
  command: readonly string[];
  environment: Readonly<Record<string, string | undefined>>;
  /** Written to its standard input, which handlers do not see. Default: nothing. */
  input?: string;
  /**
   * Receives each line of its output. Default: the output goes where this process's output goes.
   */
  onLine?: (line: string) => void;
}

/** How the process ended: with a code, or by a signal. Both are null if it never started. */
export interface ProcessEnd {
  code: number | null;
  signal: string | null;
}

export interface ProcessAnswer {
  health: WorkerHealth;
  /** As exported by prom-client; undefined if metrics are off. */
  metrics: unknown;
}

interface ProcessActivity {
  running: number;
  ended: number;
}

export class WorkerProcess {
  /** True once it takes jobs, false if it ended before. */
  readonly ready: Promise<boolean>;
  readonly ended: Promise<ProcessEnd>;
  readonly pid: number | undefined;
  /** Known before its first call to the platform. */
  identity: WorkerIdentity | undefined;
  /** The reason that the process gave for its exit. */
  failure: { reason: string; isFinal: boolean; exitCode?: number } | undefined;
  /** Why the process asked to be replaced; undefined if it did not. */
  recycling: string | undefined;
  /** The platform has drained it. */
  isDismissed = false;
  activity: ProcessActivity | undefined;
  /** The process has completed an attempt. */
  hasCompleted = false;
  /** Breaker state; undefined if it has not changed since the start. */
  breaker: BreakerState | undefined;
  /** Its GPU may be another worker's: a new process must not start a model there. */
  isParked = false;
  /** The process runs a solo job, which may crash it. */
  runsSolo = false;
  /** Number of heartbeats so far. */
  beats = 0;
  readonly #child: ChildProcess;
  readonly #tag = createTag();
  readonly #questions = new Map<number, (answer: ProcessAnswer | undefined) => void>();
  #nextQuestion = 1;
  #hasEnded = false;
  #exitingCode: number | undefined;

  constructor(options: WorkerProcessOptions) {
    this.#child = start(options, this.#tag);
    this.pid = this.#child.pid;
    this.ended = new Promise((resolve) => {
      const end = (end: ProcessEnd) => {
        this.#hasEnded = true;
        for (const answer of this.#questions.values()) answer(undefined);
        resolve(end);
      };
      this.#child.once('exit', (code, signal) => {
        this.#killStragglers();
        // While Node shuts a process down, a signal that was handled before kills it.
        const isLate = signal === 'SIGTERM' && this.#exitingCode !== undefined;
        const how = isLate ? { code: this.#exitingCode ?? null, signal: null } : { code, signal };
        // Its last messages may be read after its exit, in the same iteration of the event loop.
        setImmediate(end, how);
      });
      this.#child.on('error', (error: NodeJS.ErrnoException) => {
        if (this.#child.pid !== undefined) return;
        // A lack of memory or of free process IDs may be temporary.
        const isFinal = error.code === 'ENOENT' || error.code === 'EACCES';
        this.failure = { reason: `cannot be started: ${error.message}`, isFinal };
        end({ code: null, signal: null });
      });
    });
    const { promise: becameReady, resolve: becomeReady } = Promise.withResolvers<boolean>();
    this.#child.on('message', (message) => {
      if (!isFromWorker(message)) return;
      this.beats += 1;
      if (message.type === 'ready') becomeReady(true);
      else this.#receive(message);
    });
    this.ready = Promise.race([becameReady, this.ended.then(() => false)]);
  }

  /** Takes nothing more and exits when its jobs are done; a second call makes it exit at once. */
  drain(): void {
    this.#child.kill('SIGTERM');
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  send(message: ToWorker): void {
    // The death of a process is detected by its exit.
    if (this.#child.connected) this.#child.send(message, () => {});
  }

  /** Undefined if it does not answer in time, or cannot answer yet. */
  ask(): Promise<ProcessAnswer | undefined> {
    if (this.#hasEnded || !this.identity) return Promise.resolve(undefined);
    const number = this.#nextQuestion++;
    return new Promise((resolve) => {
      const answer = (value: ProcessAnswer | undefined) => {
        clearTimeout(timer);
        this.#questions.delete(number);
        resolve(value);
      };
      const timer = setTimeout(() => answer(undefined), ANSWER_MS);
      this.#questions.set(number, answer);
      this.send({ type: 'ask', number });
    });
  }

  /** Kills processes that handlers started and left running. */
  #killStragglers(): void {
    if (this.pid === undefined) return;
    try {
      process.kill(-this.pid, 'SIGKILL');
    } catch {
      // The process group has no process.
    }
    // Processes that have left the process group are found by their tag.
    endLeftProcesses(this.#tag);
    // After them: they may still write files.
    void removeTempFolders(this.#tag);
  }

  #receive(message: Exclude<FromWorker, { type: 'ready' }>): void {
    switch (message.type) {
      case 'identity':
        this.identity = { workerId: message.workerId, incarnation: message.incarnation };
        return;
      case 'beat':
        this.activity = { running: message.running, ended: message.ended };
        return;
      case 'completed':
        this.hasCompleted = true;
        return;
      case 'breaker':
        this.breaker = message.state;
        return;
      case 'parked':
        this.isParked = message.isParked;
        return;
      case 'solo':
        this.runsSolo = message.isRunning;
        return;
      case 'failed':
        this.failure = {
          reason: message.reason,
          isFinal: message.isFinal,
          exitCode: message.exitCode,
        };
        return;
      case 'recycling':
        this.recycling = message.reason;
        return;
      case 'dismissed':
        this.isDismissed = true;
        return;
      case 'exiting':
        this.#exitingCode = message.code;
        return;
      case 'answer':
        this.#questions.get(message.number)?.({ health: message.health, metrics: message.metrics });
    }
  }
}

/** The parts of a worker process that the keeper uses. */
export type SupervisedProcess = Pick<WorkerProcess, keyof WorkerProcess>;

export function describeEnd({ code, signal }: ProcessEnd): string {
  if (signal !== null) return `ended by ${signal}`;
  return code === null ? 'not started' : `exited with code ${code}`;
}

function start(
  { command, environment, input = '', onLine }: WorkerProcessOptions,
  tag: string,
): ChildProcess {
  const [program = '', ...args] = command;
  const output = onLine ? 'pipe' : 'inherit';
  const child = spawn(program, args, {
    env: { ...environment, [TAG_VARIABLE]: tag },
    stdio: ['pipe', output, output, 'ipc'],
    // A group of its own: Ctrl-C reaches only the parent, which lets its workers finish. The group
    // also identifies processes that are left behind.
    detached: true,
  });
  // A process that ends before it reads is detected by its exit.
  child.stdin?.on('error', () => {}).end(input);
  for (const stream of onLine ? [child.stdout, child.stderr] : []) {
    if (stream && onLine) readLines(stream, { maxChars: MAX_LINE_CHARS, onLine });
  }
  return child;
}

type BeatingProcess = Pick<SupervisedProcess, 'beats'>;

interface HeartbeatCheckOptions<Process extends BeatingProcess> {
  clock: Clock;
  /** The process that must send heartbeats now, if any. */
  findProcess: () => Process | undefined;
  onSilent: (process: Process) => void;
}

/** Detects a process whose event loop is blocked. It runs no handler code, so a blocked one is broken. */
export class HeartbeatCheck<Process extends BeatingProcess = SupervisedProcess> {
  readonly #options: HeartbeatCheckOptions<Process>;
  #process: Process | undefined;
  #beats = 0;
  #missed = 0;
  #cancelNext: () => void = () => {};

  constructor(options: HeartbeatCheckOptions<Process>) {
    this.#options = options;
  }

  start(): void {
    this.#cancelNext = this.#options.clock.after(CHECK_MS, () => {
      this.start();
      this.#check();
    });
  }

  stop(): void {
    this.#cancelNext();
  }

  #check(): void {
    const process = this.#options.findProcess();
    if (!process) return;
    const isAlive = this.#process !== process || this.#beats !== process.beats;
    this.#process = process;
    this.#beats = process.beats;
    this.#missed = isAlive ? 0 : this.#missed + 1;
    if (this.#missed === MAX_MISSED) this.#options.onSilent(process);
  }
}

export interface CrashReportsOptions {
  sayBye: (bye: WorkerBye) => Promise<void>;
  /** Attempts whose outcome a dead process left on disk. */
  readUndelivered: (workerId: string) => Promise<LeaseRef[]>;
  clock: Clock;
  log: Log;
}

/**
 * Reports dead processes to the platform, so that their jobs return to the queue at once instead of when their leases
 * expire.
 */
export class CrashReports {
  readonly #options: CrashReportsOptions;
  readonly #open = new Set<Promise<void>>();
  /** Aborted when there is no more time for retries. */
  readonly #timeUp = new AbortController();

  constructor(options: CrashReportsOptions) {
    this.#options = options;
  }

  /** Reports nothing about a process that the platform cannot know. */
  report(process: SupervisedProcess, end: ProcessEnd, reason: WorkerBye['reason']): void {
    const reported = this.#report(process, end, reason).finally(() => this.#open.delete(reported));
    this.#open.add(reported);
  }

  /** Resolves when everything is reported, or after one last attempt. */
  async end(): Promise<void> {
    this.#timeUp.abort();
    await Promise.all(this.#open);
  }

  async #report(
    { failure, identity }: SupervisedProcess,
    end: ProcessEnd,
    reason: WorkerBye['reason'],
  ): Promise<void> {
    if (!identity) return;
    const { clock, log, readUndelivered, sayBye } = this.#options;
    const { signal } = this.#timeUp;
    const outbox = (await readUndelivered(identity.workerId)).slice(0, MAX_LISTED);
    const detail = (failure?.reason ?? describeEnd(end)).slice(0, MAX_DETAIL);
    for (const waitMs of [...RETRY_MS, undefined]) {
      try {
        return await sayBye({ ...identity, reason, outbox, detail });
      } catch (error) {
        log.debug({ err: error }, 'crash report failed');
        // Its leases expire by themselves, and its successor's hello has the same effect.
        if (waitMs === undefined || signal.aborted) return;
        await sleep(clock, waitMs, signal);
      }
    }
  }
}
