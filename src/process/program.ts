// Runs one program in a process group of its own: reads its lines, says why it ended, and ends its group. child.ts speaks with
// a model process, server-child.ts with a model server.
import { type SpawnOptions, spawn } from 'node:child_process';
import type { Readable, Stream } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import { killGroup, noteGroup } from '../base/process/process-groups.ts';
import { locateProgram } from './options.ts';

/** How long the output of a dead child is awaited: another process may hold its descriptors. */
export const DRAIN_MS = 500;

const MAX_LINE_CHARS = 8_000;
const LAST_LINES = 20;
const LAST_CHARS = 4_000;

export type OutputStream = 'stdout' | 'stderr';

export interface ChildEnd {
  /** Why, with its last lines; the subject is the child. */
  reason: string;
  /** The call that made it end, if known. */
  culprit: number | undefined;
}

/** A child of this process, or one that a launcher has forked. */
export interface HostProcess {
  readonly pid?: number | undefined;
  readonly stdout: Readable | null;
  readonly stderr: Readable | null;
  /** By descriptor. Not there if the system had no free descriptors. */
  readonly stdio?: readonly (Stream | null | undefined)[];
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(
    event: 'exit',
    listener: (code: number | null, signal: NodeJS.Signals | null) => void,
  ): unknown;
  once(event: 'close', listener: () => void): unknown;
}

export interface ProgramOptions {
  command: string;
  args: readonly string[];
  cwd: string | undefined;
  env: Record<string, string | undefined>;
  stdio: SpawnOptions['stdio'];
  /** Streams whose last lines explain its end. */
  explains: readonly OutputStream[];
  /** It has been started already. */
  forked?: HostProcess | undefined;
}

interface ProgramEvents {
  line(stream: OutputStream, line: string): void;
  /** The process has exited. What it sent may not have arrived yet. */
  exit?(): void;
  /** Before `ended` resolves. */
  settle(reason: string): void;
}

export class Program {
  readonly process: HostProcess;
  /** Resolves when the process is dead and everything that it sent has been received. */
  readonly ended: Promise<ChildEnd>;
  readonly #events: ProgramEvents;
  readonly #explains: readonly OutputStream[];
  /** Path of the program, for errors. */
  readonly #path: string;
  readonly #lastLines: string[] = [];
  readonly #ended = Promise.withResolvers<ChildEnd>();
  #failure: { reason: string; culprit: number | undefined } | undefined;
  /** Its group needs no end if this thread dies. */
  readonly #forgetGroup: () => void;
  #isDead = false;

  constructor(options: ProgramOptions, events: ProgramEvents) {
    const { args, command, cwd, env, explains, forked, stdio } = options;
    this.#events = events;
    this.#explains = explains;
    this.ended = this.#ended.promise;
    this.#path = locateProgram(command, env['PATH']);
    // A process group of its own: it ends with its own children, and Ctrl-C in a terminal does not reach it while the
    // worker drains.
    this.process = forked ?? spawn(command, [...args], { cwd, env, stdio, detached: true });
    this.#forgetGroup = this.pid === undefined ? () => undefined : noteGroup(this.pid);
    // Before anything can throw: an error without a listener would end the thread.
    this.process.on('error', (error) => {
      if (this.pid === undefined) this.#settle(`could not be started: ${error.message}`);
    });
    this.#readLines('stdout');
    this.#readLines('stderr');
    this.#watchEnd();
  }

  get pid(): number | undefined {
    return this.process.pid;
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  get hasFailed(): boolean {
    return this.#failure !== undefined;
  }

  /** Kills it, which is unusable, with all processes of its group. */
  fail(reason: string, culprit?: number): void {
    if (this.#isDead) return;
    this.#failure ??= { reason, culprit };
    this.#kill();
  }

  terminate(): void {
    if (this.pid === undefined || this.#isDead) return;
    try {
      process.kill(this.pid, 'SIGTERM');
    } catch {
      // It has just ended.
    }
  }

  /** A program that is not active does not keep this process running. */
  setActive(isActive: boolean, streams: readonly object[] = []): void {
    const { stderr, stdout } = this.process;
    for (const handle of [this.process, ...streams, stdout, stderr]) {
      if (handle && 'ref' in handle && 'unref' in handle) callRef(handle, isActive);
    }
  }

  #readLines(stream: OutputStream): void {
    const lines = new LineCutter((line) => {
      if (this.#explains.includes(stream)) this.#lastLines.push(line);
      if (this.#lastLines.length > LAST_LINES) this.#lastLines.shift();
      this.#events.line(stream, line);
    });
    const source = this.process[stream];
    source?.on('data', (bytes: Buffer) => lines.push(bytes));
    source?.on('error', () => undefined);
    source?.on('close', () => lines.end());
  }

  #watchEnd(): void {
    this.process.on('exit', (code, signal) => {
      this.#events.exit?.();
      const own = this.#failure === undefined ? describeExit(code, signal) : this.#failure.reason;
      // Its own children may hold the descriptors, and memory of the device.
      this.#kill();
      this.#forgetGroup();
      const settle = () => this.#settle(own);
      const timer = setTimeout(settle, DRAIN_MS);
      this.process.once('close', () => {
        clearTimeout(timer);
        settle();
      });
    });
  }

  #settle(reason: string): void {
    if (this.#isDead) return;
    this.#isDead = true;
    const lines = this.#lastLines.join('\n').slice(-LAST_CHARS);
    const cannotImport = /^(?:ModuleNotFoundError|ImportError):/m.test(lines);
    const which = cannotImport ? ` (it ran with ${this.#path})` : '';
    const output = this.#explains.length === 1 ? ' on standard error' : '';
    const told = lines === '' ? reason : `${reason}${which}; its last lines${output}:\n${lines}`;
    this.#events.settle(told);
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
