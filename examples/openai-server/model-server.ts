// Runs an HTTP model server, such as vLLM's or llama.cpp's, beside the handler: starts it on a free
// port, waits until it is ready, writes its output to the log, and ends it with the worker.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import type { SetupContext } from 'millrace';

const POLL_MS = 100;
/** A server that loads its model may accept connections and not answer. */
const ANSWER_MS = 2_000;
/** Between SIGTERM and SIGKILL; less than the 5 s that `teardown` has. */
const STOP_MS = 4_000;

/** What `start` needs of the context of `setup`. */
type StartContext = Pick<SetupContext, 'signal'> & {
  log: { info(fields: object, line: string): void };
};

export class ModelServer {
  readonly #command: (port: number) => readonly string[];
  readonly #readyPath: string;
  #child: ChildProcess | undefined;
  #failure: string | undefined;
  url = '';

  /** `command`: the program and its arguments. `readyPath` answers 200 when the model is loaded. */
  constructor(command: (port: number) => readonly string[], readyPath: string) {
    this.#command = command;
    this.#readyPath = readyPath;
  }

  /** Resolves when the server is ready. @throws Error if it exits before, or `signal` aborts */
  async start({ log, signal }: StartContext): Promise<void> {
    const port = await findFreePort();
    const [program = '', ...args] = this.#command(port);
    this.url = `http://127.0.0.1:${port}`;
    this.#failure = undefined;
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    child.on('error', (error) => {
      this.#failure = `${program} did not start: ${error.message}`;
    });
    child.on('exit', (code, killedBy) => {
      this.#failure = `${program} ended with ${killedBy ?? `code ${code}`}`;
    });
    for (const output of [child.stdout, child.stderr]) {
      createInterface({ input: output }).on('line', (line) => log.info({ program }, line));
    }
    try {
      while (!(await this.#answers(signal))) {
        signal.throwIfAborted();
        this.check();
        await wait(POLL_MS);
      }
    } catch (error) {
      // Nobody calls `teardown` after a setup that failed.
      await this.stop();
      throw error;
    }
  }

  /**
   * @throws Error if the server has ended. `refreshWorker` then lets a new worker process start it
   * again.
   */
  check(): void {
    if (this.#failure !== undefined) throw new Error(this.#failure);
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await ended;
    clearTimeout(timer);
  }

  async #answers(stop: AbortSignal): Promise<boolean> {
    const signal = AbortSignal.any([stop, AbortSignal.timeout(ANSWER_MS)]);
    try {
      const response = await fetch(`${this.url}${this.#readyPath}`, { signal });
      await response.body?.cancel();
      return response.status === 200;
    } catch {
      return false;
    }
  }
}

async function findFreePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const address = probe.address();
  probe.close();
  await once(probe, 'close');
  if (typeof address !== 'object' || address === null) throw new Error('no port is free');
  return address.port;
}
