// What the record of a job leaves out, and the lists of failed jobs.
import { describe, expect, it } from 'vitest';
import { failedCommands } from '../../../src/cli/jobs/failed.ts';
import type { AttemptError } from '../../../src/wire/job/attempt.ts';
import { jobDetails, jobList } from '../../../src/wire/job/job-records.ts';
import type { FailedJobList } from '../../../src/wire/resources/activity.ts';
import {
  ENDPOINT,
  type Platform,
  readJson,
  startPlatform,
  takeJob,
} from '../../support/api/platform.ts';
import { printVerb } from '../../support/runs/verb-run.ts';

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

it('number the attempts from 1 after a retry by a client', async () => {
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

async function fail(
  platform: Platform,
  input: object,
  error: Partial<AttemptError> = {},
  endpoint = ENDPOINT,
): Promise<string> {
  await platform.post(`/v2/${endpoint}/run`, { input });
  const taken = await takeJob({ link: platform.queue.link(endpoint) });
  await taken.fail('never', { message: 'no such model', ...error });
  return taken.id;
}

async function list({ call }: Platform, query = '', authorization?: string) {
  const init = authorization ? { headers: { authorization } } : {};
  const response = await call(`/v1/failed-jobs${query}`, init);
  expect(response.status).toBe(200);
  // The platform's own answer.
  return (await response.json()) as FailedJobList;
}

const ids = ({ jobs }: FailedJobList) => jobs.map(({ id }) => id);

async function startTwo(): Promise<Platform> {
  const platform = await startPlatform();
  await platform.endpoints.ensureEndpoint('other');
  return platform;
}

describe('failed jobs', () => {
  it('are those of all endpoints, newest first, with error and start of the input', async () => {
    const platform = await startTwo();
    const first = await fail(platform, { n: 1 });
    const second = await fail(platform, { n: 2 }, {}, 'other');
    const third = await fail(platform, { text: 'x'.repeat(400) }, { code: 'input_invalid' });
    await platform.post(`/v2/${ENDPOINT}/run`, { input: {} });
    const found = await list(platform);
    expect(ids(found)).toEqual([third, second, first]);
    expect(found.jobs[1]).toMatchObject({
      ...{ status: 'FAILED', endpoint: { id: 'other', name: 'other' } },
      error: { code: 'handler_error', message: 'no such model' },
      ...{ inputPreview: '{"n":2}', inputBytes: 7 },
    });
    expect(found.jobs[0]?.inputPreview).toBe(`{"text":"${'x'.repeat(291)}…`);
    expect(found.unreachable).toEqual([]);
    expect(ids(await list(platform, '?endpoint=other'))).toEqual([second]);
    expect(ids(await list(platform, '?errorCode=input_invalid'))).toEqual([third]);
  });

  it('come in pages, with each job once', async () => {
    const platform = await startTwo();
    const all: string[] = [];
    for (let n = 0; n < 7; n += 1) {
      all.unshift(await fail(platform, { n }, {}, n % 3 === 0 ? 'other' : ENDPOINT));
    }
    const seen: string[][] = [];
    for (let cursor: string | undefined = ''; cursor !== undefined; ) {
      const found: FailedJobList = await list(platform, `?limit=3${cursor && `&cursor=${cursor}`}`);
      seen.push(ids(found));
      cursor = found.cursor;
    }
    expect(seen).toEqual([all.slice(0, 3), all.slice(3, 6), all.slice(6)]);
  });

  it('are only those whose jobs the key may read', async () => {
    const platform = await startTwo();
    const mine = await fail(platform, {}, {}, 'other');
    await fail(platform, {});
    const issue = async (scopes: string[], userId = 'owner') =>
      (await platform.keys.issue({ name: 'k', scopes, userId })).key;
    expect(ids(await list(platform, '', await issue(['jobs:read:other'])))).toEqual([mine]);
    expect(ids(await list(platform, '', await issue(['jobs:write'])))).toEqual([]);
    expect(ids(await list(platform, '', await issue(['admin'], 'stranger')))).toEqual([]);
    const refuse = async (key: string) =>
      (
        await platform.call(`/v1/failed-jobs?endpoint=${ENDPOINT}`, {
          headers: { authorization: key },
        })
      ).status;
    expect(await refuse(await issue(['jobs:read:other']))).toBe(403);
    expect(await refuse(await issue(['admin'], 'stranger'))).toBe(404);
  });

  it('show the message of an error whose stack is long, without the stack', async () => {
    const platform = await startPlatform();
    const message = `a "quoted"\n${'m'.repeat(600)}`;
    await fail(platform, { text: 'y'.repeat(20_000) }, { message, stack: 's'.repeat(9_000) });
    const [job] = (await list(platform)).jobs;
    expect(job?.error).toEqual({ code: 'handler_error', message: `${message.slice(0, 500)}…` });
    expect(job).toMatchObject({ inputBytes: 20_011 });
    expect(job).not.toHaveProperty('inputPreview');
  });

  it.each([
    ['limit=101', 'limit'],
    ['errorCode=x', 'errorCode'],
    ['status=FAILED', 'status'],
  ])('are refused with %s, which the error names', async (query, name) => {
    const { call } = await startPlatform();
    const response = await call(`/v1/failed-jobs?${query}`);
    expect(response.status).toBe(422);
    expect(await response.text()).toContain(name);
  });
});

it('adds previews to the list of one endpoint if the caller wants them', async () => {
  const platform = await startPlatform();
  await fail(platform, { n: 1 });
  const read = async (query: string) =>
    jobList.parse(await (await platform.call(`/v2/${ENDPOINT}/jobs${query}`)).json()).jobs[0];
  expect(await read('?previews=true')).toMatchObject({
    ...{ inputPreview: '{"n":1}', error: { code: 'handler_error' } },
  });
  expect(await read('')).not.toHaveProperty('error');
});

it('prints them as a table with `millrace failed list`', async () => {
  const platform = await startTwo();
  await fail(platform, { n: 1 });
  const access = ['--url', platform.url, '--key', platform.admin];
  const shown = await printVerb(failedCommands, ['list', ...access]);
  expect(shown).toMatch(/ID +ENDPOINT +ENDED +ERROR +MESSAGE +INPUT\n/);
  expect(shown).toMatch(/ demo .* handler_error +no such model +\{"n":1\}\n/);
  expect(await printVerb(failedCommands, ['list', '--endpoint', 'other', ...access])).toBe(
    'no failed jobs\n',
  );
});

it('submits failed jobs again, exports and deletes them with `millrace failed`', async () => {
  const platform = await startTwo();
  const id = await fail(platform, { n: 1 });
  const access = ['--url', platform.url, '--key', platform.admin];
  const run = (...words: string[]) => printVerb(failedCommands, [...words, ...access]);
  const exported = JSON.parse(await run('export', '--text', 'no such'));
  expect(exported).toMatchObject({
    id,
    input: { n: 1 },
    error: { code: 'handler_error' },
    log: '',
  });
  const first = JSON.parse(await run('resubmit', '--all', '--json'));
  expect(first.jobs).toMatchObject([{ retryOf: id, isNew: true }]);
  expect(await run('resubmit', '--all')).toBe('no failed jobs to submit again\n');
  const again = await run('resubmit', '--endpoint', exported.endpointId, '--id', id);
  expect(again).toBe(`${id}  had been submitted as ${first.jobs[0].id}\n`);
  expect(await run('list')).toContain(first.jobs[0].id);
  expect(await run('delete', '--until', '2000-01-01T00:00:00Z')).toBe('0 deleted\n');
  expect(await run('delete', '--tag', 'a')).toBe('0 deleted\n');
  expect(await run('delete', '--all')).toBe('1 deleted\n');
  expect(await run('list')).toBe('no failed jobs\n');
});
