import { NonRetryableError } from 'millrace';
import { describe, expect, it } from 'vitest';
import { runProgram } from '../../../../examples/external-process/run-program.ts';
import { makeContext } from '../../../support/handler-context.ts';

/** Runs a script in a Node of its own, which is a program like any other. */
function runScript(script: string, context = makeContext()) {
  return runProgram(process.execPath, ['--eval', script], {
    input: 'from the job',
    maxOutputBytes: 1_000,
    ctx: context.ctx,
  });
}

/** Resolves once the script has said on standard error that it is up. */
async function waitUntilUp({ logged }: ReturnType<typeof makeContext>): Promise<number> {
  await expect.poll(() => logged.length).toBeGreaterThan(0);
  return Number(logged[0]?.msg);
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('runProgram', () => {
  it('passes the input to the program and returns its output', async () => {
    expect(String(await runScript('process.stdin.pipe(process.stdout)'))).toBe('from the job');
  });

  it('accepts a program that ends before it has read its input', async () => {
    expect(String(await runScript('console.log("done")'))).toBe('done\n');
  });

  it('logs each line of standard error', async () => {
    const context = makeContext();
    await runScript('process.stderr.write("one\\ntwo")', context);

    expect(context.logged.map(({ msg }) => msg)).toEqual(['one', 'two']);
  });

  it('fails without a retry, with the exit code and the last line of standard error', async () => {
    const failure = runScript('console.error("first"); console.error("last"); process.exit(3)');

    await expect(failure).rejects.toThrow(NonRetryableError);
    await expect(failure).rejects.toThrow(/\b3: last$/);
  });

  it('may be retried if the program was killed', async () => {
    const failure = runScript('process.kill(process.pid, "SIGKILL")');

    await expect(failure).rejects.toThrow('SIGKILL');
    await expect(failure).rejects.not.toThrow(NonRetryableError);
  });

  it('may be retried if the program does not exist', async () => {
    const { ctx } = makeContext();
    const failure = runProgram('/no/such/program', [], { input: '', maxOutputBytes: 1, ctx });

    await expect(failure).rejects.toThrow('ENOENT');
  });

  it('stops a program that writes too much', async () => {
    const failure = runScript('setInterval(() => process.stdout.write("x".repeat(600)), 1)');

    await expect(failure).rejects.toThrow('1000 bytes');
  });

  it.each([
    ['the program', 'console.error(process.pid); setInterval(() => {}, 1_000)'],
    [
      'a program that ignores SIGTERM',
      'process.on("SIGTERM", () => {}); console.error(process.pid); setInterval(() => {}, 1_000)',
    ],
  ])('stops %s when the job is cancelled, and waits for its end', async (_, script) => {
    const context = makeContext();
    const failure = runScript(script, context);
    failure.catch(() => {});
    const pid = await waitUntilUp(context);
    context.controller.abort(new Error('cancelled by the test'));

    await expect(failure).rejects.toThrow('cancelled by the test');
    expect(isAlive(pid)).toBe(false);
  });

  it('starts nothing for a cancelled job', async () => {
    const context = makeContext();
    context.controller.abort(new Error('too late'));

    await expect(runScript('', context)).rejects.toThrow('too late');
  });
});
