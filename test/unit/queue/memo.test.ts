// What the platform keeps of steps and waits, for workers that are not ours.
import { describe, expect, it, onTestFinished } from 'vitest';
import { LIMITS } from '../../../src/wire/job/job.ts';
import type { Lease, Report } from '../../../src/wire/link/worker-link.ts';
import { completed, ENDPOINT, Hand, Platform } from '../../support/queue-platform.ts';

async function start(): Promise<{ platform: Platform; worker: Hand }> {
  const platform = new Platform();
  onTestFinished(() => platform.close());
  await platform.start();
  const worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
  return { platform, worker };
}

function draft({ attempt, jobId, token }: Lease, seq: number, value: unknown) {
  return { jobId, attempt, token, seq, body: Buffer.from(JSON.stringify(value)) };
}

function step(lease: Lease, seq: number): Report {
  return { ...draft(lease, seq, { done: seq }), kind: 'step', name: `step ${seq}` };
}

function wait(lease: Lease, seq: number, waits: readonly object[]): Report {
  const outcome = { kind: 'waiting', executionMs: 1 } as const;
  return { ...draft(lease, seq, waits), kind: 'outcome', outcome };
}

const countRows = async ({ store }: Platform) =>
  (await store.read((tx) => tx.resources({ kind: 'memo', limit: 10 }))).length;

describe('the memo of a job', () => {
  it('is removed when the job has COMPLETED', async () => {
    const { platform, worker } = await start();
    await platform.submit();
    const lease = await worker.takeOne();
    await worker.report([step(lease, 1), step(lease, 2)]);
    expect(await countRows(platform)).toBe(2);
    await worker.finish(lease, completed, { seq: 3 });
    expect(await countRows(platform)).toBe(0);
  });

  it('is removed with a job that is cancelled', async () => {
    const { platform, worker } = await start();
    const id = await platform.submit();
    await worker.report([step(await worker.takeOne(), 1)]);
    await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
    expect(await countRows(platform)).toBe(0);
  });

  it('has a bounded number of entries: a wait beyond it fails the job', async () => {
    const { platform, worker } = await start();
    const id = await platform.submit();
    const lease = await worker.takeOne();
    const sleeps = Array.from({ length: LIMITS.stepsOfJob }, (_, n) => ({
      ...{ kind: 'sleep', name: `sleep ${n}`, forMs: 0 },
    }));
    await worker.report([step(lease, 1), wait(lease, 2, sleeps)]);
    expect(await platform.record(id)).toMatchObject({
      status: 'FAILED',
      error: { code: 'wait_failed', message: expect.stringContaining('1001 steps') },
    });
  });
});
