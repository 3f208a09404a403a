// Starts real platform and worker processes for tests, waits for their output, and ends them by
// PID.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { killPods } from './containers/left-pods.ts';
import { fetchChecked } from './network/checked-fetch.ts';
import { killTree } from './process-tree.ts';

const BIN = fileURLToPath(new URL('../../bin/millrace.js', import.meta.url));

/** Less than the time that an end-to-end test has. */
const LIMIT_MS = 120_000;

export const fixture = (name: string): string =>
  fileURLToPath(new URL(`handlers/${name}`, import.meta.url));

interface ProcessPlace {
  /** Default: that of this checkout. */
  bin?: string | undefined;
  cwd?: string;
  env?: Record<string, string>;
}

/** A process with its output so far. */
export class Process {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  output = '';
  readonly #waiting = new Set<() => void>();
  /** Resolves when the output is complete. */
  #hasClosed = false;

  /** `env` is added to that of the tests. */
  constructor(args: readonly string[], place: ProcessPlace = {}) {
    const { bin = BIN, cwd = process.cwd(), env = {} } = place;
    this.child = spawn(process.execPath, [bin, ...args], {
      cwd,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const note = (data: Buffer) => {
      this.output += data.toString();
      this.#wake();
    };
    this.child.stdout?.on('data', note);
    this.child.stderr?.on('data', note);
    this.child.once('close', () => {
      this.#hasClosed = true;
      this.#wake();
    });
    this.exited = once(this.child, 'exit').then(([code]) => code);
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /** Resolves with the pattern's match in the output. @throws Error if the process ends without it, or after the limit */
  async find(pattern: RegExp): Promise<string> {
    const end = performance.now() + LIMIT_MS;
    const timer = setTimeout(() => this.#wake(), LIMIT_MS + 1);
    for (;;) {
      const found = pattern.exec(this.output);
      const isLate = performance.now() > end;
      if (found || this.#hasClosed || isLate) clearTimeout(timer);
      if (found) return found[1] ?? found[0];
      if (this.#hasClosed) {
        throw new Error(
          `process ended (${this.child.exitCode}) without ${pattern}:\n${this.output}`,
        );
      }
      if (isLate) throw new Error(`no ${pattern} after ${LIMIT_MS} ms:\n${this.output}`);
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  /** Kills the process with all its descendants. */
  kill(): void {
    const { exitCode, pid, signalCode } = this.child;
    if (exitCode === null && signalCode === null && pid !== undefined) killTree(pid);
  }

  /** Resolves with the exit code. @throws Error with the output if the process does not end */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill(signal);
    const { promise: tooLate, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      reject(new Error(`the process still runs ${LIMIT_MS} ms after ${signal}:\n${this.output}`));
    }, LIMIT_MS);
    return Promise.race([this.exited, tooLate]).finally(() => clearTimeout(timer));
  }
}

export interface PlatformOptions {
  endpoints: string[];
  /** Default: a new one. */
  folder?: string;
  args?: string[];
  /** The program. Default: that of this checkout. */
  bin?: string | undefined;
  /** Default: one in its folder. */
  keyFile?: string;
  /** Besides that of the tests. */
  env?: Record<string, string>;
}

/** `millrace serve` on a data folder that outlives its processes. */
export class PlatformProcess {
  readonly folder: string;
  readonly #options: PlatformOptions;
  readonly #workers: Process[] = [];
  #process: Process | undefined;
  url = '';
  adminKey = '';
  workerKey = '';

  private constructor(folder: string, options: PlatformOptions) {
    this.folder = folder;
    this.#options = options;
  }

  static async start(options: PlatformOptions): Promise<PlatformProcess> {
    const folder = options.folder ?? (await mkdtemp(join(tmpdir(), 'millrace-test-')));
    const platform = new PlatformProcess(folder, options);
    try {
      await platform.restart();
    } catch (error) {
      await platform.close();
      throw error;
    }
    return platform;
  }

  get process(): Process {
    if (!this.#process) throw new Error('the platform is not running');
    return this.#process;
  }

  /** A new process on the same folder and, once it has one, the same port. `bin`: of another version. */
  async restart(bin = this.#options.bin): Promise<void> {
    const { env = {}, keyFile = join(this.folder, 'keys') } = this.#options;
    const port = this.url ? new URL(this.url).port : '0';
    const endpoints = this.#options.endpoints.flatMap((name) => ['--endpoint', name]);
    const data = join(this.folder, 'data');
    const args = [
      ...['serve', '--port', port, '--data', data, '--key-file', keyFile, '--rate-limit', 'none'],
      // The check is a process of its own after each start.
      ...['--store-check-ms', '0'],
      ...endpoints,
      ...(this.#options.args ?? []),
    ];
    this.#process = new Process(args, { bin, env });
    this.url = await this.#process.find(/(https?:\/\/127\.0\.0\.1:\d+)/);
    const keys = await readFile(keyFile, 'utf8');
    this.adminKey = /MILLRACE_ADMIN_KEY=(\S+)/.exec(keys)?.[1] ?? '';
    this.workerKey = /MILLRACE_WORKER_KEY=(\S+)/.exec(keys)?.[1] ?? '';
  }

  async kill(): Promise<void> {
    await this.process.end('SIGKILL');
  }

  startWorker(endpoint: string, handler: string, ...args: string[]): Process {
    const where = ['--url', this.url, '--endpoint', endpoint, '--key', this.workerKey];
    const worker = new Process(['worker', fixture(handler), ...where, ...args]);
    this.#workers.push(worker);
    return worker;
  }

  /** A request with the admin key, unless the headers have another; the answer is as documented. */
  fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers({ authorization: `Bearer ${this.adminKey}` });
    new Headers(init.headers).forEach((value, name) => {
      headers.set(name, value);
    });
    return fetchChecked(`${this.url}${path}`, { ...init, headers });
  }

  post(path: string, body: unknown): Promise<Response> {
    return this.fetch(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  }

  /** Kills its workers: for a platform that serves several tests. */
  async killWorkers(): Promise<void> {
    const workers = this.#workers.splice(0);
    for (const worker of workers) worker.kill();
    await Promise.all(workers.map((worker) => worker.exited));
  }

  /** Ends what still runs of the platform, of its workers and of its pods. */
  async close(): Promise<void> {
    await this.killWorkers();
    await this.#process?.end();
    killPods(this.folder);
    await rm(this.folder, { recursive: true, force: true });
  }
}
