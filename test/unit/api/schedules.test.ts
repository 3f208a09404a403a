// Schedules over HTTP: the verbs, the next ticks, names, and what is refused.
import { beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { type ScheduleRecord, scheduleRecord } from '../../../src/wire/resources/schedule.ts';
import { ENDPOINT, type Platform, readJson, startPlatform } from '../../support/api/platform.ts';

const PATH = '/v1/schedules';
const NIGHTLY = {
  ...{ name: 'nightly', endpointId: ENDPOINT, cron: '30 2 * * *', timeZone: 'Europe/Berlin' },
  input: { report: 'daily' },
};

const clock = new ManualClock(Date.UTC(2026, 0, 15, 12));
let platform: Platform;

beforeEach(async () => {
  platform = await startPlatform({ clock });
});

async function create(body: object = NIGHTLY): Promise<ScheduleRecord> {
  const answer = await platform.post(PATH, body);
  expect(answer.status).toBe(201);
  return scheduleRecord.parse(await answer.json());
}

const patch = (id: string, body: object) =>
  platform.post(`${PATH}/${id}`, body, { method: 'PATCH' });

describe('a schedule', () => {
  it('is created, shown with its next ticks, changed and deleted, also by its name', async () => {
    const created = await create();
    expect(created).toMatchObject({
      ...NIGHTLY,
      endpointName: ENDPOINT,
      status: 'active',
      overlap: 'allow',
    });
    expect(created.nextTicks.slice(0, 2)).toEqual([
      '2026-01-16T01:30:00.000Z',
      '2026-01-17T01:30:00.000Z',
    ]);
    expect(created.nextTicks.length).toBe(5);
    expect(await readJson(await platform.call(`${PATH}/nightly`))).toEqual(created);
    expect(await readJson(await platform.call(PATH))).toEqual({ schedules: [created] });
    const paused = await readJson(await patch('nightly', { paused: true }));
    expect(paused).toMatchObject({ status: 'paused', nextTicks: [] });
    expect(await readJson(await patch(created.id, { paused: false }))).toEqual(created);
    expect((await platform.call(`${PATH}/nightly`, { method: 'DELETE' })).status).toBe(204);
    expect((await platform.call(`${PATH}/${created.id}`)).status).toBe(404);
  });

  it('makes a job on a tick and on a trigger, each found from the other', async () => {
    const { id } = await create();
    const triggered = await readJson(await platform.post(`${PATH}/${id}/trigger`, undefined));
    await clock.advance(14 * 3_600_000);
    const { jobs, lastTicks } = scheduleRecord.parse(
      await readJson(await platform.call(`${PATH}/${id}`)),
    );
    const tickAt = Date.UTC(2026, 0, 16, 1, 30);
    expect(jobs).toBe(1);
    expect(lastTicks).toMatchObject([
      { at: new Date(tickAt).toISOString() },
      { jobId: triggered['jobId'], triggered: true },
    ]);
    const job = await readJson(await platform.call(`/v2/${ENDPOINT}/jobs/${lastTicks[0]?.jobId}`));
    expect(job).toMatchObject({ schedule: { id, tickAt }, input: NIGHTLY.input });
  });

  it('is previewed without being created', async () => {
    const answer = await platform.post(`${PATH}/preview`, { every: 60_000, phase: 1_000 });
    const { nextTicks } = await readJson(answer);
    expect(nextTicks).toHaveLength(5);
    expect(await readJson(await platform.call(PATH))).toEqual({ schedules: [] });
  });
});

it.each([
  [{ cron: undefined }, 'cron: exactly one of cron, every and at must be set'],
  [{ every: 60_000 }, 'cron: exactly one of cron, every and at must be set'],
  [{ cron: '0 0 31 2 *' }, 'cron: no tick comes from now on'],
  [{ cron: '* '.repeat(200) }, 'cron: Too big: expected string to have <=200 characters'],
  [
    { timeZone: 'Mars/Olympus' },
    'timeZone: must be an IANA time zone, such as Europe/Berlin or UTC',
  ],
  [{ cron: undefined, every: 999 }, 'every: Too small: expected number to be >=1000'],
  [{ endpointId: 'none' }, 'endpointId: endpoint "none" not found'],
  [{ input: { text: 'x'.repeat(32_768) } }, 'input: must have at most 32768 bytes as JSON'],
  [{ input: [] }, 'input: must be an object'],
  [{ policy: { priority: 10 } }, 'policy.priority: Too big: expected number to be <=9'],
  [
    { webhook: 'ftp://example.com' },
    'webhook: must be an http or https URL without a user name or password',
  ],
  [{ catchUpMax: 1_001 }, 'catchUpMax: Too big: expected number to be <=1000'],
  [{ jitter: 3_600_001 }, 'jitter: Too big: expected number to be <=3600000'],
])('refuses %j', async (changed, fault) => {
  const answer = await platform.post(PATH, { ...NIGHTLY, ...changed });
  expect(answer.status).toBe(422);
  expect(await readJson(answer)).toMatchObject({ errors: [fault] });
  expect(await readJson(await platform.call(PATH))).toEqual({ schedules: [] });
});

it('refuses the schedules of others, and keys without the rights', async () => {
  const { id } = await create();
  const { key } = await platform.keys.issue({ name: 'k', userId: 'ann', scopes: ['admin'] });
  const { key: reading } = await platform.keys.issue({ name: 'r', scopes: ['jobs:read'] });
  const as = (authorization: string) => ({ headers: { authorization } });
  expect((await platform.call(`${PATH}/${id}`, as(key))).status).toBe(404);
  expect((await platform.post(`${PATH}/${id}/trigger`, undefined, as(key))).status).toBe(404);
  expect((await platform.call(`${PATH}/${id}`, as(reading))).status).toBe(200);
  expect((await platform.post(`${PATH}/${id}/trigger`, undefined, as(reading))).status).toBe(403);
});

it('asks for the ID if several schedules have the name', async () => {
  await create();
  await create();
  const answer = await platform.call(`${PATH}/nightly`);
  expect(answer.status).toBe(409);
});

it('lists by the page, the newest first', async () => {
  const ids = [];
  for (let n = 0; n < 5; n++) ids.unshift((await create()).id);
  const first = await readJson(await platform.call(`${PATH}?limit=3`));
  const second = await readJson(await platform.call(`${PATH}?limit=3&cursor=${first['cursor']}`));
  const listed = [first, second].flatMap((page) => Object(page['schedules']));
  expect(listed.map((each) => Object(each).id)).toEqual(ids);
  expect(second['cursor']).toBeUndefined();
});
