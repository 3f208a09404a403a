import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { formatElapsed, formatLeftOut, formatTally, tallyRun } from '../../support/run-reporter.ts';

const root = resolve(import.meta.dirname, '../../..');

function finishModule(options: { ok: boolean; states: string[] }) {
  const tests = options.states.map((state) => ({ result: () => ({ state }) }));
  return { ok: () => options.ok, children: { allTests: () => tests } };
}

/** Runs vitest on the given test files with the reporter; the last line and exit code. */
async function runFiles(files: Record<string, string>) {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-summary-'));
  try {
    await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
    const reporter = JSON.stringify(join(root, 'test/support/run-reporter.ts'));
    await writeFile(
      join(folder, 'vitest.config.ts'),
      `import { RunReporter } from ${reporter};\n` +
        'export default { test: { reporters: [new RunReporter()] } };\n',
    );
    for (const [name, source] of Object.entries(files)) {
      await writeFile(join(folder, name), `import { it } from 'vitest';\n${source}\n`);
    }
    const vitest = join(root, 'node_modules/vitest/vitest.mjs');
    const child = spawn(process.execPath, [vitest, 'run', '--root', folder], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const [output, [exitCode]] = await Promise.all([text(child.stdout), once(child, 'close')]);
    const [beforeLast, lastLine] = output.trimEnd().split('\n').slice(-2);
    return { output, beforeLast, lastLine, exitCode };
  } finally {
    await rm(folder, { recursive: true });
  }
}

describe('the skipped files', () => {
  it('are one line, with the reasons', () => {
    const docker = (file: string) => `${file} is left out: no Docker Engine\n`;
    const printed = `${docker('a.test.ts')}${docker('b.test.ts')}c.test.ts is left out: no GPU\n`;
    expect(formatLeftOut(printed)).toBe(
      'left out: a.test.ts, b.test.ts (no Docker Engine); c.test.ts (no GPU)',
    );
    expect(formatLeftOut('')).toBeUndefined();
  });

  it('are named before the tally', async () => {
    const source =
      "console.warn('a.test.ts is left out: no Docker Engine');\nit('works', () => {});";
    const { beforeLast, lastLine } = await runFiles({ 'a.test.ts': source });
    expect(beforeLast).toBe('left out: a.test.ts (no Docker Engine)');
    expect(lastLine).toBe('tests: 1 passed, 0 failed, 0 skipped');
  });
});

describe('a run of many files', () => {
  it('prints what will run, the progress, and no file that passes', async () => {
    const names = Array.from({ length: 21 }, (_, index) => `${index}.test.ts`);
    const files = names.map((name) => [name, "it('works', () => console.log('noise'));"]);
    const { output } = await runFiles(Object.fromEntries(files));
    expect(output).toContain('21 test files');
    expect(output).toContain('21 of 21 files, 0 failed');
    expect(output).not.toMatch(/noise|20\.test\.ts/);
  });

  it('shows minutes and seconds', () => {
    expect(formatElapsed(7_900)).toBe('0:07');
    expect(formatElapsed(750_000)).toBe('12:30');
  });
});

describe('the tally of a run', () => {
  it('counts tests by result', () => {
    const modules = [
      finishModule({ ok: true, states: ['passed', 'skipped'] }),
      finishModule({ ok: false, states: ['passed', 'failed', 'failed'] }),
    ];
    const tally = tallyRun({ modules, unhandledErrors: 0, reason: 'failed' });
    expect(formatTally(tally)).toBe('tests: 2 passed, 2 failed, 1 skipped');
  });

  it('counts a file that could not be loaded as a failure', () => {
    const modules = [finishModule({ ok: false, states: [] })];
    expect(tallyRun({ modules, unhandledErrors: 0, reason: 'failed' }).failed).toBe(1);
  });

  it('counts an error outside every test as a failure, though all tests passed', () => {
    const modules = [finishModule({ ok: true, states: ['passed'] })];
    expect(tallyRun({ modules, unhandledErrors: 1, reason: 'passed' }).failed).toBe(1);
  });

  it('has at least one failure when the run did not pass', () => {
    expect(tallyRun({ modules: [], unhandledErrors: 0, reason: 'failed' }).failed).toBe(1);
    expect(tallyRun({ modules: [], unhandledErrors: 0, reason: 'interrupted' }).failed).toBe(1);
  });
});

describe('the last line that vitest prints', { timeout: 60_000 }, () => {
  it('counts a run that passed', async () => {
    const run = await runFiles({ 'good.test.ts': "it('a', () => {});\nit.skip('b', () => {});" });
    expect(run).toMatchObject({ lastLine: 'tests: 1 passed, 0 failed, 1 skipped', exitCode: 0 });
  });

  it('counts failed tests, files and stray errors', async () => {
    const run = await runFiles({
      'good.test.ts': "it('a', () => {});",
      'failing.test.ts': "it('a', () => { throw new Error('on purpose'); });",
      'unloadable.test.ts': "throw new Error('on purpose');",
      'stray.test.ts': "it('a', () => { void Promise.reject(new Error('on purpose')); });",
    });
    expect(run).toMatchObject({ lastLine: 'tests: 2 passed, 3 failed, 0 skipped', exitCode: 1 });
  });

  it('reports a failure when a test file ends its process', async () => {
    const run = await runFiles({
      'dying.test.ts': "it('a', () => { process.kill(process.pid, 'SIGKILL'); });",
    });
    expect(run.exitCode).toBe(1);
    expect(run.lastLine).toMatch(/^tests: 0 passed, [1-9]\d* failed, /);
  });
});
