// One worker process seen from outside: started, listened to, told to leave. When another one is to
// take its place is decided in keeper.ts.
import { type ChildProcess, spawn } from 'node:child_process';
import { readLines } from '../../base/line-reader.ts';
import { createTag, endLeftProcesses, TAG_VARIABLE } from '../left-processes.ts';
import type { WorkerHealth } from '../worker.ts';
import { type FromWorker, isFromWorker, type ToWorker } from './messages.ts';

export interface WorkerProcessOptions {
  /** Program and arguments. */
  command: readonly string[];
  environment: Readonly<Record<string, string | undefined>>;
  /** Written to its standard input, which handlers do not see. Default: nothing. */
  input?: string;
  /** Takes each line of its output; by default that goes where this process's goes. */
  onLine?: (line: string) => void;
}

/** How the process ended: by itself with a code, or by a signal. Both null: it never started. */
export interface ProcessEnd {
  code: number | null;
  signal: string | null;
}

export interface ProcessIdentity {
  workerId: string;
  incarnation: number;
}

export interface ProcessAnswer {
  health: WorkerHealth;
  /** As prom-client exports them; undefined where they are not kept. */
  metrics: unknown;
}

export interface ProcessActivity {
  running: number;
  ended: number;
}

/** Of one line of its output. */
const MAX_LINE_CHARS = 65_536;

/** How long a worker may take to answer a question; its event loop carries no handler's code. */
const ANSWER_MS = 2_000;

export class WorkerProcess {
  /** True once it takes jobs, false if it ended before. */
  readonly ready: Promise<boolean>;
  readonly ended: Promise<ProcessEnd>;
  readonly pid: number | undefined;
  /** Known before it calls the platform for the first time. */
  identity: ProcessIdentity | undefined;
  /** Why it ends, in its own words. */
  failure: { reason: string; isFinal: boolean; isUnfit?: boolean } | undefined;
  /** Why it wants another one in its place. */
  recycling: string | undefined;
  /** The platform told it to leave. */
  isDismissed = false;
  activity: ProcessActivity | undefined;
  /** Signs of life so far. */
  beats = 0;
  readonly #child: ChildProcess;
  readonly #tag = createTag();
  readonly #questions = new Map<number, (answer: ProcessAnswer | undefined) => void>();
  #nextQuestion = 1;
  #hasEnded = false;
  #farewellCode: number | undefined;

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
        // While Node takes a process down, a signal that was handled until then ends it.
        const isLate = signal === 'SIGTERM' && this.#farewellCode !== undefined;
        end(isLate ? { code: this.#farewellCode ?? null, signal: null } : { code, signal });
      });
      this.#child.on('error', (error: NodeJS.ErrnoException) => {
        if (this.#child.pid !== undefined) return;
        // Without memory or room for one more process now, there may be some later.
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

  /** It takes nothing more and leaves when its jobs are done; told again, it leaves at once. */
  drain(): void {
    this.#child.kill('SIGTERM');
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  tell(message: ToWorker): void {
    // One that has just died is noticed by its end.
    if (this.#child.connected) this.#child.send(message, () => {});
  }

  /** Undefined if it does not answer in time, or has not come so far that it could. */
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
      this.tell({ type: 'ask', number });
    });
  }

  /** What handlers have started and nobody ends now. */
  #killStragglers(): void {
    if (this.pid === undefined) return;
    try {
      process.kill(-this.pid, 'SIGKILL');
    } catch {
      // There are none.
    }
    // Those that have left its process group.
    endLeftProcesses(this.#tag);
  }

  #receive(message: Exclude<FromWorker, { type: 'ready' }>): void {
    switch (message.type) {
      case 'identity':
        this.identity = { workerId: message.workerId, incarnation: message.incarnation };
        return;
      case 'beat':
        this.activity = { running: message.running, ended: message.ended };
        return;
      case 'failed':
        this.failure = {
          reason: message.reason,
          isFinal: message.isFinal,
          isUnfit: message.isUnfit,
        };
        return;
      case 'recycling':
        this.recycling = message.reason;
        return;
      case 'dismissed':
        this.isDismissed = true;
        return;
      case 'farewell':
        this.#farewellCode = message.code;
        return;
      case 'answer':
        this.#questions.get(message.number)?.({ health: message.health, metrics: message.metrics });
    }
  }
}

/** What its keeper needs of it. */
export type KeptProcess = Pick<WorkerProcess, keyof WorkerProcess>;

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
    // A group of its own: Ctrl-C is for the parent, which then lets its workers finish, and what
    // they leave behind can be found.
    detached: true,
  });
  // One that ends before it reads is noticed by its end.
  child.stdin?.on('error', () => {}).end(input);
  for (const stream of onLine ? [child.stdout, child.stderr] : []) {
    if (stream && onLine) readLines(stream, { maxChars: MAX_LINE_CHARS, onLine });
  }
  return child;
}
