import { gzipSync } from 'node:zlib';
import { beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { DEFAULT_QUOTAS, type Quotas } from '../../../src/control/limits/quotas.ts';
import { MAX_CHECKS } from '../../../src/control/versions/versions.ts';
import { type Platform, readJson, startPlatform } from '../../support/api/platform.ts';
import { type ProjectTexts, packProject } from '../../support/version-project.ts';

const PROJECT: ProjectTexts = { 'src/handler.ts': 'export default () => 1;', 'data.txt': 'x' };
const ENTRY = 'entry=src%2Fhandler.ts';
let archive: Buffer;
let sha256: string;

beforeAll(async () => {
  const packed = await packProject(PROJECT);
  archive = packed.bytes;
  sha256 = packed.sha256;
});

/** Uploads whose checks end when the test says so. */
async function startChecks() {
  const checks: { mark: number; fail: (error: Error) => void }[] = [];
  const { keys, call, post } = await startPlatform({
    engine: 'process',
    inspect: ([mark = 0]) => {
      const check = Promise.withResolvers<never>();
      checks.push({ mark, fail: check.reject });
      return check.promise;
    },
  });
  const marks = () => checks.map(({ mark }) => mark);
  const end = (mark: number) =>
    checks.findLast((check) => check.mark === mark)?.fail(new Error('seen'));
  const prepare = async (mark: number) => {
    const { key } = await keys.issue({ name: 'k', scopes: ['admin'], userId: `user-${mark}` });
    const headers = { authorization: key };
    const templateId = await readId(
      await post('/v1/templates', { name: 't', image: 'i' }, { headers }),
    );
    const creation = { name: 'e', templateId, source: 'VERSION' };
    const id = await readId(await post('/v1/endpoints', creation, { headers }));
    return async () => {
      const { status } = await call(`/v1/endpoints/${id}/versions?${ENTRY}`, {
        ...{ method: 'POST', body: new Uint8Array([mark]) },
        headers: { ...headers, 'content-type': 'application/gzip' },
      });
      return status;
    };
  };
  return {
    end,
    endAll: () => checks.map(({ fail }) => fail(new Error('seen'))),
    marks,
    post,
    prepare,
  };
}

it('uploads of one user are checked one after the other', async () => {
  const { end, marks, post, prepare } = await startChecks();
  const upload = await prepare(7);
  const statuses = [upload(), upload()];
  await expect.poll(marks).toEqual([7]);
  expect((await post('/v1/templates', {})).status).toBe(422);
  expect(marks()).toEqual([7]);
  end(7);
  await expect.poll(marks).toEqual([7, 7]);
  end(7);
  expect(await Promise.all(statuses)).toEqual([500, 500]);
});

it('uploads of one user are refused while four others of the user wait', async () => {
  const { end, endAll, marks, prepare } = await startChecks();
  const upload = await prepare(7);
  const isEnded: boolean[] = [];
  const statuses = Array.from({ length: 5 }, (_, n) =>
    upload().finally(() => {
      isEnded[n] = true;
    }),
  );
  expect(await Promise.race(statuses)).toBe(503);
  expect(Object.values(isEnded)).toEqual([true]);
  const other = (await prepare(8))();
  await expect.poll(marks).toEqual([7, 8]);
  for (let ended = 1; ended < 5; ended++) {
    end(7);
    await expect.poll(() => Object.values(isEnded).length).toBe(ended + 1);
  }
  endAll();
  expect((await Promise.all(statuses)).toSorted()).toEqual([500, 500, 500, 500, 503]);
  expect(await other).toBe(500);
});

it('uploads of several users are checked at the same time, but only a few', async () => {
  const { end, endAll, marks, post, prepare } = await startChecks();
  const users = await Promise.all(Array.from({ length: MAX_CHECKS + 1 }, (_, n) => prepare(n)));
  const statuses: Promise<number>[] = [];
  const first = Array.from({ length: MAX_CHECKS }, (_, n) => n);
  for (const [mark, upload] of users.entries()) {
    statuses.push(upload());
    if (mark < MAX_CHECKS) await expect.poll(marks).toEqual(first.slice(0, mark + 1));
  }
  // Sent behind the last upload, and refused at once.
  expect((await post('/v1/templates', {})).status).toBe(422);
  expect(marks()).toEqual(first);
  end(1);
  expect(await statuses[1]).toBe(500);
  await expect.poll(marks).toEqual([...first, MAX_CHECKS]);
  endAll();
  expect(await Promise.all(statuses)).toEqual(users.map(() => 500));
});

interface Opened extends Platform {
  path: string;
  id: string;
  send: (query?: string, body?: Uint8Array, headers?: Record<string, string>) => Promise<Response>;
}

async function open(quotas: Partial<Quotas> = {}): Promise<Opened> {
  const platform = await startPlatform({
    ...{ engine: 'process', quotas: { ...DEFAULT_QUOTAS, ...quotas } },
  });
  const templateId = await readId(await platform.post('/v1/templates', { name: 't', image: 'i' }));
  const creation = { name: 'e', templateId, source: 'VERSION' };
  const id = await readId(await platform.post('/v1/endpoints', creation));
  const path = `/v1/endpoints/${id}/versions`;
  const send: Opened['send'] = (query = ENTRY, body = archive, headers = {}) =>
    platform.call(`${path}?${query}`, {
      ...{ method: 'POST', body: new Uint8Array(body) },
      headers: { 'content-type': 'application/gzip', ...headers },
    });
  return { ...platform, id, path, send };
}

/** The members that tests read. */
const created = z.object({ id: z.string() });
const page = z.object({ versions: z.array(z.object({ version: z.int() })) });

async function readId(response: Response): Promise<string> {
  return created.parse(await readJson(response)).id;
}

const refused = async (answer: Promise<Response>) => {
  const response = await answer;
  const { code, detail } = await readJson(response);
  return { status: response.status, code, detail };
};

describe('an upload', () => {
  it('is a version with the next number, and its archive is returned byte for byte', async () => {
    const { call, id, path, send } = await open();
    const answer = await send(`${ENTRY}&sha256=${sha256}&message=first`);
    expect(answer.status).toBe(201);
    expect(answer.headers.get('location')).toBe(`${path}/1`);
    const version = await readJson(answer);
    expect(version).toMatchObject({
      ...{ endpointId: id, version: 1, entry: 'src/handler.ts', message: 'first', sha256 },
      ...{ bytes: archive.length, unpackedBytes: 24, files: 2 },
      createdBy: expect.stringMatching(/^key_/),
    });
    expect(await readJson(await call(`${path}/1`))).toEqual(version);
    const sent = await call(`${path}/1/archive`);
    expect(sent.headers.get('content-type')).toBe('application/gzip');
    expect(Buffer.compare(Buffer.from(await sent.arrayBuffer()), archive)).toBe(0);
    await send();
    expect(await readJson(await call(`${path}?limit=1`))).toMatchObject({
      versions: [{ version: 2, message: null }],
    });
    expect(await readJson(await call(`/v1/endpoints/${id}`))).toMatchObject({ version: null });
  });

  const FAULTS: [string, string, () => Uint8Array, number, RegExp][] = [
    ['without an entry', '', () => archive, 422, /entry/],
    ['with an entry outside', 'entry=..%2Fhandler.ts', () => archive, 422, /inside the archive/],
    ['with an entry that is no module', 'entry=data.txt', () => archive, 422, /must end with/],
    ['whose entry is missing', 'entry=handler.ts', () => archive, 422, /not in the archive/],
    ['with another hash', `${ENTRY}&sha256=${'0'.repeat(64)}`, () => archive, 422, /sha256/],
    ['that is no gzip', ENTRY, () => Buffer.from('nothing'), 422, /not a gzip file/],
    ['that is no tar', ENTRY, () => gzipSync('nothing'), 422, /not a tar file/],
    ['that breaks off', ENTRY, () => archive.subarray(0, -20), 422, /incomplete/],
    ['without a body', ENTRY, () => new Uint8Array(), 422, /archive/],
  ];
  it.each(FAULTS)(
    'is refused for %s, and takes no number',
    async (_what, query, body, status, text) => {
      const { send } = await open();
      const answer = await refused(send(query, body()));
      expect(answer.status).toBe(status);
      expect(answer.detail).toMatch(text);
      expect(await readJson(await send())).toMatchObject({ version: 1 });
    },
  );

  it('has to be gzip', async () => {
    const { send } = await open();
    const answer = send(ENTRY, archive, { 'content-type': 'application/json' });
    expect(await refused(answer)).toMatchObject({ status: 415 });
  });

  it('is refused beyond 50 MB, before it is read', async () => {
    const { send } = await open();
    const answer = send(ENTRY, Buffer.alloc(50 * 1_048_576 + 1));
    expect(await refused(answer)).toMatchObject({ status: 413 });
  });

  it('is refused for a declared or a load-balancing endpoint', async () => {
    const { call, post } = await open();
    const templateId = await readId(
      await post('/v1/templates', { name: 't', image: 'i', args: 'a', ports: ['80/http'] }),
    );
    const creation = { name: 'l', templateId, type: 'LOAD_BALANCER' };
    const id = await readId(await post('/v1/endpoints', creation));
    for (const endpoint of ['demo', id]) {
      const answer = call(`/v1/endpoints/${endpoint}/versions?${ENTRY}`, {
        ...{ method: 'POST', body: new Uint8Array(archive) },
        headers: { 'content-type': 'application/gzip' },
      });
      expect(await refused(answer)).toMatchObject({ status: 409, code: 'conflict' });
    }
    const versioned = post('/v1/endpoints', { ...creation, source: 'VERSION' });
    expect(await refused(versioned)).toMatchObject({ status: 422 });
  });

  it('is refused beyond the quota of bytes', async () => {
    const { send } = await open({ versionBytes: archive.length + 1 });
    expect((await send()).status).toBe(201);
    expect(await refused(send())).toMatchObject({ status: 409, code: 'quota_exceeded' });
  });

  it('replaces the oldest version that is not in use', async () => {
    const { call, path, post, send } = await open({ versions: 3 });
    await send();
    expect((await post(`${path}/1/deploy`, {})).status).toBe(200);
    for (let n = 0; n < 4; n++) await send();
    const { versions } = page.parse(await readJson(await call(path)));
    expect(versions.map(({ version }) => version)).toEqual([5, 4, 1]);
    expect(await refused(call(`${path}/2/archive`))).toMatchObject({ status: 404 });
  });
});

describe('a version', () => {
  it('is removed unless it is in use, and its number does not come back', async () => {
    const { call, path, post, send } = await open();
    for (let n = 0; n < 2; n++) await send();
    await post(`${path}/1/deploy`, { timeout: 5 });
    const remove = (version: number) => call(`${path}/${version}`, { method: 'DELETE' });
    expect(await refused(remove(1))).toMatchObject({ status: 409 });
    expect((await remove(2)).status).toBe(204);
    expect(await refused(remove(2))).toMatchObject({ status: 404 });
    expect(await readJson(await send())).toMatchObject({ version: 3 });
  });

  it('is deployed by a key with endpoints:write only, and its rollout is shown', async () => {
    const { call, id, keys, path, post, send } = await open();
    await send();
    const { key } = await keys.issue({ name: 'r', scopes: ['endpoints:read'] });
    const headers = { authorization: key };
    expect(await refused(post(`${path}/1/deploy`, {}, { headers }))).toMatchObject({ status: 403 });
    expect(await readJson(await post(`${path}/1/deploy`, { timeout: 7 }))).toMatchObject({
      ...{ id, source: 'VERSION', version: null },
      rollout: { version: 1, from: null, state: 'CHECKING', endedAt: null },
    });
    expect(await refused(post(`${path}/2/deploy`, {}))).toMatchObject({ status: 404 });
    expect(await refused(post(`${path}/x/deploy`, {}))).toMatchObject({ status: 404 });
    expect(await refused(post(`${path}/1/deploy`, { timeout: 4 }))).toMatchObject({ status: 422 });
    await call(`/v1/endpoints/${id}`, {
      ...{ method: 'PATCH', body: '{"workersMax":0}' },
      headers: { 'content-type': 'application/json' },
    });
    expect(await refused(post(`${path}/1/deploy`, {}))).toMatchObject({ status: 409 });
  });

  it('is not sent again to a worker that has this archive, and is to one that has another', async () => {
    const { id, keys, path, send, url } = await open();
    await send();
    const { key } = await keys.issue({ name: 'w', userId: 'owner', scopes: [`worker:${id}`] });
    const fetchKept = (tags: string) =>
      fetch(`${url}${path}/1/handler`, { headers: { authorization: key, 'if-none-match': tags } });
    const kept = await fetchKept(`"${'0'.repeat(64)}", "${sha256}"`);
    expect(kept.status).toBe(304);
    expect(kept.headers.get('millrace-entry')).toBe('src%2Fhandler.ts');
    expect(kept.headers.get('millrace-sha256')).toBe(sha256);
    expect(await kept.text()).toBe('');
    const sent = await fetchKept(`"${'0'.repeat(64)}"`);
    expect((await sent.arrayBuffer()).byteLength).toBe(archive.length);
  });

  it('is downloaded with a worker key of its endpoint, and with no other one', async () => {
    const { id, keys, path, send, url } = await open();
    await send();
    const fetchWith = async (scope: string, userId = 'owner') => {
      const { key } = await keys.issue({ name: 'w', userId, scopes: [scope] });
      return fetch(`${url}${path}/1/handler`, { headers: { authorization: key } });
    };
    const sent = await fetchWith(`worker:${id}`);
    expect(sent.headers.get('millrace-entry')).toBe('src%2Fhandler.ts');
    expect(sent.headers.get('millrace-sha256')).toBe(sha256);
    expect(Buffer.compare(Buffer.from(await sent.arrayBuffer()), archive)).toBe(0);
    expect((await fetchWith('worker:demo')).status).toBe(403);
    expect((await fetchWith('jobs:read')).status).toBe(403);
    expect((await fetchWith('worker', 'ada')).status).toBe(404);
  });
});
