// Times, settings and input of a job, which its record leaves out.
import { expect, it } from 'vitest';
import { jobDetails } from '../../../src/wire/answer-schemas.ts';
import {
  ENDPOINT,
  type Platform,
  readJson,
  startPlatform,
  takeJob,
} from '../../support/api/platform.ts';

async function read({ call }: Platform, id: unknown) {
  const response = await call(`/v2/${ENDPOINT}/jobs/${id}`);
  expect(response.status).toBe(200);
  return response.text();
}

it('are those of the submission while the job waits', async () => {
  const platform = await startPlatform();
  const body =
    '{"input":{"b":1.0,  "a":"\\u0041"},"policy":{"delay":60000,"priority":2,"group":"g"}}';
  const { id } = await readJson(await platform.post(`/v2/${ENDPOINT}/run`, body));
  const text = await read(platform, id);
  expect(text).toContain('"input":{"b":1.0,  "a":"\\u0041"}');
  const details = jobDetails.parse(JSON.parse(text));
  const { submittedAt } = details;
  expect(details).toMatchObject({
    ...{ id, status: 'IN_QUEUE', attempt: 0, queuedAt: submittedAt, priority: 2, group: 'g' },
    ...{ availableAt: submittedAt + 60_000, startedAt: null, endedAt: null, maxAttempts: 3 },
    ...{ executionTimeout: 600_000, input: { b: 1, a: 'A' } },
  });
  expect(details.expiresAt).toBeGreaterThan(submittedAt);
});

it('include the start and the end of the last attempt', async () => {
  const platform = await startPlatform();
  const { id } = await readJson(await platform.post(`/v2/${ENDPOINT}/run`, { input: {} }));
  const running = await takeJob(platform);
  const started = jobDetails.parse(JSON.parse(await read(platform, id)));
  expect(started).toMatchObject({ status: 'IN_PROGRESS', endedAt: null });
  expect(started.startedAt).toBeGreaterThanOrEqual(started.submittedAt);
  await running.fail('never');
  const ended = jobDetails.parse(JSON.parse(await read(platform, id)));
  expect(ended).toMatchObject({ status: 'FAILED', startedAt: started.startedAt });
  expect(ended.endedAt).toBeGreaterThanOrEqual(ended.startedAt ?? 0);
});

it('number the attempts after a retry by a client from 1', async () => {
  const platform = await startPlatform();
  const { id } = await readJson(await platform.post(`/v2/${ENDPOINT}/run`, { input: {} }));
  await (await takeJob(platform)).fail('never');
  await platform.post(`/v2/${ENDPOINT}/retry/${id}`, undefined);
  await takeJob(platform);
  const details = jobDetails.parse(JSON.parse(await read(platform, id)));
  expect(details).toMatchObject({ attempt: 2, run: 2, runAttempt: 1 });
  const list = await readJson(await platform.call(`/v2/${ENDPOINT}/jobs?previews=true`));
  expect(list).toMatchObject({ jobs: [{ attempt: 2, run: 2, runAttempt: 1 }] });
  expect(details.timeline).toMatchObject([
    { event: 'submitted' },
    { event: 'started', attempt: 1 },
    { event: 'failed', attempt: 1, code: 'handler_error' },
    { event: 'retried', run: 2 },
    { event: 'started', attempt: 2, run: 2, runAttempt: 1 },
  ]);
});

it('have an input of many parts as it was submitted', async () => {
  const platform = await startPlatform();
  const input = { text: 'x'.repeat(3_000_000), end: 1 };
  const { id } = await readJson(await platform.post(`/v2/${ENDPOINT}/run`, { input }));
  expect(JSON.parse(await read(platform, id)).input).toEqual(input);
});

it('are not found without the job', async () => {
  const { call } = await startPlatform();
  const response = await call(`/v2/${ENDPOINT}/jobs/01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76`);
  expect(response.status).toBe(404);
});
