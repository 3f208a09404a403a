import { expect, it } from 'vitest';
import { StreamedOutput } from '../../../../src/transport/runpod/bodies.ts';
import { RunPodJobs } from '../../../../src/transport/runpod/held-jobs.ts';

it('the jobs of a RunPod worker include the last 1,000 ended ones, which can still be stopped', () => {
  const jobs = new RunPodJobs({
    ledger: undefined,
    createStreamed: () => new StreamedOutput(),
    onRequeued: () => undefined,
  });
  for (let n = 0; n <= 1_000; n++) {
    const lease = jobs.add({ jobId: `job-${n}`, input: new Uint8Array(0) });
    const held = jobs.find(lease?.token ?? '');
    if (held) jobs.remove(held);
  }
  expect(jobs.size).toBe(0);
  expect(['job-0', 'job-1', 'job-1000'].map((id) => jobs.stop(id))).toEqual([false, true, true]);
});
