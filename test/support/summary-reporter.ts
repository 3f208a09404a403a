// The last lines of a test run: which files were left out and why, on one line, and
// `tests: N passed, N failed, N skipped`. Vitest's own reporter says what failed and why.
import { writeSync } from 'node:fs';
import type { Reporter, TestModule, TestRunEndReason } from 'vitest/node';

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
  const parts = [...files].map(
    ([reason, found]) => `${found.map(([, file]) => file).join(', ')} (${reason})`,
  );
  return `left out: ${parts.join('; ')}`;
}

export class SummaryReporter implements Reporter {
  /** Stands when the run never ended: vitest gave up before it could report. */
  #tally: Tally = { passed: 0, failed: 1, skipped: 0 };

  #printed = '';

  onUserConsoleLog({ content }: { content: string }): void {
    if (content.includes(' is left out: ')) this.#printed += `${content}\n`;
  }

  onInit(): void {
    // Other reporters, and vitest while it closes, print after `onTestRunEnd`; nothing prints
    // after the exit of the process.
    process.once('exit', (code) => {
      // A failed teardown, such as the check for leftovers, ends the run with an exit code alone.
      if (code !== 0 && this.#tally.failed === 0) this.#tally.failed = 1;
      const lines = [formatLeftOut(this.#printed), formatTally(this.#tally)];
      writeSync(process.stdout.fd, `${lines.filter((line) => line !== undefined).join('\n')}\n`);
    });
  }

  onTestRunEnd(
    modules: readonly TestModule[],
    unhandledErrors: readonly unknown[],
    reason: TestRunEndReason,
  ): void {
    this.#tally = tallyRun({ modules, unhandledErrors: unhandledErrors.length, reason });
  }
}
