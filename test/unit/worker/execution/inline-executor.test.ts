// Handlers in the worker's own thread, under a clock that the test drives.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import type { Context, SetupContext } from '../../../../src/handler/define.ts';
import { readHandler } from '../../../../src/handler/loading/load.ts';
import { HandlerNotLoadedError } from '../../../../src/worker/execution/executor.ts';
import {
  InlineExecutor,
  type InlineExecutorOptions,
} from '../../../../src/worker/execution/inline-executor.ts';
import { RecordingSink } from '../../../support/network/recording-sink.ts';
import { cpu, makeLease, readOutput } from '../../../support/workers/leases.ts';

function create(module: unknown, options: Partial<InlineExecutorOptions> = {}) {
  const clock = new ManualClock();
  const handler = readHandler(module, 'handler');
  const executor = new InlineExecutor({ handler, devices: [cpu], clock, ...options });
  const sink = new RecordingSink();
  const begin = (input: unknown = {}, timeoutMs = 10_000) =>
    executor.execute(makeLease(input), timeoutMs, sink);
  return { clock, executor, sink, begin };
}

const never = () => new Promise(() => undefined);

describe('InlineExecutor', () => {
  it('runs setup with the devices before the first job', async () => {
    let devices: unknown;
    const { executor, begin } = create({
      default: () => devices,
      setup: (ctx: SetupContext) => {
        devices = ctx.devices;
      },
    });
    const { end } = begin();
    await executor.start();
    expect(readOutput(await end)).toEqual([cpu]);
  });

  it('does not start if setup throws', async () => {
    const { executor } = create({
      default: never,
      setup: () => Promise.reject(new Error('no weights')),
    });
    await expect(executor.start()).rejects.toMatchObject({
      ...{ name: HandlerNotLoadedError.name, stage: 'setup' },
      message: expect.stringContaining('no weights'),
    });
  });

  it('does not count the time in which a job stood still that began meanwhile', async () => {
    const work = Promise.withResolvers<void>();
    const { clock, executor, begin } = create({ default: () => work.promise });
    await executor.start();
    const goOn = executor.standStill();
    const { end } = begin({}, 10_000);
    await clock.advance(60_000);
    goOn();
    await clock.advance(5_000);
    work.resolve();
    expect((await end).outcome).toMatchObject({ kind: 'completed', executionMs: 5_000 });
  });

  it('stops no job for the time in which it stood still, and does not count that time', async () => {
    const work = Promise.withResolvers<void>();
    const deadlines: number[] = [];
    const { clock, executor, begin } = create({
      default: async (_: unknown, ctx: Context) => {
        deadlines.push(ctx.deadline);
        await work.promise;
        deadlines.push(ctx.deadline);
        return 1;
      },
    });
    await executor.start();
    const { end } = begin({}, 10_000);
    await clock.advance(4_000);
    const goOn = executor.standStill();
    await clock.advance(60_000);
    goOn();
    await clock.advance(5_900);
    work.resolve();
    expect((await end).outcome).toMatchObject({ kind: 'completed', executionMs: 9_900 });
    const [before = 0, after = 0] = deadlines;
    expect(after - before).toBe(60_000);
  });

  it('stops a job that has stood still when its own time is over', async () => {
    const { clock, executor, begin } = create({ default: never });
    await executor.start();
    const { end } = begin({}, 10_000);
    const goOn = executor.standStill();
    await clock.advance(60_000);
    goOn();
    await clock.advance(20_000);
    expect((await end).outcome).toMatchObject({ kind: 'timed_out' });
  });

  it('does not start if setup takes too long', async () => {
    const { executor, clock } = create({
      default: never,
      setup: never,
      config: { setupTimeoutMs: 500 },
    });
    const refused = expect(executor.start()).rejects.toMatchObject({
      ...{ name: HandlerNotLoadedError.name, stage: 'setup' },
      message: expect.stringContaining('500 ms'),
    });
    await clock.advance(500);
    await refused;
  });

  it('runs as many jobs at a time as it has slots', async () => {
    const releases: (() => void)[] = [];
    const { executor, clock, begin } = create(
      { default: () => new Promise<void>((resolve) => releases.push(resolve)) },
      { slots: 2 },
    );
    await executor.start();
    const jobs = [begin(), begin(), begin()];
    await clock.advance(0);
    expect(releases).toHaveLength(2);
    releases[0]?.();
    await jobs[0]?.end;
    await clock.advance(0);
    expect(releases).toHaveLength(3);
  });

  it('reports each freed slot', async () => {
    const { executor, begin } = create(() => 1);
    await executor.start();
    const seen: number[] = [];
    executor.onChange(() => seen.push(executor.free));
    await begin().end;
    await Promise.resolve();
    expect(seen.at(-1)).toBe(1);
  });

  it('stops a job at its timeout, measured with the given clock', async () => {
    const { executor, clock, begin } = create(
      (_: unknown, { signal }: Context) =>
        new Promise((__, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
        }),
    );
    await executor.start();
    const { end } = begin({}, 1_000);
    await clock.advance(1_000);
    expect((await end).outcome).toMatchObject({
      kind: 'timed_out',
      executionMs: 1_000,
      stopped: 'signal',
    });
  });

  it('declares a job ended after its grace period and ignores later events of it', async () => {
    let goOn: () => void = () => undefined;
    const { executor, clock, begin, sink } = create(
      (_: unknown, { progress }: Context) =>
        new Promise<void>((resolve) => {
          goOn = () => {
            progress('late');
            resolve();
          };
        }),
      { graceMs: 200 },
    );
    await executor.start();
    const job = begin();
    await clock.advance(0);
    job.stop('cancelled');
    await clock.advance(200);
    expect((await job.end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'thread' });
    expect(executor.free).toBe(1);
    goOn();
    await clock.advance(100);
    expect(sink.progressValues).toEqual([]);
  });

  it('writes console output only to the job’s log if the option is set', async () => {
    const module = {
      default: () => {
        console.log('said by %s', 'me');
      },
    };
    const { executor, begin, sink } = create(module, { console: 'captured' });
    await executor.start();
    await begin().end;
    expect(sink.logLines).toMatchObject([{ level: 30, msg: 'said by me' }]);
  });

  it('releases running and waiting jobs when it stops, and runs teardown', async () => {
    let isTornDown = false;
    const { executor, begin, clock } = create({
      default: never,
      teardown: () => {
        isTornDown = true;
      },
    });
    await executor.start();
    const [running, waiting] = [begin(), begin()];
    await clock.advance(0);
    const stopped = executor.stop();
    await clock.advance(2_000);
    await stopped;
    expect((await running.end).outcome).toEqual({ kind: 'released', reason: 'drain' });
    expect((await waiting.end).outcome).toEqual({ kind: 'released', reason: 'not_started' });
    expect(isTornDown).toBe(true);
  });
});
