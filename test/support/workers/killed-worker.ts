// A `millrace worker` that a test kills repeatedly. This class restarts the supervisor, and the supervisor
// restarts the worker process.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { listChildren } from '../process-tree.ts';
import type { PlatformProcess, Process } from '../processes.ts';
import { until } from '../until.ts';

export interface KilledWorkerOptions {
  id: string;
  endpoint: string;
  /** Default: `perilous.ts`, three jobs in a thread. */
  handler?: string;
  jobsPerThread?: number;
}

export class KilledWorker {
  readonly #platform: PlatformProcess;
  readonly #options: KilledWorkerOptions;
  #supervisor: Process;
  #earlierOutput = '';

  constructor(platform: PlatformProcess, options: KilledWorkerOptions) {
    this.#platform = platform;
    this.#options = options;
    this.#supervisor = this.#start();
  }

  /** Output of all processes so far. */
  get output(): string {
    return this.#earlierOutput + this.#supervisor.output;
  }

  /** Ends the supervisor, waits for the end of its processes, and starts the next one. */
  async endSupervisor(signal: NodeJS.Signals): Promise<void> {
    const beneath = this.#listProcesses();
    await this.#supervisor.end(signal);
    await until(() => !beneath.some(isAlive));
    this.#earlierOutput += this.#supervisor.output;
    this.#supervisor = this.#start();
  }

  /** Ends the worker process; if it is restarting, waits for it first. */
  async endProcess(signal: NodeJS.Signals): Promise<void> {
    process.kill(await until(() => this.#listProcesses()[0]), signal);
  }

  /** @returns the exit code of the supervisor */
  async leave(): Promise<number | null> {
    // The last kill may have been a moment ago: before this line, SIGTERM ends a supervisor without an exit code.
    await this.#supervisor.find(/supervisor started/);
    return this.#supervisor.end();
  }

  #listProcesses(): number[] {
    const { pid } = this.#supervisor.child;
    if (pid === undefined) return [];
    return listChildren(pid).filter((child) => readCommand(child).includes('worker'));
  }

  #start(): Process {
    const { id, endpoint, handler, jobsPerThread = handler === undefined ? 3 : 0 } = this.#options;
    const state = join(this.#platform.folder, 'state');
    return this.#platform.startWorker(
      endpoint,
      handler ?? 'perilous.ts',
      ...['--worker-id', id, '--state-dir', state],
      ...[
        '--threads',
        '2',
        ...(jobsPerThread > 0 ? ['--jobs-per-thread', `${jobsPerThread}`] : []),
      ],
      ...['--grace-ms', '300', '--drain-ms', '1500', '--force-ms', '500'],
    );
  }
}

function readCommand(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    // The process has ended.
    return [];
  }
}

function isAlive(pid: number): boolean {
  return readCommand(pid).some((word) => word !== '');
}
