// One child process from its start to its end: its descriptors, its lines, its heartbeat, and its death.
// calls.ts has its calls; child-keeper.ts replaces it.
import { type ChildProcess, spawn } from 'node:child_process';
import { Duplex } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import { killGroup, noteGroup } from '../base/process/process-groups.ts';
import { ModelCallError } from './calls.ts';
import { encodeFrame, FrameError, FrameReader } from './frame.ts';
import {
  type CallMessage,
  type FromChild,
  PROTOCOL,
  parseMessage,
  type ToChild,
} from './messages.ts';
import {
  buildEnvironment,
  type CompleteOptions,
  FRAME_DESCRIPTOR,
  locateProgram,
} from './options.ts';

/** How long the output of a dead child is awaited: another process may hold its descriptors. */
const DRAIN_MS = 500;
/** The child hangs if this many heartbeats in a row got nothing. */
const HEARTBEATS = 4;

const MAX_LINE_CHARS = 8_000;
const LAST_LINES = 20;
const LAST_CHARS = 4_000;

interface ChildEvents {
  /** `bytes`: size of the frame. @throws FrameError to replace the child */
  message(message: CallMessage, bytes: number): void;
  line(stream: 'stdout' | 'stderr', line: string): void;
}

export interface ChildEnd {
  /** Why, with the last lines of standard error; the subject is the child. */
  reason: string;
  /** The call that made it end, if known. */
  culprit: number | undefined;
}

export class ModelChild {
  /** Names of its handlers, when it has loaded its model. Rejects if it ends before. */
  readonly ready: Promise<readonly string[]>;
  /** Resolves when the process is dead and everything that it sent has been received. */
  readonly ended: Promise<ChildEnd>;
  readonly #options: CompleteOptions;
  readonly #process: ChildProcess;
  /** Path of the program, for errors. */
  readonly #program: string;
  readonly #frames: Duplex;
  readonly #events: ChildEvents;
  readonly #lastLines = new LastLines();
  readonly #ready = Promise.withResolvers<readonly string[]>();
  readonly #ended = Promise.withResolvers<ChildEnd>();
  #failure: { reason: string; culprit: number | undefined } | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  #silentBeats = 0;
  #isDead = false;
  /** Its group needs no end if this thread dies. */
  readonly #forgetGroup: () => void;
  #isStopping = false;
  /** It will end, or has ended: what is written to it now is lost. */
  #isEnding = false;
  /** The driver has suspended it, so it need not answer. */
  isSuspended = false;
  #hasHooks = false;
  #move: PromiseWithResolvers<number> | undefined;

  constructor(options: CompleteOptions, events: ChildEvents) {
    this.#options = options;
    this.#events = events;
    this.ready = this.#ready.promise;
    this.ready.catch(() => undefined);
    this.ended = this.#ended.promise;
    const env = buildEnvironment(options.inherited, options.env);
    this.#program = locateProgram(options.command, env['PATH']);
    this.#process = spawn(options.command, [...options.args], {
      cwd: options.cwd,
      env,
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      // A process group of its own: it ends with its own children, and Ctrl-C in a terminal does not
      // reach it while the worker drains.
      detached: true,
    });
    this.#forgetGroup = this.pid === undefined ? () => undefined : noteGroup(this.pid);
    // Before anything can throw: an error without a listener would end the thread.
    this.#process.on('error', (error) => {
      if (this.pid === undefined) this.#settle(`could not be started: ${error.message}`);
    });
    this.#frames = findDuplex(this.#process);
    this.#readLines('stdout');
    this.#readLines('stderr');
    this.#readFrames();
    this.#watchEnd();
    const { maxConcurrent, maxFrameBytes } = options;
    this.send({ type: 'hello', protocol: PROTOCOL, maxConcurrent, maxFrameBytes });
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** A new call would only share the end of this child, and perhaps the blame for it. */
  get isEnding(): boolean {
    return this.#isEnding;
  }

  /** Its program has hooks that park its model. Known when it is ready. */
  get hasHooks(): boolean {
    return this.#hasHooks;
  }

  /**
   * Runs the hooks of its program, which must not run a call. @returns device memory that it has let go, bytes
   * @throws Error if a hook raises, takes too long, or the child ends; then the model is in an unknown state
   */
  async move(to: 'park' | 'wake', limitMs: number): Promise<number> {
    this.#move = Promise.withResolvers();
    this.send({ type: to });
    const { promise, reject } = this.#move;
    const hooks = to === 'park' ? '@on_park' : '@on_wake';
    const timer = setTimeout(() => {
      reject(new Error(`${hooks} took longer than ${limitMs} ms`));
    }, limitMs);
    void this.ended.then(({ reason }) => reject(new Error(reason)));
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#move = undefined;
    }
  }

  send(message: ToChild): void {
    this.write(encodeFrame(JSON.stringify(message)));
  }

  /**
   * Writes the pieces of a frame. A dead child's are dropped. `onUnsent`: called if the child had closed its end before.
   * Its exit may not have been noticed yet.
   */
  write(pieces: readonly Uint8Array[], onUnsent?: () => void): void {
    if (this.#isDead || !this.#frames.writable) {
      onUnsent?.();
      return;
    }
    // Any other error may come after the child has read the frame.
    const noteError = (error: Error | null | undefined) => {
      if (error && 'code' in error && error.code === 'EPIPE') onUnsent?.();
    };
    this.#frames.cork();
    for (const piece of pieces) this.#frames.write(piece, noteError);
    this.#frames.uncork();
  }

  /** Kills the child, which is unusable, with all processes of its group. */
  fail(reason: string, culprit?: number): void {
    if (this.#isDead) return;
    this.#isEnding = true;
    this.#failure ??= { reason, culprit };
    this.#kill();
  }

  /** Asks the child to exit; kills it after `stopTimeoutMs`. */
  async stop(): Promise<void> {
    this.setActive(true);
    this.#isStopping = true;
    this.send({ type: 'stop' });
    this.#frames.end();
    const { stopTimeoutMs } = this.#options;
    const timer = setTimeout(() => this.fail('was stopped'), stopTimeoutMs);
    await this.ended;
    clearTimeout(timer);
  }

  /** A child that is not active does not keep this process running. */
  setActive(isActive: boolean): void {
    const { stderr, stdout } = this.#process;
    for (const handle of [this.#process, this.#frames, stdout, stderr]) {
      if (handle && 'ref' in handle && 'unref' in handle) callRef(handle, isActive);
    }
  }

  #readLines(stream: 'stdout' | 'stderr'): void {
    const lines = new LineCutter((line) => {
      if (stream === 'stderr') this.#lastLines.push(line);
      this.#events.line(stream, line);
    });
    const source = this.#process[stream];
    source?.on('data', (bytes: Buffer) => lines.push(bytes));
    source?.on('error', () => undefined);
    source?.on('close', () => lines.end());
  }

  #readFrames(): void {
    const reader = new FrameReader(this.#options.maxFrameBytes, (frame) => {
      if (!this.#failure) this.#receive(parseMessage(frame), frame.bytes);
    });
    this.#frames.on('data', (bytes: Buffer) => {
      this.#silentBeats = 0;
      if (this.#failure) return;
      try {
        reader.push(bytes);
      } catch (error) {
        if (!(error instanceof FrameError)) throw error;
        this.fail(`broke the protocol: ${error.message}`);
      }
    });
    // Its death explains more.
    this.#frames.on('error', () => undefined);
    this.#frames.on('close', () => {
      this.#isEnding = true;
      if (this.#isStopping || this.#isDead) return;
      setTimeout(() => this.fail('closed the descriptor for its frames'), DRAIN_MS).unref();
    });
  }

  #receive(message: FromChild, bytes: number): void {
    switch (message.type) {
      case 'pong':
        return;
      case 'parked':
        this.#move?.resolve(message.bytes);
        return;
      case 'woken':
        this.#move?.resolve(0);
        return;
      case 'park_failed':
        this.#move?.reject(new ModelCallError(message.error));
        return;
      case 'ready':
        this.#becomeReady(message);
        return;
      default:
        this.#events.message(message, bytes);
    }
  }

  #becomeReady(message: Extract<FromChild, { type: 'ready' }>): void {
    if (message.protocol !== PROTOCOL) {
      throw new FrameError(
        `it speaks version ${message.protocol}; this Millrace speaks version ${PROTOCOL}`,
      );
    }
    this.#hasHooks = message.parks;
    this.#ready.resolve(message.handlers);
    this.#startHeartbeat();
  }

  /** Counts beats instead of time: a thread that was blocked has not read yet what has arrived. */
  #startHeartbeat(): void {
    const { hangTimeoutMs } = this.#options;
    if (hangTimeoutMs === 0 || this.#heartbeat !== undefined || this.#isDead) return;
    const beat = () => {
      if (this.isSuspended) return;
      this.#silentBeats += 1;
      if (this.#silentBeats <= HEARTBEATS) return this.send({ type: 'ping' });
      this.fail(`has not answered for ${hangTimeoutMs} ms`);
    };
    this.#heartbeat = setInterval(beat, Math.max(1, hangTimeoutMs / HEARTBEATS)).unref();
  }

  #watchEnd(): void {
    const { command } = this.#options;
    this.#process.on('exit', (code, signal) => {
      this.#isEnding = true;
      const own = this.#failure === undefined ? describeExit(code, signal) : this.#failure.reason;
      // Its own children may hold the descriptors, and memory of the device.
      this.#kill();
      this.#forgetGroup();
      const settle = () => this.#settle(own);
      const timer = setTimeout(settle, DRAIN_MS);
      this.#process.once('close', () => {
        clearTimeout(timer);
        settle();
      });
    });
    if (this.pid === undefined) this.#frames.destroy(new Error(`${command} did not start`));
  }

  #settle(reason: string): void {
    if (this.#isDead) return;
    this.#isDead = true;
    clearInterval(this.#heartbeat);
    this.#frames.destroy();
    const lines = this.#lastLines.text;
    const cannotImport = /^(?:ModuleNotFoundError|ImportError):/m.test(lines);
    const which = cannotImport ? ` (it ran with ${this.#program})` : '';
    const told =
      lines === '' ? reason : `${reason}${which}; its last lines on standard error:\n${lines}`;
    this.#ready.reject(new Error(told));
    this.#ended.resolve({ reason: told, culprit: this.#failure?.culprit });
  }

  #kill(): void {
    if (this.pid !== undefined) killGroup(this.pid);
  }
}

function callRef(handle: object, isActive: boolean): void {
  const { ref, unref } = handle as { ref: unknown; unref: unknown };
  const call = isActive ? ref : unref;
  if (typeof call === 'function') call.call(handle);
}

function findDuplex(child: ChildProcess): Duplex {
  // Without free descriptors there is no `stdio`, whatever its type says.
  const { stdio }: { stdio: ChildProcess['stdio'] | undefined } = child;
  const stream = stdio?.[FRAME_DESCRIPTOR];
  if (stream instanceof Duplex) return stream;
  throw new Error('the child has no descriptor for frames');
}

function describeExit(code: number | null, signal: NodeJS.Signals | null): string {
  if (signal === 'SIGKILL') return 'was killed by SIGKILL, as the system does when memory runs out';
  return signal === null ? `exited with code ${code}` : `was killed by ${signal}`;
}

/** Cuts a stream of bytes into lines; a longer line is cut in pieces. Empty lines are left out. */
class LineCutter {
  readonly #decoder = new StringDecoder('utf8');
  readonly #onLine: (line: string) => void;
  #rest = '';

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(bytes: Buffer): void {
    const lines = (this.#rest + this.#decoder.write(bytes)).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#emit(line);
    while (this.#rest.length > MAX_LINE_CHARS) {
      this.#emit(this.#rest.slice(0, MAX_LINE_CHARS));
      this.#rest = this.#rest.slice(MAX_LINE_CHARS);
    }
  }

  end(): void {
    this.#emit(this.#rest + this.#decoder.end());
    this.#rest = '';
  }

  #emit(line: string): void {
    // A progress bar returns to the start of its line: only its last state counts.
    const shown = line.replace(/\r$/, '').split('\r').at(-1) ?? '';
    for (let at = 0; at < shown.length; at += MAX_LINE_CHARS) {
      this.#onLine(shown.slice(at, at + MAX_LINE_CHARS));
    }
  }
}

/** The last lines of standard error. */
class LastLines {
  #lines: string[] = [];

  push(line: string): void {
    this.#lines.push(line);
    if (this.#lines.length > LAST_LINES) this.#lines.shift();
  }

  get text(): string {
    return this.#lines.join('\n').slice(-LAST_CHARS);
  }
}
