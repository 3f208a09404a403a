import { describe, expect, it } from 'vitest';
import {
  formatAttemptId,
  isSharedId,
  readAttemptName,
  readBatchSize,
  readNamedJobs,
  readPingMs,
  readWorkerCall,
} from '../../../../src/api/runpod/worker-urls.ts';

const BASE = '/runpod/v2/demo';

describe('the URL of a RunPod worker', () => {
  it.each([
    [`${BASE}/job-take-batch/pod-1?gpu=A+B&batch_size=4&job_in_progress=1`],
    [`${BASE}/job-take-batch/pod-1?&batch_size=4&job_in_progress=1`],
    [`${BASE}/job-take-batch/pod-1&batch_size=4&job_in_progress=1`],
  ])('is parsed with and without a question mark: %s', (url) => {
    const call = readWorkerCall(url, 'job-take-batch');

    expect(call).toMatchObject({ workerId: 'pod-1', jobName: undefined });
    expect(readBatchSize(call)).toBe(4);
    expect(call.params.get('job_in_progress')).toBe('1');
  });

  it.each([
    [`${BASE}/job-done/pod-1/j-a2?gpu=x&isStream=true`],
    [`${BASE}/job-done/pod-1/j-a2&isStream=true`],
  ])('names worker and job: %s', (url) => {
    const call = readWorkerCall(url, 'job-done');

    expect(call).toMatchObject({ workerId: 'pod-1', jobName: 'j-a2' });
    expect(call.params.get('isStream')).toBe('true');
  });

  it('is parsed correctly for an endpoint with the name of a verb', () => {
    const call = readWorkerCall('/runpod/v2/ping/ping/pod-1?job_id=j-a1', 'ping');

    expect(call).toMatchObject({ workerId: 'pod-1', jobName: undefined });
  });

  it('names a valid worker ID and marks it as possibly shared', () => {
    const call = readWorkerCall(`${BASE}/job-take/$RUNPOD_POD_ID&job_in_progress=0`, 'job-take');

    expect(call.workerId).toBe('RUNPOD_POD_ID');
    expect(['RUNPOD_POD_ID', 'pod-1'].map(isSharedId)).toEqual([true, false]);
  });

  it.each(['', '&batch_size=0', '&batch_size=x', '&batch_size=1.5'])(
    'requests one job without a valid number: "%s"',
    (query) => {
      const call = readWorkerCall(`${BASE}/job-take-batch/p${query}`, 'job-take-batch');

      expect(readBatchSize(call)).toBe(1);
    },
  );

  it('contains the jobs and the interval of a ping', () => {
    const call = readWorkerCall(`${BASE}/ping/p?every=2000&job_id=a-a1%2Cb-a2`, 'ping');

    expect(readNamedJobs(call)).toEqual(['a-a1', 'b-a2']);
    const many = Array.from({ length: 5_000 }, (_, n) => `${n},${n}`).join();
    const full = readWorkerCall(`${BASE}/ping/p?job_id=${many}`, 'ping');
    expect(readNamedJobs(full)).toEqual(Array.from({ length: 500 }, (_, n) => `${n}`));
    expect(readPingMs(call)).toBe(2_000);
    expect(readPingMs(readWorkerCall(`${BASE}/ping/p?every=-1`, 'ping'))).toBe(10_000);
  });

  it('is accepted with invalid escapes', () => {
    expect(readWorkerCall(`${BASE}/ping/p%zz`, 'ping').workerId).toBe('p-zz');
  });
});

describe('the ID of an attempt', () => {
  it('is the job ID and the number of the attempt', () => {
    expect(readAttemptName('sync-0192-a-a12')).toEqual({ jobId: 'sync-0192-a', attempt: 12 });
  });

  it('is the job ID alone for the first one', () => {
    expect(formatAttemptId({ jobId: 'sync-0192', attempt: 1 })).toBe('sync-0192');
    expect(readAttemptName('sync-0192')).toEqual({ jobId: 'sync-0192', attempt: 1 });
    expect(formatAttemptId({ jobId: 'sync-0192', attempt: 2 })).toBe('sync-0192-a2');
  });

  it.each(['', 'x'.repeat(129), `${'x'.repeat(129)}-a2`])('cannot be "%s"', (name) => {
    expect(readAttemptName(name)).toBeUndefined();
  });
});
