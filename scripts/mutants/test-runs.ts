// Runs test files in the scratch copy, one run after another, and ends whatever a run leaves behind.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';

export type TestRun = {
  verdict: 'passed' | 'failed' | 'timed out';
  /** Duration in ms of each finished file, and whether it passed. */
  files: Map<string, { ms: number; passed: boolean }>;
};

export type RunTests = (run: {
  tests: readonly string[];
  limitMs: number;
  /** Continues after a failed test. */
  all?: boolean;
}) => Promise<TestRun>;

/** Also those that only `npm run test:full` runs: some code has no other test. */
const PROJECTS = ['unit', 'isolated-unit', 'full-unit', 'conformance', 'full-conformance'];
const MARK = 'MILLRACE_MUTANT_RUN';

export function createRunTests(root: string): RunTests {
  const outputFile = join(root, 'test-run.json');
  return async ({ tests, limitMs, all = false }) => {
    rmSync(outputFile, { force: true });
    const child = spawn(
      process.execPath,
      [
        'node_modules/vitest/vitest.mjs',
        'run',
        '--config=scripts/mutants/vitest.config.ts',
        ...PROJECTS.map((name) => `--project=${name}`),
        ...(all ? [] : ['--bail=1']),
        '--reporter=json',
        `--outputFile=${outputFile}`,
        ...tests,
      ],
      {
        cwd: root,
        detached: true,
        stdio: 'ignore',
        env: {
          ...process.env,
          [MARK]: root,
          TMPDIR: join(root, 'tmp'),
          MUTANT_TESTS: tests.join(','),
        },
      },
    );
    let isLate = false;
    const limit = setTimeout(() => {
      isLate = true;
      endGroup(child.pid);
    }, limitMs);
    const [exitCode]: unknown[] = await once(child, 'exit');
    clearTimeout(limit);
    endRuns(root);
    const files = readReport(root, outputFile);
    if (isLate) return { verdict: 'timed out', files };
    return { verdict: exitCode === 0 ? 'passed' : 'failed', files };
  };
}

function endGroup(pid: number | undefined): void {
  if (pid !== undefined) process.kill(-pid, 'SIGKILL');
}

/** Ends remaining runs, and processes that tests started in their own process groups. */
export function endRuns(root: string): void {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const environment = readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
      if (environment.includes(`${MARK}=${root}`)) process.kill(Number(pid), 'SIGKILL');
    } catch {
      // The process has ended, or belongs to another user.
    }
  }
}

type Report = {
  testResults: {
    name: string;
    startTime: number;
    endTime: number;
    assertionResults: { status: string }[];
  }[];
};

function readReport(root: string, outputFile: string): TestRun['files'] {
  let report: Report;
  try {
    report = JSON.parse(readFileSync(outputFile, 'utf8'));
  } catch {
    // The run ended before it wrote a report.
    return new Map();
  }
  return new Map(
    report.testResults.map(({ name, startTime, endTime, assertionResults: tests }) => [
      name.slice(root.length + 1),
      {
        ms: endTime - startTime,
        passed: tests.length > 0 && tests.every(({ status }) => status !== 'failed'),
      },
    ]),
  );
}
