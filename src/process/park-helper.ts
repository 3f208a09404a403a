// The client of millrace_park.py, a helper process that suspends and resumes other processes by the NVIDIA driver. It starts
// with the first request and ends with this process, or after a request that fails to come back.
import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { readLines } from '../base/text/line-reader.ts';
import { choosePython, type Environment } from './options.ts';

const PROGRAM = fileURLToPath(new URL('./python/millrace_park.py', import.meta.url));

const MAX_LINE_CHARS = 65_536;
/** For requests that copy nothing, ms. */
const ANSWER_MS = 10_000;
/** For a copy to or from the host, ms: 100 GB take a minute at the slowest speed that was measured. */
const COPY_MS = 300_000;
/** Of the last lines of standard error in a failure, characters. */
const MAX_REASON = 500;

/** The helper said no, or has died. `isUndone`: the process runs as before. `hasNoRoom`: it is still suspended. */
export class ParkHelperError extends Error {
  override readonly name = 'ParkHelperError';
  readonly isUndone: boolean;
  readonly hasNoRoom: boolean;

  constructor(message: string, { isUndone = false, step }: { isUndone?: boolean; step?: string }) {
    super(message);
    this.isUndone = isUndone;
    this.hasNoRoom = step === 'room';
  }
}

export interface SuspendRequest {
  /** Process group of the model process. */
  group: number;
  /** UUID of the device; undefined: the only one that CUDA shows. */
  device: string | undefined;
  /** Longest wait for kernels that run, ms. */
  lockMs: number;
}

/** Processes that are suspended, and the device memory that they held. */
export interface Suspended {
  pids: number[];
  bytes: number;
}

export interface DeviceMemory {
  totalBytes: number;
  usedBytes: number;
}

type Answer = Record<string, unknown>;

interface Pending {
  resolve: (answer: Answer) => void;
  reject: (error: Error) => void;
}

export class ParkHelper {
  readonly #environment: Environment;
  readonly #python: string;
  readonly #pending = new Map<number, Pending>();
  #process: ChildProcess | undefined;
  #nextId = 1;
  #lastLines = '';

  /** `environment`: of the model process; it says which devices CUDA shows. `python`: default: the one on the PATH. */
  constructor(environment: Environment, python = choosePython('python3', environment)) {
    this.#environment = environment;
    this.#python = python;
  }

  /** What suspends: `libcuda` or `cuda-checkpoint`. @throws ParkHelperError that says why nothing does */
  async probe(device?: string): Promise<{ by: string; driver: string }> {
    const { by, driver } = await this.#ask({ do: 'probe', device }, ANSWER_MS);
    return { by: String(by), driver: String(driver) };
  }

  /** @throws ParkHelperError */
  async readMemory(device: string): Promise<DeviceMemory> {
    const { total, used } = await this.#ask({ do: 'memory', device }, ANSWER_MS);
    return { totalBytes: readBytes(total), usedBytes: readBytes(used) };
  }

  /** @throws ParkHelperError */
  async suspend(request: SuspendRequest): Promise<Suspended> {
    const answer = await this.#ask({ do: 'park', ...request }, request.lockMs + COPY_MS);
    const pids = Array.isArray(answer['pids']) ? answer['pids'].map(readBytes) : [];
    return { pids, bytes: readBytes(answer['bytes']) };
  }

  /** @throws ParkHelperError */
  async resume({ pids, bytes }: Suspended, device: string | undefined): Promise<void> {
    await this.#ask({ do: 'wake', pids, bytes, device }, COPY_MS);
  }

  stop(): void {
    if (this.#process) this.#end(this.#process, 'was stopped');
  }

  /** Does not wait for its death: it may hang in the driver. */
  #end(child: ChildProcess, how: string): void {
    child.kill('SIGKILL');
    if (this.#process !== child) return;
    this.#process = undefined;
    const text = `the helper process (${this.#python} ${PROGRAM}) ${how}${this.#lastLines}`;
    for (const { reject } of [...this.#pending.values()]) reject(new ParkHelperError(text, {}));
  }

  #ask(request: object, limitMs: number): Promise<Answer> {
    const id = this.#nextId++;
    const process = this.#process ?? this.#start();
    process.stdin?.write(`${JSON.stringify({ id, ...request })}\n`);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#end(process, `has not answered within ${limitMs} ms`);
      }, limitMs);
      const settle = () => {
        clearTimeout(timer);
        this.#pending.delete(id);
      };
      this.#pending.set(id, {
        resolve: (answer) => {
          settle();
          resolve(answer);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      });
    });
  }

  #start(): ChildProcess {
    const command = this.#python;
    const child = spawn(command, [PROGRAM], {
      env: { ...this.#environment },
      stdio: 'pipe',
      // Ctrl-C in a terminal must not end it in the middle of a move.
      detached: true,
    });
    this.#process = child;
    this.#lastLines = '';
    child.stdin.on('error', () => undefined);
    readLines(child.stdout, {
      maxChars: MAX_LINE_CHARS,
      onLine: (line) => this.#receive(line),
    });
    readLines(child.stderr, {
      maxChars: MAX_LINE_CHARS,
      onLine: (line) => {
        this.#lastLines = `${this.#lastLines}\n${line}`.slice(-MAX_REASON);
      },
    });
    child.on('error', (error) => {
      if (child.pid !== undefined) return;
      const isMissing = 'code' in error && error.code === 'ENOENT';
      const remedy = '; install Python 3.9 or newer beside the worker, or give the model hooks';
      this.#end(child, `could not be started: ${error.message}${isMissing ? remedy : ''}`);
    });
    child.on('close', (code, signal) => {
      this.#end(child, `ended with ${signal ?? `code ${code}`}`);
    });
    // It must not keep this process running; a request does.
    child.unref();
    for (const stream of [child.stdin, child.stdout, child.stderr]) unref(stream);
    return child;
  }

  #receive(line: string): void {
    const answer = parse(line);
    const id = answer?.['id'];
    const pending = typeof id === 'number' ? this.#pending.get(id) : undefined;
    if (!answer || !pending) return;
    if (answer['ok'] === true) pending.resolve(answer);
    else pending.reject(toError(answer));
  }
}

export interface ParkTrial {
  bytes: number;
  parkMs: number;
  wakeMs: number;
}

/** For the start of a program that takes memory, ms. */
const HOLD_MS = 30_000;

/**
 * Moves memory of a program of its own off the device and back. @throws Error that says what failed, ParkHelperError
 */
export async function tryParking(
  environment: Environment,
  { bytes, device }: { bytes: number; device: string },
): Promise<ParkTrial> {
  const helper = new ParkHelper(environment);
  const command = choosePython('python3', environment);
  const holder = spawn(command, [PROGRAM, 'hold', String(bytes)], {
    env: { ...environment },
    stdio: 'pipe',
    detached: true,
  });
  try {
    const next = readAnswers(holder);
    await next('held');
    const startedAt = performance.now();
    const request = { group: holder.pid ?? 0, device, lockMs: ANSWER_MS };
    const suspended = await helper.suspend(request);
    const parkedAt = performance.now();
    await helper.resume(suspended, device);
    const wokenAt = performance.now();
    holder.stdin.write('\n');
    await next('same');
    const [parkMs, wakeMs] = [parkedAt - startedAt, wokenAt - parkedAt].map(Math.round);
    return { bytes: suspended.bytes, parkMs: parkMs ?? 0, wakeMs: wakeMs ?? 0 };
  } finally {
    holder.kill('SIGKILL');
    helper.stop();
  }
}

/** @returns how the next line is awaited. @throws Error if it is another one, or none comes */
function readAnswers(holder: ChildProcessWithoutNullStreams): (wanted: string) => Promise<void> {
  let lastLines = '';
  holder.stdin.on('error', () => undefined);
  readLines(holder.stderr, {
    maxChars: MAX_LINE_CHARS,
    onLine: (line) => {
      lastLines = `${lastLines}\n${line}`.slice(-MAX_REASON);
    },
  });
  const fail = (how: string) => new Error(`the program that holds memory ${how}${lastLines}`);
  const ended = new Promise<never>((_, reject) => {
    holder.on('error', (error) => reject(fail(`could not be started: ${error.message}`)));
    holder.on('close', (code) => reject(fail(`ended with code ${code}`)));
  });
  ended.catch(() => undefined);
  return async (wanted) => {
    const timer = new AbortController();
    const { promise, resolve } = Promise.withResolvers<string>();
    readLines(holder.stdout, { maxChars: MAX_LINE_CHARS, onLine: resolve });
    const late = delay(HOLD_MS, 'nothing', { signal: timer.signal }).catch(() => 'nothing');
    const line = await Promise.race([promise, ended, late]);
    timer.abort();
    if (line !== wanted) throw fail(`says "${line}" in place of "${wanted}"`);
  };
}

function parse(line: string): Answer | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

function toError({ isUndone, reason, step }: Answer): ParkHelperError {
  return new ParkHelperError(String(reason), {
    isUndone: isUndone === true,
    ...(typeof step === 'string' && { step }),
  });
}

function readBytes(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : 0;
}

function unref(stream: object): void {
  if ('unref' in stream && typeof stream.unref === 'function') stream.unref();
}
