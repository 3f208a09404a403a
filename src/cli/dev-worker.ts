// One worker process of `millrace dev`: started, listened to, told to leave.
import { type ChildProcess, fork } from 'node:child_process';
import { createInterface } from 'node:readline';
import { inheritEnvironment } from './config.ts';
import { launcherPath } from './package-info.ts';
import { showLogLines } from './terminal-log.ts';
import { isWorkerMessage } from './worker-messages.ts';

export interface DevWorkerOptions {
  file: string;
  endpointId: string;
  url: string;
  /** Worker key. */
  key: string;
  workerId: string;
  incarnation: number;
  logLevel: string;
}

/** How the process ended: by itself with a code, or by a signal. */
export interface ProcessEnd {
  code: number | null;
  signal: string | null;
}

export class DevWorker {
  readonly workerId: string;
  readonly incarnation: number;
  /** True once it takes jobs, false if it ended before. */
  readonly ready: Promise<boolean>;
  readonly ended: Promise<ProcessEnd>;
  readonly #child: ChildProcess;

  constructor(options: DevWorkerOptions) {
    this.workerId = options.workerId;
    this.incarnation = options.incarnation;
    this.#child = start(options);
    this.ended = new Promise((resolve) => {
      this.#child.once('exit', (code, signal) => resolve({ code, signal }));
      this.#child.once('error', () => resolve({ code: null, signal: null }));
    });
    const isReady = new Promise<boolean>((resolve) => {
      this.#child.on('message', (message) => {
        if (isWorkerMessage(message)) resolve(true);
      });
    });
    this.ready = Promise.race([isReady, this.ended.then(() => false)]);
  }

  /** It takes nothing more and leaves when its jobs are done. */
  drain(): void {
    this.#child.kill('SIGTERM');
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }
}

function start(options: DevWorkerOptions): ChildProcess {
  const { endpointId, file, incarnation, key, logLevel, url, workerId } = options;
  const args = ['worker', file, '--under-dev', '--incarnation', String(incarnation)];
  args.push(`--worker-id=${workerId}`, `--endpoint=${endpointId}`, `--url=${url}`);
  const child = fork(launcherPath, [...args, `--log-level=${logLevel}`], {
    env: inheritEnvironment({ MILLRACE_KEY: key }),
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    execArgv: [],
    // A group of its own: Ctrl-C is for `dev`, which then lets its workers finish.
    detached: true,
  });
  for (const stream of [child.stdout, child.stderr]) {
    if (stream) createInterface(stream).on('line', (line) => showWorkerLine(endpointId, line));
  }
  return child;
}

function showWorkerLine(endpoint: string, line: string): void {
  const isEntry = line.startsWith('{"level":');
  showLogLines(`${isEntry ? `{"endpoint":"${endpoint}",${line.slice(1)}` : line}\n`);
}
