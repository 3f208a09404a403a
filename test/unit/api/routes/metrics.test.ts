import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { completed, Hand, outcomeOf } from '../../../conformance/platform.ts';
import { ENDPOINT, startPlatform, submitJob } from '../platform.ts';

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

it('every metric of Millrace is described in docs/operations.md', async () => {
  const platform = await startPlatform();
  const text = await (await platform.call('/metrics')).text();
  const names = [...text.matchAll(/^# HELP (millrace_\w+)/gm)].map(([, name]) => name);
  const described = await readFile('docs/operations.md', 'utf8');
  expect(names).not.toEqual([]);
  expect(names.filter((name) => !described.includes(`| \`${name}`))).toEqual([]);
});
