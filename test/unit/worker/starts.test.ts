// What a worker tells the platform of its starts.
import { expect, it } from 'vitest';
import { lease, script, startScript } from '../../support/workers/worker-script.ts';

const model = { of: 'model', interpreterMs: 20, importMs: 700, setupMs: 900 } as const;

it('names the parts of its start, those before its process included', async () => {
  const upAt = 1_000_700;
  const before = { beganAt: 1_000_500, queueMs: 400, installMs: 2_000 };
  const { clock, executor, link, worker } = script({ before });
  executor.onStart = async () => {
    executor.reportStart({
      of: 'worker',
      upAt,
      interpreterMs: 30,
      importMs: 3_000,
      setupMs: 5_000,
    });
    return {};
  };
  await worker.start();
  await clock.advance(0);
  const parts = { queueMs: 400, installMs: 2_000, interpreterMs: 230, importMs: 3_000 };
  const start = { of: 'worker', parts: { ...parts, setupMs: 5_000 } };
  expect(link.hellos[0]).toMatchObject({ start });
  expect(link.lastRenewal.request).toMatchObject({ start });
});

it('adds the first call when it has its first output', async () => {
  const { clock, executor, link } = await startScript({ slots: 2 });
  executor.reportStart(model);
  link.lastTake.answer([lease('a'), lease('b')]);
  await clock.advance(70);
  executor.executions[1]?.sink.chunks({ sizes: [1], bytes: Buffer.from('1') });
  executor.executions[0]?.sink.chunks({ sizes: [1], bytes: Buffer.from('1') });
  await clock.advance(5_000);
  link.renewals[0]?.answer({ ended: [], drain: false });
  await clock.advance(0);
  const parts = { interpreterMs: 20, importMs: 700, setupMs: 900, firstCallMs: 70 };
  expect(link.lastRenewal.request).toMatchObject({ start: { of: 'model', parts } });
});

it('takes the next attempt for the first call if one is released', async () => {
  const { clock, executor, worker, link } = await startScript();
  executor.reportStart(model);
  link.lastTake.answer([lease('a')]);
  await clock.advance(1_000);
  executor.last.finish({ outcome: { kind: 'released', reason: 'neighbour' }, output: undefined });
  await clock.advance(0);
  link.lastTake.answer([lease('b')]);
  await clock.advance(30);
  executor.last.complete();
  await clock.advance(0);
  expect(worker.health().start?.parts.firstCallMs).toBe(30);
});

it('counts the start of a later model process as one of its own', async () => {
  const { clock, executor, worker } = await startScript();
  executor.reportStart({ ...model, interpreterMs: undefined });
  const { start } = worker.health();
  expect(start).toEqual({ of: 'model', at: clock.now(), parts: { importMs: 700, setupMs: 900 } });
});
