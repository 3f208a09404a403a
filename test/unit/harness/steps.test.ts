// Handlers that remember steps and wait for children and times, on the real queue and worker.
import { ChildFailedError, type Context, type Job } from 'millrace';
import { createHarness } from 'millrace/testing';
import { describe, expect, it } from 'vitest';

type Runs = string[];

/** A handler that writes down what it does. */
function make<Input extends object>(
  act: (job: Job<Input>, ctx: Context, runs: Runs) => Promise<unknown>,
) {
  const runs: Runs = [];
  const handler = (job: Job<Input>, ctx: Context) => act(job, ctx, runs);
  return { runs, handler };
}

const double = async ({ input }: Job<{ n: number }>) => ({ n: input.n * 2 });

describe('a step', () => {
  it('beyond the bytes of all steps fails with their number, at the last byte too', async () => {
    const { handler } = make(async (_, ctx) => {
      for (let n = 0; n < 8; n++) await ctx.step(`${n}`, () => 'x'.repeat(524_280));
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(10_000);
    await expect(job.result()).rejects.toThrow('ctx.step("7"): the steps of the job have');
  });

  it('runs once, and later attempts get its result', async () => {
    const { handler, runs } = make(async (_, ctx, runs) => {
      const first = await ctx.step('first', () => {
        runs.push(`first in ${ctx.attempt}`);
        return { at: new Date(0) };
      });
      if (ctx.attempt === 1) throw new Error('crash');
      return first;
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(10_000);
    expect(await job.result()).toEqual({ at: '1970-01-01T00:00:00.000Z' });
    expect(runs).toEqual(['first in 1']);
  });

  it('is remembered if the worker dies behind it', async () => {
    const { handler, runs } = make(async (_, ctx, runs) => {
      await ctx.step('load', () => runs.push('load'));
      if (ctx.attempt === 1) await new Promise(() => {});
      return 'done';
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(1_000);
    await harness.killWorker();
    await harness.advance(60_000);
    expect(await job.result()).toBe('done');
    expect(runs).toEqual(['load']);
  });

  it('goes on only when the platform has its result', async () => {
    const { handler, runs } = make(async (_, ctx, runs) => {
      await ctx.step('send', () => runs.push('send'));
      runs.push('behind');
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    await harness.advance(1_000);
    const release = harness.holdNextRequest('report');
    const job = await harness.submit({});
    await harness.advance(1_000);
    expect(runs).toEqual(['send']);
    release();
    await harness.advance(1_000);
    await job.result();
    expect(runs).toEqual(['send', 'behind']);
  });

  it('runs again if its function has thrown', async () => {
    const { handler, runs } = make((_, ctx, runs) =>
      ctx.step('flaky', () => {
        if (runs.push(`attempt ${ctx.attempt}`) === 1) throw new Error('flaky');
        return 'ok';
      }),
    );
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(10_000);
    expect(await job.result()).toBe('ok');
    expect(runs).toEqual(['attempt 1', 'attempt 2']);
  });
});

describe('a child', () => {
  it('runs without a slot of its parent, and its parent gets the output', async () => {
    const { handler, runs } = make<{ n: number }>(async ({ input }, ctx, runs) => {
      runs.push(`attempt ${ctx.attempt}`);
      if (input.n > 1) return input.n;
      // One slot: the child runs only if the parent does not hold it.
      return ctx.run('child', { input: { n: 7 } });
    });
    await using harness = await createHarness({ handler, slots: 1, clock: 'manual' });
    const job = await harness.submit({ n: 1 });
    await harness.advance(10_000);
    expect(await job.result()).toBe(7);
    expect(runs).toEqual(['attempt 1', 'attempt 1', 'attempt 2']);
    expect(await job.record()).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('waits together with others that start in the same moment, on other endpoints too', async () => {
    const { handler, runs } = make<{ numbers: number[] }>(async ({ input }, ctx, runs) => {
      runs.push(`attempt ${ctx.attempt}`);
      const doubled = await Promise.all(
        input.numbers.map((n, at) =>
          ctx.run<{ n: number }>(`part ${at}`, { endpoint: 'double', input: { n } }),
        ),
      );
      return doubled.map(({ n }) => n);
    });
    await using harness = await createHarness({
      ...{ handler, clock: 'manual', endpoints: { double } },
    });
    const job = await harness.submit({ numbers: [1, 2, 3] });
    await harness.advance(10_000);
    expect(await job.result()).toEqual([2, 4, 6]);
    expect(runs).toEqual(['attempt 1', 'attempt 2']);
  });
});

describe('a sleep', () => {
  it('ends the attempt, and the job goes on when its time has come', async () => {
    const { handler, runs } = make(async (_, ctx, runs) => {
      runs.push(`attempt ${ctx.attempt}`);
      await ctx.sleep('night', 3_600_000);
      return 'awake';
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(3_590_000);
    expect(await job.record()).toMatchObject({
      status: 'IN_QUEUE',
      waitReason: { code: 'sleeping' },
    });
    await harness.advance(20_000);
    expect(await job.result()).toBe('awake');
    expect(runs).toEqual(['attempt 1', 'attempt 2']);
  });
});

describe('a child that fails', () => {
  const failing = () => {
    throw new Error('no such model');
  };

  it('throws its error at its parent, which can catch it', async () => {
    const { handler } = make(async (_, ctx) => {
      try {
        await ctx.run('child', { endpoint: 'failing', input: {} });
      } catch (error) {
        if (!(error instanceof ChildFailedError)) throw error;
        return { status: error.status, code: error.code, message: error.message };
      }
      return 'no error';
    });
    await using harness = await createHarness({
      ...{ handler, clock: 'manual', maxAttempts: 1, endpoints: { failing } },
    });
    const job = await harness.submit({});
    await harness.advance(10_000);
    expect(await job.result()).toEqual({
      ...{ status: 'FAILED', code: 'handler_error' },
      message: expect.stringMatching(/^child "child" \(job .*\) is FAILED: no such model$/),
    });
  });

  it('fails its parent without a retry, and a retry by a client runs it again as the same job', async () => {
    let isBroken = true;
    const ids = new Set<string>();
    const flaky = ({ id }: Job) => {
      ids.add(id);
      if (isBroken) throw new Error('broken');
      return 'mended';
    };
    const { handler, runs } = make(async (_, ctx, runs) => {
      await ctx.step('once', () => runs.push('once'));
      return ctx.run('child', {
        endpoint: 'flaky',
        input: {},
        policy: { retry: { maxAttempts: 1 } },
      });
    });
    await using harness = await createHarness({ handler, clock: 'manual', endpoints: { flaky } });
    const job = await harness.submit({});
    await harness.advance(60_000);
    expect(await job.record()).toMatchObject({
      ...{ status: 'FAILED', attempt: 2, error: { type: 'ChildFailedError' } },
    });
    isBroken = false;
    await harness.retry(job.id);
    await harness.advance(60_000);
    expect(await job.result()).toBe('mended');
    expect(runs).toEqual(['once']);
    expect(ids.size).toBe(1);
  });

  it('is cancelled with its parent', async () => {
    const ended: string[] = [];
    const slow = (_: Job, ctx: Context) =>
      new Promise((_resolve, reject) => {
        ctx.signal.addEventListener('abort', () => {
          ended.push('aborted');
          reject(ctx.signal.reason);
        });
      });
    const { handler } = make(async (_, ctx) => ctx.run('child', { endpoint: 'slow', input: {} }));
    await using harness = await createHarness({ handler, clock: 'manual', endpoints: { slow } });
    const job = await harness.submit({});
    await harness.advance(2_000);
    expect(await job.record()).toMatchObject({ waitReason: { code: 'waits_for_child' } });
    await harness.cancel(job.id);
    await harness.advance(10_000);
    expect(await job.record()).toMatchObject({ status: 'CANCELLED' });
    expect(ended).toEqual(['aborted']);
  });

  it('fails its parent if it cannot be started', async () => {
    const { handler } = make(async (_, ctx) => ctx.run('child', { endpoint: 'none', input: {} }));
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(10_000);
    expect(await job.record()).toMatchObject({
      ...{ status: 'FAILED', attempt: 1 },
      error: { code: 'wait_failed', message: 'child "child": endpoint none not found' },
    });
  });
});

describe('a handler that asks otherwise than before', () => {
  const WRONG: Record<string, { act: (ctx: Context) => Promise<unknown>; message: RegExp }> = {
    'with a name that it uses twice': {
      act: async (ctx) => {
        await ctx.step('a', () => 1);
        await ctx.sleep('a', 1);
      },
      message: /^ctx.sleep: the name "a" is used twice/,
    },
    'with another input': {
      act: (ctx) => ctx.run('child', { endpoint: 'double', input: { n: ctx.attempt } }),
      message: /^ctx.run\("child"\): an earlier attempt started this child with another input/,
    },
    'with the name of something else': {
      act: async (ctx) => {
        if (ctx.attempt === 1) await ctx.sleep('a', 1);
        else await ctx.step('a', () => 1);
      },
      message: /^ctx.step: "a" was the name of a sleep in an earlier attempt/,
    },
    'inside a step': {
      act: (ctx) => ctx.step('outer', () => ctx.run('inner', { input: {} })),
      message: /^ctx.run: "inner" is inside the function of step "outer"/,
    },
    'for a result that is too large': {
      act: (ctx) => ctx.step('large', () => 'x'.repeat(1_048_576)),
      message: /^ctx.step\("large"\): the result has 1048578 bytes of JSON; the limit is 1048576/,
    },
    'for a sleep that is too long': {
      act: (ctx) => ctx.sleep('long', 31 * 86_400_000),
      message: /^ctx.sleep\("long"\): takes a Date, or ms from 0 to 2592000000 \(30 days\)/,
    },
  };

  it.each(Object.entries(WRONG))('fails at once: %s', async (_, { act, message }) => {
    const { handler } = make(async (_, ctx) => act(ctx));
    await using harness = await createHarness({ handler, clock: 'manual', endpoints: { double } });
    const job = await harness.submit({});
    await harness.advance(60_000);
    const { error, status } = await job.record();
    expect(status).toBe('FAILED');
    expect(error).toMatchObject({ type: 'StepError', message: expect.stringMatching(message) });
    expect(error?.attempts).toHaveLength(1);
  });

  it('fails at once if it has yielded before it waits', async () => {
    const handler = async function* (_: Job, ctx: Context) {
      yield 'first';
      await ctx.sleep('night', 1_000);
    };
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(10_000);
    expect(await job.record()).toMatchObject({
      error: { type: 'StepError', message: expect.stringMatching(/the handler has yielded/) },
    });
  });
});

describe('a job that waits', () => {
  it('goes on after restarts of the platform and of the worker, with one child', async () => {
    const started = new Set<string>();
    const child = async ({ id }: Job) => {
      started.add(id);
      return id;
    };
    const { handler } = make(async (_, ctx) => {
      const first = await ctx.run('first', { endpoint: 'child', input: {} });
      await ctx.sleep('pause', 5_000);
      const second = await ctx.run('second', { endpoint: 'child', input: {} });
      return [first, second];
    });
    await using harness = await createHarness({ handler, clock: 'manual', endpoints: { child } });
    const job = await harness.submit({});
    for (let at = 0; at < 20; at++) {
      await harness.advance(400);
      if (at % 3 === 0) await harness.restartPlatform();
      if (at % 5 === 0) await harness.killWorker();
      if (at % 4 === 0) harness.dropNextAnswer('report');
    }
    await harness.advance(120_000);
    expect(await job.result()).toEqual([...started]);
    expect(started.size).toBe(2);
  });

  it('has a time to live that stands still, and no retry is counted', async () => {
    const { handler } = make(async (_, ctx) => {
      await ctx.sleep('week', 7 * 86_400_000);
      return 'done';
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({}, { ttl: 60_000 });
    await harness.advance(7 * 86_400_000 + 10_000);
    expect(await job.result()).toBe('done');
  });

  it('waits for all at once: a step that still runs comes first', async () => {
    const gate = Promise.withResolvers<void>();
    const { handler, runs } = make(async (_, ctx, runs) => {
      const [, value] = await Promise.all([
        ctx.sleep('pause', 1_000),
        ctx.step('slow', async () => {
          await gate.promise;
          return runs.push('slow');
        }),
      ]);
      return value;
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(5_000);
    expect(await job.record()).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
    gate.resolve();
    await harness.advance(5_000);
    expect(await job.result()).toBe(1);
    expect(runs).toEqual(['slow']);
  });
});

it('waits for no children whose inputs are too large together, and fails at once', async () => {
  const { handler, runs } = make((_, ctx, runs) => {
    runs.push('attempt');
    const input = { text: 'x'.repeat(1_048_576) };
    return Promise.all(Array.from({ length: 4 }, (_, n) => ctx.run(`${n}`, { input })));
  });
  await using harness = await createHarness({ handler, clock: 'manual' });
  const job = await harness.submit({});
  await harness.advance(10_000);
  await expect(job.result()).rejects.toThrow('ctx.run: the children that start at once have');
  expect(runs).toEqual(['attempt']);
});

it('remembers outputs of children that are larger together than one commit takes', async () => {
  const large = ({ input }: Job<{ letter: string }>) => input.letter.repeat(700_000);
  const { handler } = make(async (_, ctx) => {
    const outputs = await Promise.all(
      [...'abc'].map((letter) => ctx.run<string>(letter, { endpoint: 'large', input: { letter } })),
    );
    return outputs.map((output) => `${output.length}${output.slice(-1)}`);
  });
  await using harness = await createHarness({ handler, clock: 'manual', endpoints: { large } });
  const job = await harness.submit({});
  await harness.advance(10_000);
  expect(await job.result()).toEqual(['700000a', '700000b', '700000c']);
});

it('nests children 8 levels deep, and no deeper', async () => {
  const { handler, runs } = make<{ n: number }>(async ({ input: { n } }, ctx, runs) => {
    if (ctx.attempt === 1) runs.push(`${n}`);
    if (n > 9) return;
    await ctx.run('deeper', { input: { n: n + 1 } });
  });
  await using harness = await createHarness({ handler, clock: 'manual' });
  const job = await harness.submit({ n: 0 });
  await harness.advance(120_000);
  await expect(job.result()).rejects.toThrow('is FAILED');
  expect(runs).toEqual([...'012345678']);
});
