// Holds: the time in which an attempt waits for its model process to start does not count.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { beginHold } from '../../../../src/handler/attempt/hold.ts';
import { invoke } from '../../../../src/handler/attempt/invoke.ts';
import type { Context, Job } from '../../../../src/handler/define.ts';
import { readHandler } from '../../../../src/handler/loading/load.ts';

function begin(run: (job: Job, ctx: Context) => unknown, clock: ManualClock) {
  const held: boolean[] = [];
  const call = {
    ...{ number: 1, jobId: 'job-1', attempt: 1, input: Buffer.from('{}'), timeoutMs: 10_000 },
    ...{ devices: [], windowBytes: 1_000, clock },
    limits: { outputBytes: 1_000, chunkTotalBytes: 1_000 },
  };
  const sink = {
    ...{ chunks: () => undefined, progress: () => undefined, log: () => undefined },
    held: (isHeld: boolean) => void held.push(isHeld),
  };
  return { held, attempt: invoke(readHandler(run, 'handler'), call, sink) };
}

describe('an attempt that waits for a model process', () => {
  it('has no execution time meanwhile, even if several calls wait', async () => {
    const clock = new ManualClock();
    const { attempt, held } = begin(async (_, ctx) => {
      await clock.advance(10);
      const [first, second] = [beginHold(ctx), beginHold(ctx)];
      await clock.advance(30_000);
      first();
      first();
      await clock.advance(1_000);
      second();
      await clock.advance(7);
    }, clock);
    expect((await attempt.end).outcome).toMatchObject({ kind: 'completed', executionMs: 17 });
    expect(held).toEqual([true, false]);
  });

  it('has no negative execution time if it ends while a call waits', async () => {
    const clock = new ManualClock();
    let reads = 0;
    // The thread pauses ever longer between two reads.
    clock.now = () => (reads++) ** 2;
    const { attempt } = begin((_, ctx) => void beginHold(ctx), clock);
    expect((await attempt.end).outcome).toMatchObject({ kind: 'completed', executionMs: 10 });
  });

  it('returns to the queue if its timeout comes meanwhile', async () => {
    const clock = new ManualClock();
    const { attempt } = begin(async (_, ctx) => {
      beginHold(ctx);
      await new Promise((_, reject) => {
        ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason));
      });
    }, clock);
    await clock.advance(10_000);
    attempt.stop('timeout');
    expect((await attempt.end).outcome).toEqual({ kind: 'released', reason: 'not_started' });
  });

  it('needs a ctx: other options begin no hold', () => {
    expect(() => beginHold({ signal: undefined })()).not.toThrow();
  });
});
