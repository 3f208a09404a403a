// Forks model processes from a process that has imported their packages: millrace_launch.py. One fork waits ahead for the next
// start, so that a start either takes it at once or does without.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { backoffMs } from '../base/backoff.ts';
import { killGroup, noteGroup } from '../base/process/process-groups.ts';
import { readLines } from '../base/text/line-reader.ts';
import { type ProcessLog, silentProcessLog } from './messages.ts';
import type { HostProcess } from './program.ts';

const PROGRAM = fileURLToPath(new URL('./python/millrace_launch.py', import.meta.url));

const MAX_LINE_CHARS = 65_536;
/** How long a connection may take to name its fork, ms. */
const GREETING_MS = 5_000;
const MAX_GREETING = 200;
/** Connections at a time: those of a child that runs and of one that waits. A token keeps strangers out. */
const MAX_CONNECTIONS = 16;
/** How long the report of an end may take after the end of the connection, ms. */
const REPORT_MS = 5_000;
const BACKOFF = { baseMs: 1_000, maxMs: 60_000, jitter: 0.2 };

const ROLES = ['stdout', 'stderr', 'frames'] as const;
type Role = (typeof ROLES)[number];

export interface LauncherOptions {
  command: string;
  args: readonly string[];
  cwd: string | undefined;
  /** Names of Python packages. */
  preload: readonly string[];
}

type Environment = Record<string, string | undefined>;

/** A fork. To the worker it looks like a child process of its own. */
class ForkedProcess extends EventEmitter implements HostProcess {
  readonly pid: number;
  readonly stdout: Socket;
  readonly stderr: Socket;
  readonly stdio: readonly (Socket | null)[];
  readonly #launcher: ChildProcessWithoutNullStreams;
  #isOver = false;

  constructor(
    pid: number,
    { frames, stderr, stdout }: Record<Role, Socket>,
    launcher: ChildProcessWithoutNullStreams,
  ) {
    super();
    this.pid = pid;
    this.stdout = stdout;
    this.stderr = stderr;
    this.stdio = [null, stdout, stderr, frames];
    this.#launcher = launcher;
    frames.once('close', () => {
      if (this.#isOver) return;
      const timer = setTimeout(() => this.end(null, 'SIGKILL'), REPORT_MS);
      this.once('exit', () => clearTimeout(timer));
    });
  }

  begin(): void {
    const [, , , frames] = this.stdio;
    frames?.write('!');
    // The reader of its streams is there by then.
    process.nextTick(() => {
      for (const stream of this.stdio) stream?.resume();
    });
  }

  end(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    let open = 1;
    const close = () => {
      open -= 1;
      if (open === 0) this.emit('close');
    };
    for (const stream of [this.stdout, this.stderr]) {
      if (stream.closed) continue;
      open += 1;
      stream.once('close', close);
    }
    this.emit('exit', code, signal);
    close();
  }

  discard(): void {
    for (const stream of this.stdio) stream?.destroy();
  }

  ref(): void {
    callAll([this.#launcher.stdout], 'ref');
  }

  unref(): void {
    callAll([this.#launcher.stdout], 'unref');
  }
}

interface Fork {
  pid?: number;
  sockets: Partial<Record<Role, Socket>>;
  process?: ForkedProcess;
}

export class Launcher {
  readonly #options: LauncherOptions;
  #log: ProcessLog = silentProcessLog;
  #run: LauncherRun | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #isUnfit = false;

  constructor(options: LauncherOptions) {
    this.#options = options;
  }

  /** Starts it, if it does not run or is not about to. */
  open(env: Environment, log: ProcessLog): void {
    this.#log = log;
    if (this.#run || this.#timer || this.#isUnfit || process.platform !== 'linux') return;
    this.#run = new LauncherRun(this.#options, env, {
      log: this.#log,
      ready: () => {
        this.#failures = 0;
      },
      unfit: (reason) => {
        this.#isUnfit = true;
        this.#log.warn({ reason }, 'launcher cannot fork, model processes start without it');
      },
      end: (reason) => this.#restart(env, reason),
    });
  }

  /** @returns a child that has imported the packages with this environment; undefined if none waits */
  take(env: Environment): HostProcess | undefined {
    const run = this.#run;
    if (!run) return undefined;
    if (run.fits(env)) return run.take();
    this.stop();
    return undefined;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const run = this.#run;
    this.#run = undefined;
    run?.stop();
  }

  #restart(env: Environment, reason: string): void {
    this.#run = undefined;
    if (this.#isUnfit) return;
    this.#failures += 1;
    const waitMs = backoffMs(this.#failures, BACKOFF);
    this.#log.warn({ reason, waitMs }, 'launcher ended, restarting');
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.open(env, this.#log);
    }, waitMs).unref();
  }
}

interface LauncherEvents {
  log: ProcessLog;
  ready(): void;
  unfit(reason: string): void;
  /** It has ended by itself. */
  end(reason: string): void;
}

/** One process of the launcher, with its forks. */
class LauncherRun {
  readonly #env: string;
  readonly #events: LauncherEvents;
  readonly #process: ChildProcessWithoutNullStreams;
  readonly #server: Server;
  readonly #token = randomBytes(16).toString('hex');
  readonly #forks = new Map<number, Fork>();
  readonly #forgetGroup: () => void;
  /** Number of the fork that waits for the next start. */
  #standby = 0;
  #isStopped = false;

  constructor(options: LauncherOptions, env: Environment, events: LauncherEvents) {
    const { args, command, cwd, preload } = options;
    this.#env = JSON.stringify(env);
    this.#events = events;
    // An abstract address of Linux: nothing is left of it on disk.
    const socket = `millrace-${randomBytes(16).toString('hex')}`;
    this.#server = createServer((connection) => this.#greet(connection));
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.on('error', (error) => this.#finish(error.message));
    this.#server.listen(`\0${socket}`).unref();
    this.#process = spawn(command, [PROGRAM], { cwd, env, stdio: 'pipe', detached: true });
    const { pid, stderr, stdin, stdout } = this.#process;
    this.#forgetGroup = pid === undefined ? () => undefined : noteGroup(pid);
    this.#process.on('error', (error) => this.#finish(error.message));
    this.#process.on('close', (code, signal) => this.#finish(signal ?? `code ${code}`));
    stdin.on('error', () => undefined);
    stdin.write(`${JSON.stringify({ args, preload, socket, token: this.#token })}\n`);
    readLines(stdout, { maxChars: MAX_LINE_CHARS, onLine: (line) => this.#receive(line) });
    readLines(stderr, {
      maxChars: MAX_LINE_CHARS,
      onLine: (line) => events.log.warn({ stream: 'stderr' }, line),
    });
    callAll([this.#process, stdin, stdout, stderr], 'unref');
  }

  fits(env: Environment): boolean {
    return JSON.stringify(env) === this.#env;
  }

  take(): ForkedProcess | undefined {
    const fork = this.#forks.get(this.#standby);
    const forked = fork?.process;
    // The one that waited may have died.
    if (!fork) this.#orderFork();
    if (!forked) return undefined;
    this.#events.log.info({ pid: forked.pid }, 'model process forked');
    forked.begin();
    this.#orderFork();
    return forked;
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#process.pid !== undefined) killGroup(this.#process.pid);
    this.#server.close();
  }

  #orderFork(): void {
    this.#standby += 1;
    this.#forks.set(this.#standby, { sockets: {} });
    this.#process.stdin.write(`${this.#standby}\n`);
  }

  #receive(line: string): void {
    const { code, importMs, number, pid, reason, signal, type } = parse(line);
    const fork = typeof number === 'number' ? this.#forks.get(number) : undefined;
    switch (type) {
      case 'ready':
        this.#events.log.info({ pid: this.#process.pid, importMs }, 'launcher ready');
        this.#events.ready();
        this.#orderFork();
        return;
      case 'unfit':
        this.#events.unfit(String(reason));
        return;
      case 'forked':
        if (!fork || typeof pid !== 'number') return;
        fork.pid = pid;
        this.#complete(fork);
        return;
      case 'ended':
        if (typeof number === 'number') this.#forks.delete(number);
        for (const socket of fork?.process ? [] : Object.values(fork?.sockets ?? {})) {
          socket.destroy();
        }
        fork?.process?.end(
          typeof code === 'number' ? code : null,
          typeof signal === 'string' ? (signal as NodeJS.Signals) : null,
        );
        return;
      default:
    }
  }

  /** The first line of a connection has the token, the number of its fork and the role. */
  #greet(connection: Socket): void {
    const timer = setTimeout(() => connection.destroy(), GREETING_MS).unref();
    let text = '';
    const read = (bytes: Buffer) => {
      text += bytes.toString('latin1');
      if (!text.endsWith('\n') && text.length < MAX_GREETING) return;
      connection.pause().off('data', read);
      clearTimeout(timer);
      const [token, number, role] = text.trim().split(' ');
      const fork = this.#forks.get(Number(number));
      const known = ROLES.find((each) => each === role);
      if (token !== this.#token || !fork || !known || fork.sockets[known]) {
        connection.destroy();
        return;
      }
      fork.sockets[known] = connection.unref();
      this.#complete(fork);
    };
    connection.on('data', read);
    connection.on('error', () => undefined);
  }

  #complete(fork: Fork): void {
    const { pid, sockets } = fork;
    const { frames, stderr, stdout } = sockets;
    if (pid === undefined || !frames || !stderr || !stdout || fork.process) return;
    fork.process = new ForkedProcess(pid, { frames, stderr, stdout }, this.#process);
    this.#events.log.debug({ pid }, 'fork waits for the next start');
  }

  #finish(reason: string): void {
    if (this.#process.pid !== undefined) this.#forgetGroup();
    this.#server.close();
    for (const { process: forked } of this.#forks.values()) {
      // The kernel has killed them with the launcher.
      forked?.end(null, 'SIGKILL');
      if (forked && forked.listenerCount('exit') === 0) forked.discard();
    }
    this.#forks.clear();
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#events.end(reason);
  }
}

function parse(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

function callAll(handles: readonly object[], name: 'ref' | 'unref'): void {
  for (const handle of handles) {
    const call: unknown = Reflect.get(handle, name);
    if (typeof call === 'function') call.call(handle);
  }
}
