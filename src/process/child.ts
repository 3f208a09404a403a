// A child that speaks the protocol of frames: its messages, its heartbeat, and how it is asked to stop. program.ts runs its
// program; calls.ts has its calls; child-keeper.ts replaces it.
import { Duplex } from 'node:stream';
import { ModelCallError } from './calls.ts';
import { encodeFrame, FrameError, FrameReader } from './frame.ts';
import type { Launcher } from './launcher.ts';
import {
  type CallMessage,
  type FromChild,
  PROTOCOL,
  parseMessage,
  type StartMarks,
  type ToChild,
} from './messages.ts';
import { buildEnvironment, type CompleteOptions, FRAME_DESCRIPTOR } from './options.ts';
import {
  type ChildEnd,
  DRAIN_MS,
  type HostProcess,
  type OutputStream,
  Program,
} from './program.ts';

/** The child hangs if this many heartbeats in a row got nothing. */
const HEARTBEATS = 4;

interface ChildEvents {
  /** `bytes`: size of the frame. @throws FrameError to replace the child */
  message(message: CallMessage, bytes: number): void;
  line(stream: OutputStream, line: string): void;
}

export class ModelChild {
  /** Names of its handlers, when it has loaded its model. Rejects if it ends before. */
  readonly ready: Promise<readonly string[]>;
  /** Resolves when the process is dead and everything that it sent has been received. */
  readonly ended: Promise<ChildEnd>;
  readonly #options: CompleteOptions;
  readonly #program: Program;
  readonly #frames: Duplex;
  readonly #events: ChildEvents;
  readonly #ready = Promise.withResolvers<readonly string[]>();
  #heartbeat: NodeJS.Timeout | undefined;
  #silentBeats = 0;
  #isStopping = false;
  /** It will end, or has ended: what is written to it now is lost. */
  #isEnding = false;
  /** The driver has suspended it, so it need not answer. */
  isSuspended = false;
  #hasHooks = false;
  #startMarks: StartMarks = {};
  #move: PromiseWithResolvers<number> | undefined;

  /** `launcher`: may have a fork that is ready to run the program. */
  constructor(options: CompleteOptions, events: ChildEvents, launcher?: Launcher) {
    this.#options = options;
    this.#events = events;
    this.ready = this.#ready.promise;
    this.ready.catch(() => undefined);
    const { args, command, cwd, inherited } = options;
    const env = buildEnvironment(inherited, options.env);
    const stdio = ['ignore' as const, 'pipe' as const, 'pipe' as const, 'pipe' as const];
    this.#program = new Program(
      { args, command, cwd, env, stdio, explains: ['stderr'], forked: launcher?.take(env) },
      {
        line: (stream, line) => events.line(stream, line),
        exit: () => {
          this.#isEnding = true;
        },
        settle: (reason) => {
          clearInterval(this.#heartbeat);
          this.#frames.destroy();
          this.#ready.reject(new Error(reason));
        },
      },
    );
    this.ended = this.#program.ended;
    this.#frames = findDuplex(this.#program.process);
    this.#readFrames();
    if (this.pid === undefined) this.#frames.destroy(new Error(`${command} did not start`));
    const { maxConcurrent, maxFrameBytes } = options;
    this.send({ type: 'hello', protocol: PROTOCOL, maxConcurrent, maxFrameBytes });
  }

  get pid(): number | undefined {
    return this.#program.pid;
  }

  /** A new call would only share the end of this child, and perhaps the blame for it. */
  get isEnding(): boolean {
    return this.#isEnding;
  }

  /** Its program has hooks that park its model. Known when it is ready. */
  get hasHooks(): boolean {
    return this.#hasHooks;
  }

  get startMarks(): StartMarks {
    return this.#startMarks;
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
    if (this.#program.isDead || !this.#frames.writable) {
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
    if (this.#program.isDead) return;
    this.#isEnding = true;
    this.#program.fail(reason, culprit);
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
    this.#program.setActive(isActive, [this.#frames]);
  }

  #readFrames(): void {
    const reader = new FrameReader(this.#options.maxFrameBytes, (frame) => {
      if (!this.#program.hasFailed) this.#receive(parseMessage(frame), frame.bytes);
    });
    this.#frames.on('data', (bytes: Buffer) => {
      this.#silentBeats = 0;
      if (this.#program.hasFailed) return;
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
      if (this.#isStopping || this.#program.isDead) return;
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
    this.#startMarks = message.marks;
    this.#ready.resolve(message.handlers);
    this.#startHeartbeat();
  }

  /** Counts beats instead of time: a thread that was blocked has not read yet what has arrived. */
  #startHeartbeat(): void {
    const { hangTimeoutMs } = this.#options;
    if (hangTimeoutMs === 0 || this.#heartbeat !== undefined || this.#program.isDead) return;
    const beat = () => {
      if (this.isSuspended) return;
      this.#silentBeats += 1;
      if (this.#silentBeats <= HEARTBEATS) return this.send({ type: 'ping' });
      this.fail(`has not answered for ${hangTimeoutMs} ms`);
    };
    this.#heartbeat = setInterval(beat, Math.max(1, hangTimeoutMs / HEARTBEATS)).unref();
  }
}

function findDuplex({ stdio }: HostProcess): Duplex {
  const stream = stdio?.[FRAME_DESCRIPTOR];
  if (stream instanceof Duplex) return stream;
  throw new Error('the child has no descriptor for frames');
}
