import { expect, it } from 'vitest';
import { ENDPOINT, startPlatform, submitJob } from '../../../support/api/platform.ts';
import { completed, Hand, outcomeOf } from '../../../support/queue-platform.ts';

it('the crashes of a deleted endpoint are forgotten, and later reports are not counted', async () => {
  const platform = await startPlatform();
  const { endpoints, workers } = platform;
  const bye = { workerId: 'w', incarnation: 1, reason: 'crashed' as const, outbox: [] };
  const read = async () => (await platform.call('/metrics')).text();
  workers.noteCrash(ENDPOINT, bye);
  expect(await read()).toContain(`millrace_worker_crashes_total{endpoint="${ENDPOINT}"} 1`);
  await endpoints.remove('owner', ENDPOINT);
  workers.noteCrash(ENDPOINT, bye);
  expect(await read()).not.toContain('millrace_worker_crashes_total{');
});

it('GPU time and energy are counted once for each outcome, until the endpoint is deleted', async () => {
  const platform = await startPlatform();
  const { endpoints, queue } = platform;
  const read = async () => (await platform.call('/metrics')).text();
  const worker = new Hand(() => queue.link(ENDPOINT));
  await worker.hello();
  for (const seconds of [1.5, 2]) {
    await submitJob(platform);
    const report = outcomeOf(await worker.takeOne({ held: [] }), 1, completed, '1');
    const gpu = { seconds, energyJoules: 300, shared: false };
    for (const answer of ['applied', 'duplicate']) {
      expect(await worker.reportOne({ ...report, usage: { gpu } })).toEqual({ answer });
    }
  }
  expect(await read()).toContain(`millrace_gpu_seconds_total{endpoint="${ENDPOINT}"} 3.5`);
  expect(await read()).toContain(`millrace_gpu_energy_joules_total{endpoint="${ENDPOINT}"} 600`);
  await endpoints.remove('owner', ENDPOINT);
  await expect.poll(read).not.toContain('millrace_gpu_seconds_total{');
});

it('wait and run time of jobs are counted by endpoint, until the endpoint is deleted', async () => {
  const platform = await startPlatform();
  const { endpoints, queue } = platform;
  const read = async () => (await platform.call('/metrics')).text();
  const worker = new Hand(() => queue.link(ENDPOINT));
  await worker.hello();
  for (const executionMs of [200, 7_200_000]) {
    await submitJob(platform);
    const job = await worker.takeOne({ held: [] });
    const report = outcomeOf(job, 1, { ...completed, executionMs }, '1');
    for (const answer of ['applied', 'duplicate']) {
      expect(await worker.reportOne(report)).toEqual({ answer });
    }
  }
  const text = await read();
  const name = 'millrace_job_execution_seconds';
  const label = `endpoint="${ENDPOINT}"`;
  for (const [le, count] of Object.entries({ '0.1': 0, '0.5': 1, '3600': 1, '+Inf': 2 })) {
    expect(text).toContain(`${name}_bucket{${label},le="${le}"} ${count}\n`);
  }
  expect(text).toContain(`${name}_sum{${label}} 7200.2\n`);
  expect(text).toContain(`millrace_job_queue_wait_seconds_count{${label}} 2\n`);
  await endpoints.remove('owner', ENDPOINT);
  await expect.poll(read).not.toContain(`${name}_sum{`);
});
