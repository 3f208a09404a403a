// Reports a test run: what will run and how long it takes, progress, each failure as vitest's own reporter shows it, which
// files were left out and why, and at last `tests: N passed, N failed, N skipped`.
import { writeSync } from 'node:fs';
import {
  DefaultReporter,
  type SerializedError,
  type TestModule,
  type TestRunEndReason,
  type TestSpecification,
} from 'vitest/node';

/** With more files, a file that passes is counted and not shown. */
const SHOWN_FILES = 20;
/** Progress is printed after each such part of the files. */
const PROGRESS_PARTS = 20;

type Tally = { passed: number; failed: number; skipped: number };

/** What of a finished module is counted; vitest's `TestModule` is one. */
export type FinishedModule = {
  ok(): boolean;
  children: { allTests(): Iterable<{ result(): { state: string } }> };
};

export type FinishedRun = {
  modules: readonly FinishedModule[];
  /** Errors that belong to no test: a dead worker, an unhandled rejection. */
  unhandledErrors: number;
  reason: TestRunEndReason;
};

/**
 * Counts the tests of a run. `failed` is at least 1 whenever the run as a whole did not pass: a
 * file that cannot be loaded, a failed hook and an unhandled error count as one failure each.
 */
export function tallyRun({ modules, unhandledErrors, reason }: FinishedRun): Tally {
  const tally: Tally = { passed: 0, failed: 0, skipped: 0 };
  for (const module of modules) {
    const failedBefore = tally.failed;
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      if (state === 'passed') tally.passed += 1;
      else if (state === 'failed') tally.failed += 1;
      else tally.skipped += 1;
    }
    if (!module.ok() && tally.failed === failedBefore) tally.failed += 1;
  }
  tally.failed += unhandledErrors;
  if (reason !== 'passed' && tally.failed === 0) tally.failed = 1;
  return tally;
}

export function formatTally({ passed, failed, skipped }: Tally): string {
  return `tests: ${passed} passed, ${failed} failed, ${skipped} skipped`;
}

/** What a test file prints that cannot run here: `FILE is left out: REASON`. */
const LEFT_OUT = /^(\S+) is left out: (.+)$/gm;

/** One line for all files that are left out, in the order of their first mention; undefined if none is. */
export function formatLeftOut(printed: string): string | undefined {
  const files = Map.groupBy(printed.matchAll(LEFT_OUT), ([, , reason = '']) => reason);
  if (files.size === 0) return undefined;
  const parts = [...files].map(([reason, found]) => {
    const names = new Set(found.map(([, file]) => file));
    return `${[...names].join(', ')} (${reason})`;
  });
  return `left out: ${parts.join('; ')}`;
}

/** `0:07`, `12:30`. */
export function formatElapsed(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}

/** What is known of a whole run, such as `npm test`. */
export interface WholeRun {
  /** Its usual time on 2 cores with nothing else to do. */
  minutes: number;
  /** The tests that it leaves to others, as a line; default: none. */
  rest?: string;
}

type ConsoleLog = Parameters<DefaultReporter['onUserConsoleLog']>;

export class RunReporter extends DefaultReporter {
  readonly #run: WholeRun | undefined;
  /** Stands when the run never ended: vitest gave up before it could report. */
  #tally: Tally = { passed: 0, failed: 1, skipped: 0 };
  #printed = '';
  #files = 0;
  #ended = 0;
  #failed = 0;

  constructor(run?: WholeRun) {
    super();
    this.#run = run;
  }

  override onInit(vitest: Parameters<DefaultReporter['onInit']>[0]): void {
    super.onInit(vitest);
    // Vitest prints after `onTestRunEnd` while it closes; nothing prints after the exit of the process.
    process.once('exit', (code) => {
      // A failed teardown, such as the check for leftovers, ends the run with an exit code alone.
      if (code !== 0 && this.#tally.failed === 0) this.#tally.failed = 1;
      const lines = [formatLeftOut(this.#printed), this.#run?.rest, formatTally(this.#tally)];
      writeSync(process.stdout.fd, `${lines.filter((line) => line !== undefined).join('\n')}\n`);
    });
  }

  override onTestRunStart(specifications: readonly TestSpecification[]): void {
    super.onTestRunStart(specifications);
    this.#files = specifications.length;
    if (this.#isShort) return;
    this.silent ||= 'passed-only';
    const projects = new Set(specifications.map(({ project }) => project.name));
    const time = this.#run ? `; takes about ${this.#run.minutes} minutes on 2 idle cores` : '';
    this.log(`${this.#files} test files (${[...projects].join(', ')})${time}\n`);
  }

  override onUserConsoleLog(...[log, state]: ConsoleLog): void {
    if (log.content.includes(' is left out: ')) this.#printed += `${log.content}\n`;
    super.onUserConsoleLog(log, state);
  }

  protected override printTestModule(module: TestModule): void {
    this.#ended += 1;
    if (module.state() === 'failed') this.#failed += 1;
    if (this.#isShort || module.state() === 'failed') super.printTestModule(module);
    // On a terminal, vitest shows the progress in its last lines.
    if (!this.#isShort && !this.isTTY) this.#printProgress();
  }

  override onTestRunEnd(
    modules: readonly TestModule[],
    unhandledErrors: readonly SerializedError[],
    reason: TestRunEndReason,
  ): void {
    super.onTestRunEnd(modules, unhandledErrors, reason);
    this.#tally = tallyRun({ modules, unhandledErrors: unhandledErrors.length, reason });
  }

  get #isShort(): boolean {
    return this.#files <= SHOWN_FILES;
  }

  #printProgress(): void {
    const part = (ended: number) => Math.floor((ended * PROGRESS_PARTS) / this.#files);
    if (part(this.#ended) === part(this.#ended - 1)) return;
    const elapsed = formatElapsed(performance.now() - this.start);
    this.log(` ${elapsed}  ${this.#ended} of ${this.#files} files, ${this.#failed} failed`);
  }
}
