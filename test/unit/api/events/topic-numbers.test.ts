// Topics with a change number are read only after a change, and after each.
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { Overviews } from '../../../../src/api/overviews.ts';
import { ChangeNumbers } from '../../../../src/base/change-numbers.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { Decisions } from '../../../../src/control/scaling/decisions.ts';
import type { Store } from '../../../../src/store/store.ts';
import type { EndpointActivity } from '../../../../src/wire/resources/activity.ts';
import { readEvents } from '../../../support/api/event-reader.ts';
import { ENDPOINT, readJson, startPlatform } from '../../../support/api/platform.ts';
import { CPU, PodWorld } from '../../../support/containers/pod-world.ts';
import { packProject } from '../../../support/version-project.ts';

const MINUTE_MS = 60_000;
const created = z.object({ id: z.string() });
const json = { 'content-type': 'application/json' };
let archive: Buffer;

beforeAll(async () => {
  archive = (await packProject({ 'handler.ts': 'export default () => 1;' })).bytes;
});

async function openStream(names: (id: string) => readonly string[]) {
  const stores: Store[] = [];
  const clock = new ManualClock();
  const platform = await startPlatform({
    ...{ clock, engine: 'process' },
    wrapStore(store) {
      stores.push(store);
      return store;
    },
  });
  const [store] = stores;
  if (!store) throw new Error('no store');
  const make = async (path: string, body: object) =>
    created.parse(await readJson(await platform.post(path, body))).id;
  const templateId = await make('/v1/templates', { name: 't', image: 'i' });
  const id = await make('/v1/endpoints', { name: 'e', templateId, source: 'VERSION' });
  const topics = names(id);
  const url = `${platform.url}/v1/events?topics=${topics.join(',')}`;
  const { next } = await readEvents(url, { authorization: platform.admin });
  const first = new Set<string | undefined>();
  while (first.size < topics.length) first.add((await next())?.topic);
  const countReads = async () => {
    const metrics = await (await platform.call('/metrics')).text();
    return Number(/^millrace_event_reads_total (\d+)$/m.exec(metrics)?.[1]);
  };
  return { ...platform, clock, store, id, next, countReads };
}

const NUMBERED = (id: string) => [
  ...['overview', 'endpoints', `endpoint:${id}`, `activity:${id}`],
  ...[`versions:${id}`, `decisions:${id}`],
];

describe('an event stream', () => {
  it('reads nothing while nothing changes', async () => {
    const { clock, countReads } = await openStream(NUMBERED);
    // The first observation of activity may count as a change.
    await clock.advance(MINUTE_MS);
    const before = await countReads();
    expect(before).toBeGreaterThanOrEqual(6);
    await clock.advance(5 * MINUTE_MS);
    expect(await countReads()).toBe(before);
  });

  it('sends changes of each topic that has a number', async () => {
    const { call, clock, id, next, post } = await openStream(NUMBERED);
    const until = async (topic: string, text: string) => {
      for (;;) {
        await clock.advance(2_000);
        const event = await next();
        if (!event) throw new Error('the stream has ended');
        if (event.topic === topic && JSON.stringify(event.data).includes(text)) return;
      }
    };
    const upload = await call(`/v1/endpoints/${id}/versions?entry=handler.ts`, {
      ...{ method: 'POST', body: new Uint8Array(archive) },
      headers: { 'content-type': 'application/gzip' },
    });
    expect(upload.status).toBe(201);
    await until(`versions:${id}`, '"version":1');
    await call(`/v1/endpoints/${id}/versions/1`, { method: 'DELETE' });
    await until(`versions:${id}`, '"versions":[]');
    for (const [name, topic] of [
      ['first', 'endpoints'],
      ['second', `endpoint:${id}`],
      ['third', 'overview'],
      ['fourth', `activity:${id}`],
    ] as const) {
      await call(`/v1/endpoints/${id}`, {
        ...{ method: 'PATCH', headers: json, body: JSON.stringify({ name }) },
      });
      await until(topic, `"name":"${name}"`);
    }
    await post(`/v2/${ENDPOINT}/run`, { input: {} });
    await until('overview', '"waiting":1');
    await call(`/v1/endpoints/${id}`, { method: 'DELETE' });
    await until('endpoints', '"endpoints":[{"id":"demo"');
  });
});

it('numbers the decisions of each endpoint', async () => {
  const { store, id } = await openStream(() => ['overview']);
  const decisions = await Decisions.open(store);
  const { changes } = decisions;
  const [own, other] = [changes.of(id), changes.of(ENDPOINT)];
  await decisions.add(
    { endpointId: id, userId: 'owner' },
    {
      ...{ at: '2026-01-01T00:00:00.000Z', want: 0, start: 0, drain: [], started: [] },
      ...{ cause: 'enough', reason: 'so' },
      input: {
        ...{ now: 0, type: 'QUEUE', workersMin: 0, workersMax: 1, idleTimeoutMs: 5_000 },
        scaler: { type: 'QUEUE_DELAY', seconds: 4 },
        load: { waiting: 0, running: 0, oldestQueuedAt: null, peak: 0 },
        ...{ workers: [], lastStartAt: null, lastWant: null, places: null },
        crashes: { streak: 0, notBefore: 0, reason: null },
      },
    },
  );
  expect(changes.of(id)).not.toBe(own);
  expect(changes.of(ENDPOINT)).toBe(other);
});

it('numbers the pods of each user, but not while one runs', async () => {
  const world = await PodWorld.open();
  onTestFinished(() => world.close());
  const { pods } = world;
  const creation = { name: 'a', image: 'busy', cpu: CPU };
  const numbers = [pods.numberOf('ada')];
  const { id } = await world.create(creation, 'ada');
  await world.settle();
  expect(pods.numberOf('ada')).toBe(undefined);
  expect(pods.numberOf('ada', id)).toBe(undefined);
  expect(pods.numberOf('ben')).toBe(numbers[0]);
  await pods.act('ada', id, 'stop');
  await world.settle();
  numbers.push(pods.numberOf('ada'));
  await pods.update('ada', id, { name: 'b' });
  numbers.push(pods.numberOf('ada'));
  await pods.act('ada', id, 'terminate');
  await world.settle();
  numbers.push(pods.numberOf('ada'));
  world.clock.startFrom(world.clock.now() + 48 * 60 * MINUTE_MS);
  await pods.live.forgetGone();
  numbers.push(pods.numberOf('ada'));
  pods.live.clear();
  expect(numbers).not.toContain(undefined);
  expect(new Set(numbers).size).toBe(5);
});

it('numbers an overview by what it shows, not by the time of the read', async () => {
  const clock = new ManualClock();
  const { endpoints } = await startPlatform();
  await endpoints.ensureEndpoint('other');
  let waiting = 0;
  const overviews = new Overviews({
    ...{ clock, endpoints },
    async read(ids) {
      const activity: EndpointActivity = {
        ...{ waiting, running: 0, oldestWaitMs: null, waitReason: null },
        ...{ jobsPerSecond: 0, failedLastHour: 0, failureRate: null },
        workers: { starting: 0, idle: 0, running: 0, draining: 0, parked: 0 },
      };
      return Object.fromEntries(ids.map((id) => [id, { ...activity }]));
    },
    readFailed: () => Promise.reject(new Error('not read')),
  });
  const holder = (...scopes: string[]) => ({
    ...{ keyId: 'k', userId: 'owner', name: 'k', podId: null, expiresAt: null },
    scopes: new Set(scopes),
  });
  const read = async () => {
    await clock.advance(1_000);
    return overviews.number(holder('jobs:read'));
  };
  const first = await read();
  expect(await read()).toBe(first);
  expect(await overviews.number(holder(`jobs:read:${ENDPOINT}`))).not.toBe(first);
  waiting = 1;
  const second = await read();
  expect(second).not.toBe(first);
  await endpoints.ensureEndpoint('other', {});
  const third = await read();
  expect(third).not.toBe(second);
  await endpoints.remove('owner', 'other');
  expect(await read()).not.toBe(third);
  expect(await overviews.numberOf('other')).toBe(undefined);
});

it('keeps a bounded number of keys, and takes all for changed when it drops them', () => {
  const changes = new ChangeNumbers();
  const untouched = changes.of('untouched');
  changes.note('first');
  const first = changes.of('first');
  for (let n = 0; n < 10_000; n++) changes.note(`key ${n}`);
  expect(changes.of('first')).not.toBe(first);
  expect(changes.of('untouched')).not.toBe(untouched);
});
