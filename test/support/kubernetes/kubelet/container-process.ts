// Runs a container as processes of this machine: they end together, its output goes to one file, and
// memory beyond the limit ends them.
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { readProcess, TICKS_PER_SECOND } from '../../../../src/base/process/process-table.ts';

/** The variable that marks the processes of a container. */
export const MARK = 'KUBELET_CONTAINER';
const PAGE_BYTES = 4_096;
const CHECK_MS = 25;
const SIGNALS: Readonly<Record<string, number>> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGSEGV: 11,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
};

export interface ContainerStart {
  /** Unique. */
  id: string;
  command: readonly string[];
  env: Readonly<Record<string, string>>;
  folder: string;
  logFile: string;
  /** Bytes; undefined: no limit. */
  memoryLimit: number | undefined;
}

export interface ContainerEnd {
  exitCode: number;
  reason: 'Completed' | 'Error' | 'OOMKilled' | 'StartError';
  message?: string;
}

export class ContainerProcess {
  /** Resolves when all of its processes have ended. */
  readonly ended: Promise<ContainerEnd>;
  readonly #child: ChildProcess;
  readonly #mark: string;
  readonly #startedAt = performance.now();
  #isOutOfMemory = false;
  #hasEnded = false;

  constructor({ command, env, folder, id, logFile, memoryLimit }: ContainerStart) {
    this.#mark = `${MARK}=${id}`;
    const log = openSync(logFile, 'a');
    const [program = '', ...args] = command;
    this.#child = spawn(program, args, {
      cwd: folder,
      env: { ...env, [MARK]: id },
      stdio: ['ignore', log, log],
      // A session of its own.
      detached: true,
    });
    closeSync(log);
    const check = setInterval(() => this.#checkMemory(memoryLimit ?? Infinity), CHECK_MS);
    this.ended = this.#wait(program).finally(() => clearInterval(check));
  }

  #wait(program: string): Promise<ContainerEnd> {
    const exited = new Promise<ContainerEnd>((resolve) => {
      this.#child.once('exit', (code, signal) => {
        const exitCode = code ?? 128 + (SIGNALS[signal ?? ''] ?? 0);
        resolve({ exitCode, reason: exitCode === 0 ? 'Completed' : 'Error' });
      });
      this.#child.once('error', (error) => {
        const message = `exec: "${program}": ${error.message}: no such file or directory`;
        resolve({ exitCode: 128, reason: 'StartError', message });
      });
    });
    return exited.then(async (end) => {
      await this.#killAll();
      this.#hasEnded = true;
      return this.#isOutOfMemory ? { exitCode: 137, reason: 'OOMKilled' } : end;
    });
  }

  /** Sends SIGTERM to the first process only, as container runtimes do. */
  terminate(): void {
    if (!this.#hasEnded) this.#child.kill('SIGTERM');
  }

  kill(): void {
    if (this.#hasEnded) return;
    this.#child.kill('SIGKILL');
    for (const pid of this.#list()) killProcess(pid);
  }

  /** Cores on average since the start, and bytes of memory. */
  measure(): { cores: number; bytes: number } {
    const pids = this.#list();
    const ticks = pids.reduce((sum, pid) => sum + (readProcess(pid)?.cpuTicks ?? 0), 0);
    const seconds = Math.max((performance.now() - this.#startedAt) / 1_000, 0.01);
    return { cores: ticks / TICKS_PER_SECOND / seconds, bytes: sumMemory(pids) };
  }

  #checkMemory(limit: number): void {
    if (limit === Infinity || this.#hasEnded || sumMemory(this.#list()) <= limit) return;
    this.#isOutOfMemory = true;
    this.kill();
  }

  async #killAll(): Promise<void> {
    for (;;) {
      const pids = this.#list();
      if (pids.length === 0) return;
      for (const pid of pids) killProcess(pid);
      await sleep(2);
    }
  }

  /** Processes that still run code. */
  #list(): number[] {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name) && this.#isOwn(name))
      .map(Number)
      .filter((pid) => readProcess(pid)?.isDead === false);
  }

  #isOwn(pid: string): boolean {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(this.#mark);
    } catch {
      // It has ended.
      return false;
    }
  }
}

function sumMemory(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    try {
      const [, pages] = readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ');
      return sum + Number(pages) * PAGE_BYTES;
    } catch {
      return sum;
    }
  }, 0);
}

function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}
