// GET /v1/failed-jobs, previews in the list of one endpoint, and `millrace jobs failed`.
import { describe, expect, it } from 'vitest';
import { jobsCommands } from '../../../src/cli/jobs/jobs.ts';
import { jobList } from '../../../src/wire/answer-schemas.ts';
import type { AttemptError } from '../../../src/wire/job/job.ts';
import type { FailedJobList } from '../../../src/wire/resources/activity.ts';
import { ENDPOINT, type Platform, startPlatform, takeJob } from '../../support/api/platform.ts';
import { printVerb } from '../../support/runs/verb-run.ts';

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

it('the list of one endpoint has previews if the caller wants them', async () => {
  const platform = await startPlatform();
  await fail(platform, { n: 1 });
  const read = async (query: string) =>
    jobList.parse(await (await platform.call(`/v2/${ENDPOINT}/jobs${query}`)).json()).jobs[0];
  expect(await read('?previews=true')).toMatchObject({
    ...{ inputPreview: '{"n":1}', error: { code: 'handler_error' } },
  });
  expect(await read('')).not.toHaveProperty('error');
});

it('`millrace jobs failed` prints them as a table', async () => {
  const platform = await startTwo();
  await fail(platform, { n: 1 });
  const access = ['--url', platform.url, '--key', platform.admin];
  const shown = await printVerb(jobsCommands, ['failed', ...access]);
  expect(shown).toMatch(/ID +ENDPOINT +ENDED +ERROR +MESSAGE +INPUT\n/);
  expect(shown).toMatch(/ demo .* handler_error +no such model +\{"n":1\}\n/);
  expect(await printVerb(jobsCommands, ['failed', '--endpoint', 'other', ...access])).toBe(
    'no failed jobs\n',
  );
});
