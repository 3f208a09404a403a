// What the metrics of a worker show of what happened to it: a scripted queue, real counters.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { type Lease, LinkError } from '../../../../src/wire/link/worker-link.ts';
import { createWorkerMetrics } from '../../../../src/worker/health/worker-metrics.ts';
import type { WorkerOptions } from '../../../../src/worker/worker.ts';
import { lease, type ScriptedLink, script } from '../../../support/workers/worker-script.ts';

const unavailable = new LinkError('unavailable', 'not now');

function watch(
  options: Pick<WorkerOptions, 'breakAfter' | 'breakerState'> &
    Partial<Pick<WorkerOptions, 'devices'>> = {},
) {
  const clock = new ManualClock();
  const metrics = createWorkerMetrics({ clock, version: '1.2.3' });
  const scripted = script({
    ...{ clock, devices: [], observer: metrics.observer, stuckAfterMs: 10_000, ...options },
  });
  const { worker } = scripted;
  /** The value of the series with this name and these labels, as it is written. */
  const read = async (series: string): Promise<number | undefined> => {
    const lines = (await metrics.collect(worker.health())).split('\n');
    const line = lines.find((each) => each.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length));
  };
  const readHistogram = async (name: string, labels = '') => ({
    count: await read(`millrace_worker_${name}_count${labels}`),
    sum: await read(`millrace_worker_${name}_sum${labels}`),
  });
  return { ...scripted, clock, read, readHistogram };
}

async function startWatched() {
  const watched = watch();
  await watched.worker.start();
  await watched.clock.advance(0);
  return watched;
}

async function give(started: { clock: ManualClock; link: ScriptedLink }, ...leases: Lease[]) {
  started.link.lastTake.answer(leases);
  await started.clock.advance(0);
}

function chunks(...sizes: number[]) {
  return { sizes, bytes: Buffer.alloc(1) };
}

describe('the metrics of a worker', () => {
  it('count attempts by outcome, from zero', async () => {
    const started = await startWatched();
    const { clock, executor, read } = started;
    const series = (outcome: string) =>
      read(`millrace_worker_attempts_ended_total{outcome="${outcome}"}`);
    expect(await series('completed')).toBe(0);
    await give(started, lease('a'), lease('b'));
    executor.executions[0]?.complete();
    executor.executions[1]?.finish({
      outcome: { kind: 'cancelled', executionMs: 20, stopped: 'signal' },
      output: undefined,
    });
    await clock.advance(0);
    expect([await series('completed'), await series('cancelled')]).toEqual([1, 1]);
    expect(await series('failed')).toBe(0);
  });

  it('show the run time of the handler by outcome, and none of a released attempt', async () => {
    const started = await startWatched();
    const { clock, executor, read, readHistogram } = started;
    await give(started, lease('a'), lease('b'));
    executor.executions[0]?.complete();
    executor.executions[1]?.finish({
      outcome: { kind: 'released', reason: 'neighbour' },
      output: undefined,
    });
    await clock.advance(0);
    const completed = '{outcome="completed"}';
    expect(await readHistogram('execution_seconds', completed)).toEqual({ count: 1, sum: 0.007 });
    expect(await read('millrace_worker_attempts_ended_total{outcome="released"}')).toBe(1);
    expect((await readHistogram('execution_seconds', '{outcome="released"}')).count).toBe(
      undefined,
    );
  });

  it('count the GPU seconds and joules of attempts, where there are GPUs', async () => {
    const gpu = { kind: 'gpu', index: 0, uuid: 'GPU-1', name: 'a', memoryBytes: 1 } as const;
    for (const devices of [[], [gpu, gpu]]) {
      const started = watch({ devices });
      const { clock, executor, read, worker } = started;
      await worker.start();
      await clock.advance(0);
      await give(started, lease('a'));
      await clock.advance(1_000);
      worker.noteGpuFigures({ vramScope: 'process', powerWatts: 300 });
      await clock.advance(500);
      executor.executions[0]?.complete();
      await clock.advance(0);
      const isGpu = devices.length > 0;
      expect(await read('millrace_worker_gpu_seconds_total')).toBe(isGpu ? 3 : undefined);
      expect(await read('millrace_worker_gpu_energy_joules_total')).toBe(isGpu ? 450 : undefined);
    }
  });

  it('show the wait of a job’s first attempt only', async () => {
    const started = await startWatched();
    const submittedAt = started.clock.now() - 1_500;
    await give(started, lease('a', { submittedAt }), lease('b', { submittedAt, attempt: 2 }));
    expect(await started.readHistogram('queue_wait_seconds')).toEqual({ count: 1, sum: 1.5 });
  });

  it('count no negative wait if the platform’s clock is ahead', async () => {
    const started = await startWatched();
    await give(started, lease('a', { submittedAt: started.clock.now() + 9_000 }));
    expect(await started.readHistogram('queue_wait_seconds')).toEqual({ count: 1, sum: 0 });
  });

  it('show the time to the first chunk, the time between chunks, and their bytes', async () => {
    const started = await startWatched();
    const { clock, executor, read, readHistogram } = started;
    await give(started, lease('a'));
    await clock.advance(250);
    executor.last.sink.chunks(chunks(10));
    await clock.advance(1_000);
    executor.last.sink.chunks(chunks(20_000, 30_000));
    expect(await readHistogram('first_chunk_seconds')).toEqual({ count: 1, sum: 0.25 });
    expect(await readHistogram('chunk_gap_seconds')).toEqual({ count: 2, sum: 1 });
    expect(await readHistogram('chunk_bytes')).toEqual({ count: 3, sum: 50_010 });
    expect(await read('millrace_worker_chunk_bytes_bucket{le="100"}')).toBe(1);
  });

  it('pass chunks to the platform unchanged', async () => {
    const started = await startWatched();
    await give(started, lease('a'));
    started.executor.last.sink.chunks({ sizes: [2], bytes: Buffer.from('{}') });
    started.executor.last.complete();
    await started.clock.advance(0);
    expect(started.link.reported).toEqual(['a#1 chunks', 'a#2 completed']);
  });

  it('show all, running and stuck slots and undelivered reports', async () => {
    const started = await startWatched();
    const { clock, executor, link, read } = started;
    link.onReport = () => new Promise(() => {});
    expect(await read('millrace_worker_ready')).toBe(1);
    await give(started, lease('a', { executionTimeoutMs: 1_000 }), lease('b'));
    executor.executions[1]?.complete();
    await clock.advance(12_000);
    expect([
      await read('millrace_worker_ready'),
      await read('millrace_worker_slots'),
      await read('millrace_worker_slots_running'),
      await read('millrace_worker_slots_stuck'),
      await read('millrace_worker_outbox_reports'),
    ]).toEqual([0, 4, 1, 1, 1]);
  });

  it('show that job after job fails with the same error', async () => {
    const breakerState = {
      name: 'open',
      error: 'handler_error: no disk',
      probes: 1,
      until: 0,
      probe: undefined,
    } as const satisfies WorkerOptions['breakerState'];
    expect(await watch({ breakAfter: 3, breakerState }).read('millrace_worker_breaker_open')).toBe(
      1,
    );
    expect(await watch({ breakAfter: 3 }).read('millrace_worker_breaker_open')).toBe(0);
  });

  it('count renewals, failed calls by verb and code, and reconnections', async () => {
    const { clock, link, read } = await startWatched();
    expect((await read('millrace_worker_reconnects_total{verb="hello"}')) ?? 0).toBe(0);
    link.lastRenewal.fail(unavailable);
    await clock.advance(1_000);
    link.lastRenewal.answer({ ended: [], drain: false });
    await clock.advance(0);
    expect(await read('millrace_worker_failed_calls_total{verb="renew",code="unavailable"}')).toBe(
      1,
    );
    expect(await read('millrace_worker_reconnects_total{verb="renew"}')).toBe(1);
    expect(await read('millrace_worker_lease_renewals_total')).toBe(1);
  });

  it('count a repeated hello', async () => {
    const { clock, link, read, worker } = watch();
    const { onHello } = link;
    link.onHello = () => Promise.reject(unavailable);
    const started = worker.start();
    await clock.advance(0);
    link.onHello = onHello;
    await clock.advance(1_000);
    await started;
    expect(await read('millrace_worker_failed_calls_total{verb="hello",code="unavailable"}')).toBe(
      1,
    );
    expect(await read('millrace_worker_reconnects_total{verb="hello"}')).toBe(1);
  });

  it('show how full batches are, how long they waited, and those that threw', async () => {
    const { executor, read, readHistogram } = await startWatched();
    const thrown = (result: string) =>
      read(`millrace_worker_batches_thrown_total{result="${result}"}`);
    expect([await thrown('split'), await thrown('failed')]).toEqual([0, 0]);
    executor.reportBatch({ kind: 'started', size: 8, of: 8, waitMs: 2 });
    executor.reportBatch({ kind: 'started', size: 2, of: 8, waitMs: 10 });
    executor.reportBatch({ kind: 'split', size: 2 });
    expect(await readHistogram('batch_size')).toEqual({ count: 2, sum: 10 });
    expect(await readHistogram('batch_fill_ratio')).toEqual({ count: 2, sum: 1.25 });
    expect(await readHistogram('batch_fill_wait_seconds')).toEqual({ count: 2, sum: 0.012 });
    expect([await thrown('split'), await thrown('failed')]).toEqual([1, 0]);
  });

  it('do not count calls as failed that a stopping worker aborts', async () => {
    const { clock, link, read, worker } = await startWatched();
    const left = worker.stop();
    link.lastTake.fail(unavailable);
    await clock.advance(10_000);
    await left;
    expect(await read('millrace_worker_failed_calls_total{verb="take",code="unavailable"}')).toBe(
      undefined,
    );
  });

  it('show the version, the event loop delay and the memory of the process', async () => {
    const { read } = watch();
    expect(await read('millrace_build_info{version="1.2.3"}')).toBe(1);
    expect(await read('nodejs_eventloop_lag_p99_seconds')).toBeGreaterThanOrEqual(0);
    expect(await read('process_resident_memory_bytes')).toBeGreaterThan(0);
  });

  it('are separate for two workers in one process', async () => {
    const [first, second] = [await startWatched(), await startWatched()];
    await give(first, lease('a'));
    expect([
      await first.read('millrace_worker_slots_running'),
      await second.read('millrace_worker_slots_running'),
    ]).toEqual([1, 0]);
  });
});
