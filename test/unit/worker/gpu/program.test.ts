// Real programs and how they end.
import { expect, it } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { runProgram } from '../../../../src/worker/gpu/program.ts';

const run = (script: string) =>
  runProgram({ file: 'sh', args: ['-c', script], timeoutMs: 60_000, clock: systemClock });

it('a program that a foreign signal ends is broken, and the reason names the signal', async () => {
  expect(await run('kill -KILL $$')).toEqual({ kind: 'broken', reason: 'ended by SIGKILL' });
});

it('a program that prints too much is broken, and the reason names the output', async () => {
  const end = await run('exec head -c 68000000 /dev/zero');
  expect(end).toEqual({ kind: 'broken', reason: expect.stringContaining('maxBuffer') });
});
