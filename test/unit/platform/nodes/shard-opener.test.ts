// Opens shards on real stores, while the endpoints of the control plane change.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock as clock } from '../../../../src/base/clock.ts';
import { silentLog as log } from '../../../../src/base/log.ts';
import { Endpoints } from '../../../../src/control/endpoints/endpoints.ts';
import { EndpointCopies, ShardOpener } from '../../../../src/platform/nodes/shard-opener.ts';
import { Queue } from '../../../../src/queue/queue.ts';
import { ShardedQueues } from '../../../../src/queue/queues.ts';
import { completeSettings } from '../../../../src/queue/settings.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';

const SHARD = 3;

let control: Store;
let shardStore: Store;
let endpoints: Endpoints;
let queues: ShardedQueues;
let copies: EndpointCopies;
let opener: ShardOpener;
/** Runs before the queue of a shard is started. */
let beforeStart: () => Promise<void>;
let created: Queue[];
let closed: number;
let noted: number[];

beforeEach(async () => {
  control = openSqliteStore({ path: ':memory:' });
  shardStore = openSqliteStore({ path: ':memory:' });
  endpoints = await Endpoints.open({ store: control, clock, chooseShard: () => SHARD });
  queues = new ShardedQueues({
    settings: completeSettings(),
    shardOf: (id) => endpoints.find(id)?.shard,
  });
  beforeStart = async () => {};
  created = [];
  closed = 0;
  noted = [];
  const store: Store = {
    read: (operation) => shardStore.read(operation),
    write: (...write) => shardStore.write(...write),
    reclaim: (pages) => shardStore.reclaim(pages),
    // The schema of a shard outlives its connection.
    close: async () => {
      closed += 1;
    },
  };
  copies = new EndpointCopies({ endpoints, log });
  opener = new ShardOpener({
    ...{ clock, log, endpoints, queues, copies },
    openStore: async () => ({ store, abandon: () => {} }),
    createQueue: (store) => {
      const queue = new Queue({ store, clock, log });
      const start = queue.start.bind(queue);
      queue.start = async () => {
        await beforeStart();
        await start();
      };
      created.push(queue);
      return queue;
    },
    reloadControl: () => endpoints.reload(),
    countRequests: () => 0,
    noteClosed: (shard) => noted.push(shard),
  });
});

afterEach(async () => {
  await Promise.all(created.map((queue) => queue.close()));
  await shardStore.close();
  await control.close();
});

const readShard = (id: string) => shardStore.read((tx) => tx.endpoint(id));

it('writes endpoints to the shard that are created while the shard is opened', async () => {
  await endpoints.ensureEndpoint('early');
  beforeStart = async () => {
    // The node has been told of it.
    await endpoints.ensureEndpoint('late');
    await copies.settled();
  };
  await opener.open(SHARD, () => {});
  expect(await readShard('early')).toMatchObject({ deleted: false });
  expect(await readShard('late')).toMatchObject({ deleted: false });
});

it('writes settings to the shard that change while the shard is opened', async () => {
  await endpoints.ensureEndpoint('ep');
  beforeStart = async () => {
    await endpoints.ensureEndpoint('ep', { maxAttempts: 7 });
    await copies.settled();
  };
  await opener.open(SHARD, () => {});
  expect(await readShard('ep')).toMatchObject({ settings: { maxAttempts: 7 } });
});

it('closes the queue of a shard that could not be opened', async () => {
  beforeStart = async () => {
    throw new Error('the connection is lost');
  };
  await expect(opener.open(SHARD, () => {})).rejects.toThrow('the connection is lost');
  expect(created.map(({ isClosing }) => isClosing)).toEqual([true]);
  expect(closed).toBe(1);
  expect(noted).toEqual([SHARD]);
  expect(queues.serves(SHARD)).toBe(false);
  // Nothing is written for a shard that this node does not serve.
  await endpoints.ensureEndpoint('ep');
  await copies.settled();
  expect(await readShard('ep')).toBeUndefined();
});

it('removes an endpoint only if it does not exist any more', async () => {
  const { userId } = await endpoints.ensureEndpoint('ep');
  await opener.open(SHARD, () => {});
  expect(await opener.removeEndpoint(SHARD, 'ep')).toBe(false);
  expect(await readShard('ep')).toMatchObject({ deleted: false });
  await endpoints.remove(userId, 'ep');
  expect(await opener.removeEndpoint(SHARD, 'ep')).toBe(true);
  expect(await readShard('ep')).toBeUndefined();
});
