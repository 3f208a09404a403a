// Endpoints with their counters and versions, workers, keys, and other resources.
import { expect, it } from 'vitest';
import type {
  EndpointBase,
  FileKey,
  StoredEndpoint,
  StoredResource,
  VersionKey,
} from '../../../src/store/store.ts';
import { JOB_STATUSES, type JobStatus } from '../../../src/wire/job/job.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import {
  addEndpoint,
  addJobs,
  ENDPOINT,
  makeJob,
  USUAL_DEPLOYMENT,
} from '../../support/store/stored-jobs.ts';
import { bytesOf, idsOf, save, store, textOf } from './store-under-test.ts';

type Counters = Omit<StoredEndpoint, keyof EndpointBase>;

/** The defaults of an endpoint that was put with its required members only. */
const plain = { userId: 'owner', deployment: null, deleted: false, shard: 0 };

const zero: Counters = {
  inQueue: 0,
  inProgress: 0,
  completed: 0,
  failed: 0,
  cancelled: 0,
  timedOut: 0,
  retried: 0,
};

const counterOf: Record<JobStatus, keyof Counters> = {
  IN_QUEUE: 'inQueue',
  IN_PROGRESS: 'inProgress',
  COMPLETED: 'completed',
  FAILED: 'failed',
  CANCELLED: 'cancelled',
  TIMED_OUT: 'timedOut',
};

const live: readonly JobStatus[] = ['IN_QUEUE', 'IN_PROGRESS'];

async function readCounters(id = ENDPOINT): Promise<Counters | undefined> {
  const endpoint = await store.read((tx) => tx.endpoint(id));
  if (!endpoint) return undefined;
  const { completed, failed, cancelled, timedOut, retried, inQueue, inProgress } = endpoint;
  return { completed, failed, cancelled, timedOut, retried, inQueue, inProgress };
}

export function describeEndpoints(): void {
  const settings = endpointSettings.parse({ executionTimeoutMs: 5_000, maxQueued: 7 });

  it('starts with counters at zero, and is listed', async () => {
    await store.write((tx) => tx.putEndpoint({ id: 'ep_b', settings, createdAt: 5 }));
    const added = { id: 'ep_b', settings, createdAt: 5, ...plain, ...zero };
    expect(await store.read((tx) => tx.endpoint('ep_b'))).toEqual(added);
    expect(idsOf(await store.read((tx) => tx.endpoints()))).toEqual(['ep_b', ENDPOINT]);
    expect(await store.read((tx) => tx.endpoint('ep_c'))).toBeUndefined();
  });

  it('keeps its counters and creation time when its settings change', async () => {
    await addJobs(store, [makeJob({ id: 'a' })]);
    await store.write((tx) => tx.putEndpoint({ id: ENDPOINT, settings, createdAt: 99 }));
    const endpoint = await store.read((tx) => tx.endpoint(ENDPOINT));
    const kept = { createdAt: 1, ...plain, ...zero, inQueue: 1 };
    expect(endpoint).toEqual({ id: ENDPOINT, settings, ...kept });
  });

  it('stores its owner, its deployment and its deletion', async () => {
    const deployment = {
      ...USUAL_DEPLOYMENT,
      name: 'image',
      templateId: 'tpl_1',
      gpuTypeIds: ['L4'],
      scaler: { type: 'QUEUE_DELAY' as const, seconds: 4 },
    };
    const added = {
      id: 'ep_b',
      settings,
      createdAt: 5,
      userId: 'ada',
      deployment,
      deleted: false,
      shard: 3,
    };
    await store.write((tx) => tx.putEndpoint(added));
    expect(await store.read((tx) => tx.endpoint('ep_b'))).toEqual({ ...added, ...zero });
    const deleted = { ...added, userId: 'bob', deleted: true };
    await store.write((tx) => tx.putEndpoint(deleted));
    expect(await store.read((tx) => tx.endpoint('ep_b'))).toMatchObject({
      userId: 'ada',
      deleted: true,
    });
  });

  it('keeps its shard unless it is put with another one', async () => {
    const shardOf = () =>
      store.read((tx) => {
        return tx.endpoint('ep_b')?.shard;
      });
    const plainly = { id: 'ep_b', settings, createdAt: 5 };
    await store.write((tx) => tx.putEndpoint({ ...plainly, shard: 7 }));
    await store.write((tx) => tx.putEndpoint(plainly));
    expect(await shardOf()).toBe(7);
    await store.write((tx) => tx.putEndpoint({ ...plainly, shard: 0 }));
    expect(await shardOf()).toBe(0);
  });

  it('is removed with its workers, deliveries, decisions, versions and input schemas', async () => {
    await store.write((tx) => {
      tx.putEndpoint({ id: 'ep_b', settings, createdAt: 5 });
      for (const parent of ['ep_b', ENDPOINT]) {
        const decision = { kind: 'decision', userId: 'owner', parent, position: 1 };
        tx.putResource({ ...decision, id: `of ${parent}`, body: '{}' });
        tx.putResource({ ...decision, kind: 'input_schema', id: parent, body: '{}' });
        tx.putResource({ ...decision, kind: 'version', id: `of ${parent}`, body: '{}' });
      }
      tx.removeEndpoint('ep_b');
    });
    expect(await store.read((tx) => tx.endpoint('ep_b'))).toBeUndefined();
    const decisions = await store.read((tx) => tx.resources({ kind: 'decision', limit: 9 }));
    const versions = await store.read((tx) => tx.resources({ kind: 'version', limit: 9 }));
    const schemas = await store.read((tx) => tx.resources({ kind: 'input_schema', limit: 9 }));
    const left = [...decisions, ...versions, ...schemas].map(({ parent }) => parent);
    expect(left).toEqual([ENDPOINT, ENDPOINT, ENDPOINT]);
  });

  it('returns when its oldest waiting job was queued, regardless of priority', async () => {
    const oldest = (id = ENDPOINT) => store.read((tx) => tx.oldestQueuedAt(id));
    expect(await oldest()).toBeUndefined();
    await addJobs(store, [
      makeJob({ id: 'a', priority: 9, position: 1, queuedAt: 50 }),
      makeJob({ id: 'b', priority: 9, position: 2, queuedAt: 60 }),
      makeJob({ id: 'c', priority: 0, position: 3, queuedAt: 40 }),
      makeJob({ id: 'd', priority: 4, position: 4, queuedAt: 70 }),
      makeJob({ id: 'e', position: 5, queuedAt: 1, delayed: true }),
      makeJob({ id: 'f', position: 6, queuedAt: 2, status: 'IN_PROGRESS' }),
    ]);
    expect(await oldest()).toBe(40);
    expect(await oldest('ep_none')).toBeUndefined();
  });

  const pairs = JOB_STATUSES.flatMap((from) => JOB_STATUSES.map((to) => [from, to] as const));
  it.each(pairs)('counts a job that changes from %s to %s', async (from, to) => {
    const job = makeJob({ id: 'a', status: from });
    await addJobs(store, [job]);
    expect(await readCounters()).toEqual({ ...zero, [counterOf[from]]: 1 });
    await save(job, { status: to });
    const left = live.includes(from) ? 0 : 1;
    expect(await readCounters()).toEqual({
      ...zero,
      [counterOf[from]]: left,
      [counterOf[to]]: 1,
    });
  });

  it.each(JOB_STATUSES)(
    'keeps only the terminal count of a removed job that was %s',
    async (status) => {
      const job = makeJob({ id: 'a', status });
      await addJobs(store, [job]);
      await store.write((tx) => tx.removeJob(job));
      const kept = live.includes(status) ? 0 : 1;
      expect(await readCounters()).toEqual({ ...zero, [counterOf[status]]: kept });
    },
  );

  it('counts a second failure of the same job again', async () => {
    const first = makeJob({ id: 'a', status: 'FAILED' });
    await addJobs(store, [first]);
    const queued = await save(first, { status: 'IN_QUEUE' }, 1);
    await save(queued, { status: 'FAILED' });
    expect(await readCounters()).toEqual({ ...zero, failed: 2, retried: 1 });
  });

  it('counts and uncounts retries, even without a change of status', async () => {
    const job = makeJob({ id: 'a' });
    await addJobs(store, [job]);
    const again = await save(job, { failures: 1 }, 1);
    await save(again, {}, 2);
    expect((await readCounters())?.retried).toBe(3);
    await save(again, { status: 'IN_PROGRESS' }, -1);
    expect(await readCounters()).toEqual({ ...zero, inProgress: 1, retried: 2 });
  });

  it('does not count jobs of another endpoint', async () => {
    await addEndpoint(store, 'ep_other');
    await addJobs(store, [makeJob({ id: 'a' })]);
    expect(await readCounters('ep_other')).toEqual(zero);
  });
}

export function describeWorkersAndKeys(): void {
  const worker = {
    endpointId: ENDPOINT,
    id: 'w1',
    podId: 'pod_1',
    incarnation: 1_700_000_000_000,
    slots: 4,
    version: '0.1.0',
    devices: [{ kind: 'gpu' as const, index: 0, uuid: 'GPU-1', name: 'H200', memoryBytes: 1e11 }],
    retry: { maxAttempts: 5 },
    helloAt: 12,
  };

  it('include a worker that is put, replaced, listed and removed', async () => {
    const other = { ...worker, endpointId: 'ep_other' };
    await store.write((tx) => tx.putWorker(worker));
    await store.write((tx) => tx.putWorker(other));
    const newer = {
      ...worker,
      podId: null,
      incarnation: 2,
      slots: 1,
      version: '2',
      devices: [],
      retry: null,
      helloAt: 13,
    };
    await store.write((tx) => tx.putWorker(newer));
    expect(await store.read((tx) => tx.worker(ENDPOINT, 'w1'))).toEqual(newer);
    expect(await store.read((tx) => tx.workers())).toEqual([other, newer]);
    await store.write((tx) => tx.removeWorker(ENDPOINT, 'w1'));
    expect(await store.read((tx) => tx.worker(ENDPOINT, 'w1'))).toBeUndefined();
    expect(await store.read((tx) => tx.workers())).toEqual([other]);
  });

  const key = {
    id: 'key_1',
    hash: 'h1',
    name: 'first',
    userId: 'u',
    scopes: ['jobs:read', 'jobs:write:ep_test'],
    createdAt: 5,
    expiresAt: null,
    podId: null,
  };

  it('include keys that are put, replaced, listed and found by hash', async () => {
    const lasting = { createdAt: 4, expiresAt: 99 };
    const other = { ...key, id: 'key_2', hash: 'h2', podId: 'pod_1', ...lasting };
    await store.write((tx) => tx.putKey(key));
    await store.write((tx) => tx.putKey(other));
    expect(await store.read((tx) => tx.keyByHash('h1'))).toEqual(key);
    expect(await store.read((tx) => tx.keyByHash('h3'))).toBeUndefined();
    expect(await store.read((tx) => tx.keys())).toEqual([other, key]);
    expect(await store.read((tx) => tx.keysOfUser(key.userId))).toEqual([other, key]);
    expect(await store.read((tx) => tx.keysOfUser('nobody'))).toEqual([]);
    const renewed = { ...key, name: 'second', hash: 'h3', scopes: [] };
    await store.write((tx) => tx.putKey(renewed));
    expect(await store.read((tx) => tx.keyByHash('h3'))).toEqual(renewed);
    expect(await store.read((tx) => tx.keyByHash('h1'))).toBeUndefined();
    await store.write((tx) => tx.removeKey('key_1'));
    expect(await store.read((tx) => tx.keys())).toEqual([other]);
  });
}

const FIRST: VersionKey = { endpointId: 'ep_1', version: 1 };
const TENTH: VersionKey = { endpointId: 'ep_1', version: 10 };

async function putVersion(key: VersionKey, ...parts: readonly string[]): Promise<void> {
  for (const [index, part] of parts.entries()) {
    await store.write((tx) => tx.putVersionPart(key, index, bytesOf(part)));
  }
}

async function readParts(key: VersionKey): Promise<string[]> {
  const parts: string[] = [];
  for (;;) {
    const part = await store.read((tx) => tx.versionPart(key, parts.length));
    if (!part) return parts;
    parts.push(textOf(part) ?? '');
  }
}

export function describeVersions(): void {
  it('keeps the parts of each version in their order', async () => {
    await putVersion(TENTH, 'x');
    await putVersion(FIRST, 'a', 'b', 'c');
    expect(await readParts(FIRST)).toEqual(['a', 'b', 'c']);
    expect(await readParts(TENTH)).toEqual(['x']);
    expect(await readParts({ endpointId: 'ep_2', version: 1 })).toEqual([]);
  });

  it('keeps bytes of every value in a part of 1 MB', async () => {
    const part = new Uint8Array(1_048_576).map((_, index) => index);
    await store.write((tx) => tx.putVersionPart(FIRST, 0, part));
    const kept = await store.read((tx) => tx.versionPart(FIRST, 0));
    expect(Buffer.compare(kept ?? new Uint8Array(), part)).toBe(0);
  });

  it('replaces a part that an interrupted upload has left', async () => {
    await putVersion(FIRST, 'old');
    await putVersion(FIRST, 'new', 'b');
    expect(await readParts(FIRST)).toEqual(['new', 'b']);
  });

  it('lists the versions that have parts', async () => {
    await putVersion(TENTH, 'x');
    await putVersion(FIRST, 'a', 'b');
    await putVersion({ endpointId: 'ep_0', version: 2 }, 'z');
    const listed = await store.read((tx) => tx.versionsWithParts());
    expect(listed).toEqual([{ endpointId: 'ep_0', version: 2 }, FIRST, TENTH]);
  });

  it('is deleted in steps, the last parts first', async () => {
    await putVersion(FIRST, 'a', 'b', 'c');
    await putVersion(TENTH, 'x');
    const remove = (limit: number) => store.write((tx) => tx.removeVersionParts(FIRST, limit));
    const count = () => store.read((tx) => tx.versionParts(FIRST));
    expect(await count()).toBe(3);
    await remove(2);
    expect([await readParts(FIRST), await count()]).toEqual([['a'], 1]);
    await remove(2);
    await remove(2);
    expect(await count()).toBe(0);
    expect(await store.read((tx) => tx.versionsWithParts())).toEqual([TENTH]);
  });
}

const INPUT: FileKey = { endpointId: 'ep_1', id: 'file-1' };

async function readFile(key: FileKey): Promise<string[]> {
  const parts: string[] = [];
  for (;;) {
    const part = await store.read((tx) => tx.filePart(key, parts.length));
    if (!part) return parts;
    parts.push(textOf(part) ?? '');
  }
}

export function describeFiles(): void {
  it('keeps the parts of each file in their order, and replaces one that is written again', async () => {
    const other = { ...INPUT, id: 'file-10' };
    const put = (key: FileKey, index: number, text: string) =>
      store.write((tx) => tx.putFilePart(key, index, bytesOf(text)));
    await put(other, 0, 'x');
    await put(INPUT, 0, 'a');
    await put(INPUT, 1, 'old');
    await put(INPUT, 1, 'b');
    expect([await readFile(INPUT), await readFile(other)]).toEqual([['a', 'b'], ['x']]);
    expect(await store.read((tx) => tx.fileParts(INPUT))).toBe(2);
  });

  it('deletes the last parts of a file', async () => {
    await store.write((tx) => {
      for (const index of [0, 1, 2]) tx.putFilePart(INPUT, index, bytesOf(`part ${index}`));
    });
    await store.write((tx) => tx.removeFileParts(INPUT, 2));
    expect(await readFile(INPUT)).toEqual(['part 0']);
    await store.write((tx) => tx.removeFileParts(INPUT, 2));
    expect(await readFile(INPUT)).toEqual([]);
  });
}

function makeResource(given: Partial<StoredResource>): StoredResource {
  const base = { kind: 'template' as const, userId: 'ada', parent: '', position: 1 };
  return { ...base, id: 'tpl_1', body: '{"name":"one"}', ...given };
}

async function putResources(...resources: StoredResource[]): Promise<void> {
  await store.write((tx) => {
    for (const resource of resources) tx.putResource(resource);
  });
}

export function describeResources(): void {
  it('is found by kind and ID until it is removed', async () => {
    const resource = makeResource({});
    await putResources(resource);
    expect(await store.read((tx) => tx.resource(resource))).toEqual(resource);
    expect(await store.read((tx) => tx.resource({ kind: 'pod', id: 'tpl_1' }))).toBeUndefined();
    await store.write((tx) => tx.removeResource(resource));
    expect(await store.read((tx) => tx.resource(resource))).toBeUndefined();
  });

  it('keeps its owner, parent and position when it changes', async () => {
    await putResources(makeResource({ parent: 'ep_1' }));
    await putResources(
      makeResource({ userId: 'bob', parent: 'ep_2', position: 7, body: '{"name":"two"}' }),
    );
    const kept = await store.read((tx) => tx.resource({ kind: 'template', id: 'tpl_1' }));
    expect(kept).toEqual(makeResource({ parent: 'ep_1', body: '{"name":"two"}' }));
  });

  it('is listed in pages by user and by parent, newest first', async () => {
    await putResources(
      makeResource({ id: 'a', position: 1 }),
      makeResource({ id: 'b', position: 2, userId: 'bob', parent: 'ep_1' }),
      makeResource({ id: 'c', position: 3, parent: 'ep_1' }),
      makeResource({ id: 'd', position: 4, kind: 'pod' }),
      makeResource({ id: 'e', position: 5 }),
    );
    const list = async (listing: { userId?: string; parent?: string; before?: number }) =>
      idsOf(await store.read((tx) => tx.resources({ kind: 'template', limit: 2, ...listing })));
    expect(await list({})).toEqual(['e', 'c']);
    expect(await list({ before: 3 })).toEqual(['b', 'a']);
    expect(await list({ userId: 'ada' })).toEqual(['e', 'c']);
    expect(await list({ userId: 'ada', before: 3 })).toEqual(['a']);
    expect(await list({ parent: 'ep_1' })).toEqual(['c', 'b']);
    expect(await list({ parent: 'ep_1', userId: 'bob' })).toEqual(['b']);
  });

  it('is counted by kind and parent', async () => {
    await putResources(
      makeResource({ id: 'a', parent: 'ep_2' }),
      makeResource({ id: 'b', parent: 'ep_1' }),
      makeResource({ id: 'c', parent: 'ep_2', userId: 'bob' }),
      makeResource({ id: 'd', parent: 'ep_1', kind: 'pod' }),
    );
    expect(await store.read((tx) => tx.countResources('template'))).toEqual([
      { parent: 'ep_1', count: 1 },
      { parent: 'ep_2', count: 2 },
    ]);
    expect(await store.read((tx) => tx.countResources('flow'))).toEqual([]);
  });

  it('is unchanged if the operation that changed it fails', async () => {
    const resource = makeResource({});
    await putResources(resource);
    const failing = store.write((tx) => {
      tx.putResource({ ...resource, body: '{}' });
      tx.removeResource(resource);
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    expect(await store.read((tx) => tx.resource(resource))).toEqual(resource);
  });
}
