// The harness under a test's fake timers, and in a program that does not close it.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type Context, RetryAfterError } from 'millrace';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createHarness, runHandler } from '../../../src/testing.ts';

describe('under fake timers', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  it.each(['flowing', 'manual'] as const)(
    'runs jobs in a harness with a %s clock',
    async (clock) => {
      let attempts = 0;
      async function* handler(job: { input: { n: number } }) {
        attempts += 1;
        yield job.input.n;
        if (attempts === 1) throw new Error('again');
        console.log('done');
        return 7;
      }
      const harness = await createHarness({ handler, clock });
      const job = await harness.submit({ n: 1 });
      await harness.advance(5_000);
      expect(await job.end()).toMatchObject({ status: 'COMPLETED', attempt: 2 });
      expect(attempts).toBe(2);
      await harness.close();
    },
  );

  it('waits in real time for a retry in a harness', async () => {
    const handler = (_job: object, ctx: Context) => {
      if (ctx.attempt === 1) throw new RetryAfterError(20);
      return ctx.attempt;
    };
    const harness = await createHarness({ handler });
    expect(await (await harness.submit({})).end()).toMatchObject({ output: 2 });
    await harness.close();
  });

  it('runs a job with runHandler', async () => {
    expect(await runHandler(async () => 1, {})).toMatchObject({ status: 'COMPLETED', output: 1 });
  });
});

const TESTING = JSON.stringify(new URL('../../../src/testing.ts', import.meta.url));

async function runProgram(source: string): Promise<string> {
  const program = `import { createHarness } from ${TESTING};\n${source}`;
  const args = ['--input-type=module', '--eval', program];
  const end = new AbortController();
  onTestFinished(() => end.abort());
  return (await promisify(execFile)(process.execPath, args, { signal: end.signal })).stdout;
}

describe('a harness that is not closed', () => {
  it('does not keep the process alive, even with a job that never ends', async () => {
    const stdout = await runProgram(`
      const handler = ({ input }) => input.n === 1 ? 'one' : new Promise(() => {});
      const harness = await createHarness({ handler });
      console.log(await harness.run({ n: 1 }));
      await harness.submit({ n: 2 });`);
    expect(stdout).toBe('one\n');
  });

  it('keeps the process alive while the program waits for a job', async () => {
    const stdout = await runProgram(`
      let attempts = 0;
      const handler = () => {
        attempts += 1;
        if (attempts === 1) throw new Error('again');
        return attempts;
      };
      const harness = await createHarness({ handler });
      const job = await harness.submit({});
      console.log(await job.result());`);
    expect(stdout).toBe('2\n');
  });
});
