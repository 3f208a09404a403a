// The built command as a process: started with arguments, read line by line, ended by its pid.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { killPods } from '../../support/containers/left-pods.ts';
import { killTree } from '../../support/process-tree.ts';

const launcher = resolve(import.meta.dirname, '../../../bin/millrace.js');

export interface CommandEnd {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface StartOptions {
  /** Instead of this checkout's command on the Node that runs the tests. */
  command?: string;
  cwd?: string;
  /** For temporary files, so that those of a killed process go with the test. */
  temporary?: string;
  env?: Record<string, string>;
}

export class CommandRun {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<CommandEnd>;
  stdout = '';
  stderr = '';
  #wake: () => void = () => {};
  #hasEnded = false;

  constructor(args: readonly string[], { command, cwd, env, temporary }: StartOptions = {}) {
    const [program, ...first] = command === undefined ? [process.execPath, launcher] : [command];
    this.child = spawn(program ?? '', [...first, ...args], {
      cwd,
      env: {
        ...process.env,
        NO_COLOR: '1',
        ...(temporary && { TMPDIR: temporary, XDG_CONFIG_HOME: temporary }),
        ...env,
      },
    });
    this.child.stdin.on('error', () => {});
    this.child.stdout.setEncoding('utf8').on('data', (data: string) => {
      this.stdout += data;
      this.#wake();
    });
    this.child.stderr.setEncoding('utf8').on('data', (data: string) => {
      this.stderr += data;
      this.#wake();
    });
    this.ended = once(this.child, 'close').then(([code]) => {
      this.#hasEnded = true;
      this.#wake();
      return { code, stdout: this.stdout, stderr: this.stderr };
    });
  }

  /** What the pattern finds in one of the outputs (its first group, if any) once it is there. */
  async until(output: 'stdout' | 'stderr', pattern: RegExp): Promise<string> {
    for (;;) {
      const found = pattern.exec(this[output]);
      if (found) return found[1] ?? found[0];
      if (this.#hasEnded) {
        throw new Error(`ended without ${pattern}:\n${this.stdout}\n${this.stderr}`);
      }
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
    }
  }

  /** With all processes beneath it. */
  kill(): void {
    if (!this.#hasEnded && this.child.pid !== undefined) killTree(this.child.pid);
  }

  end(signal: NodeJS.Signals): Promise<CommandEnd> {
    this.child.kill(signal);
    return this.ended;
  }
}

/** A folder and the processes of one test, pods among them, which end with it. */
export class Workplace {
  /** The current folder of its processes, empty at first. */
  readonly folder: string;
  readonly temporary: string;
  readonly #root = mkdtempSync(join(tmpdir(), 'millrace-cli-'));
  readonly #runs: CommandRun[] = [];

  constructor() {
    this.folder = join(this.#root, 'work');
    this.temporary = join(this.#root, 'tmp');
    mkdirSync(this.folder);
    mkdirSync(this.temporary);
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  write(name: string, content: string): string {
    writeFileSync(this.path(name), content);
    return this.path(name);
  }

  read(name: string): string {
    return readFileSync(this.path(name), 'utf8');
  }

  /** What each of its processes has printed so far. */
  outputs(): string[] {
    return this.#runs.map(({ stderr, stdout }) => `${stdout}\n${stderr}`);
  }

  /** Bytes; 0 while there is no such file. */
  size(name: string): number {
    return statSync(this.path(name), { throwIfNoEntry: false })?.size ?? 0;
  }

  remove(name: string): void {
    rmSync(this.path(name));
  }

  start(args: readonly string[], options: StartOptions = {}): CommandRun {
    const run = new CommandRun(args, { cwd: this.folder, temporary: this.temporary, ...options });
    this.#runs.push(run);
    return run;
  }

  run(args: readonly string[], options: StartOptions & { stdin?: string } = {}) {
    const started = this.start(args, options);
    started.child.stdin.end(options.stdin ?? '');
    return started.ended;
  }

  async close(): Promise<void> {
    for (const run of this.#runs) run.kill();
    await Promise.all(this.#runs.map((run) => run.ended));
    killPods(this.#root);
    rmSync(this.#root, { recursive: true, force: true });
  }
}
