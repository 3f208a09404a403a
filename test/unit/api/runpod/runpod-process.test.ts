// Which process of a RunPod worker asks for a job: the one that asked before, or the one after it.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  type Platform,
  readJson,
  startPlatform,
  submitJob,
} from '../../../support/api/platform.ts';
import { poll, readRecord, send, take } from '../../../support/api/python-calls.ts';

const IDLE = 'job-take/pod-1?&job_in_progress=0';
const failures = async (platform: Platform, id: string) => {
  const { error } = await readRecord(platform, id);
  return error;
};

/** Runs a job whose result asks for a fresh process. @returns the name of the job */
async function runLast(platform: Platform): Promise<string> {
  await submitJob(platform);
  const name = String((await take(platform))['id']);
  const done = '{"output": 1, "stopPod": true}';
  await send(platform, `job-done/pod-1/${name}?&isStream=false`, done);
  return name;
}

describe('a worker that has asked for a new process', () => {
  it.each([
    ['job-take', 'job-take/pod-1?&job_in_progress=0'],
    ['job-take-batch', 'job-take-batch/pod-1?&batch_size=2&job_in_progress=0'],
  ])('gets jobs with the first %s of the new one, however soon', async (_verb, path) => {
    // Its time stands still: no silence is long enough.
    const platform = await startPlatform({ clock: new ManualClock() });
    await runLast(platform);
    const id = await submitJob(platform);

    const answer = await poll(platform, path);

    expect(answer.status).toBe(200);
    expect([await answer.json()].flat()).toMatchObject([{ id: expect.stringContaining(id) }]);
  });

  it('is distinguished from the new one by the ID of its last posted job', async () => {
    const platform = await startPlatform();
    const name = await runLast(platform);
    const id = await submitJob(platform);

    expect((await poll(platform, IDLE, name)).status).toBe(204);

    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_QUEUE', attempt: 0 });
  });

  it.each([
    ['of nginx', '5f0c1c9a3a8e4bd1b6f0a7a5b7d0b2f1'],
    ['of Envoy', '0d9a3c5e-6f3b-4c58-9c3f-2f1d8b7c6a5e'],
  ])('is not confused with the new one by a request ID %s', async (_name, requestId) => {
    const platform = await startPlatform({ clock: new ManualClock() });
    await runLast(platform);
    const id = await submitJob(platform);

    const job = await readJson(await poll(platform, IDLE, requestId));

    expect(job).toMatchObject({ id: expect.stringContaining(id) });
  });
});

describe('a job whose worker takes again at once', () => {
  it('has failed if a new process asks, because the job ended the previous one', async () => {
    const platform = await startPlatform({ clock: new ManualClock() });
    await platform.endpoints.ensureEndpoint('demo', { maxAttempts: 2 });
    const id = await submitJob(platform);

    // The first loss is tried again without a wait.
    const names = [await take(platform), await take(platform)].map(({ id: name }) => name);
    const third = poll(platform, IDLE);

    await expect
      .poll(() => failures(platform, id))
      .toMatchObject({ code: 'worker_crashed', attempts: [{ attempt: 1 }, { attempt: 2 }] });
    expect(new Set(names).size).toBe(2);
    await platform.close();
    await third;
  });

  it('is requeued uncounted if the same process asks, because it has never received the job', async () => {
    const platform = await startPlatform({ clock: new ManualClock() });
    await platform.endpoints.ensureEndpoint('demo', { maxAttempts: 1 });
    await submitJob(platform);
    const name = String((await take(platform))['id']);
    await send(platform, `job-done/pod-1/${name}?&isStream=false`, '{"output": 1}');
    const id = await submitJob(platform);

    const given = await readJson(await poll(platform, IDLE, name));
    const again = await readJson(await poll(platform, IDLE, name));

    expect(given['id']).not.toBe(again['id']);
    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS', attempt: 2 });
  });
});
