// The GPU time in which attempts ran, on the bill of their endpoint.
import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog as log } from '../../../../src/base/log.ts';
import { addToBill } from '../../../../src/control/billing/bill-rows.ts';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { GpuUse } from '../../../../src/control/billing/billing-keeper.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { StoreUnavailableError } from '../../../../src/store/store.ts';
import { endpointSettings } from '../../../../src/wire/resources/endpoint.ts';

const DAY_MS = 86_400_000;
const ENDPOINT = { id: 'ep_1', userId: 'ada' };

async function open() {
  const clock = new ManualClock();
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const base = { ...ENDPOINT, settings: endpointSettings.parse({}), createdAt: 0 };
  await store.write((tx) => tx.putEndpoint(base));
  const state = { isBroken: false };
  const start = () =>
    new GpuUse({
      ...{ clock, log },
      store: {
        ...{ read: store.read.bind(store), reclaim: async () => false, close: async () => {} },
        write: async (operation) => {
          if (state.isBroken) throw new StoreUnavailableError('it is full');
          return store.write(operation);
        },
      },
    });
  const billing = new Billing({
    ...{ store, clock, pods: undefined },
    nameOf: () => undefined,
  });
  const read = async () => {
    const range = { userId: undefined, from: 0, to: clock.now() + DAY_MS };
    const days = await billing.rows({ ...range, step: 'day' });
    const hours = await billing.rows({ ...range, step: 'hour' });
    return [days, hours].map((rows) => rows.reduce((sum, row) => sum + row.busyGpuMs, 0));
  };
  return { clock, read, start, state, store };
}

const busy = (ms: number, since = 1) => ({
  gpuCount: { since, ms },
  ...{ running: 1, waiting: 0 },
});
const idle = (ms: number, since = 1) => ({ ...busy(ms, since), running: 0 });

it('is what the count has grown by, whichever process asks for it', async () => {
  const { read, start } = await open();
  const first = start();
  await first.note(ENDPOINT, busy(5_000));
  await first.note(ENDPOINT, idle(7_500));
  await first.note(ENDPOINT, idle(7_500));
  expect(await read()).toEqual([7_500, 7_500]);
  // Another process leads, and the queue has gone on.
  const second = start();
  await second.note(ENDPOINT, idle(7_500));
  await second.note(ENDPOINT, idle(9_000));
  expect(await read()).toEqual([9_000, 9_000]);
  // The queue was opened again, and counts from 0.
  await second.note(ENDPOINT, idle(400, 2));
  expect(await read()).toEqual([9_400, 9_400]);
});

it('is written once a minute while there is work, and at once when there is none', async () => {
  const { clock, read, start } = await open();
  const use = start();
  await use.note(ENDPOINT, busy(1_000));
  await clock.advance(59_000);
  await use.note(ENDPOINT, busy(2_000));
  expect(await read()).toEqual([1_000, 1_000]);
  await clock.advance(1_000);
  await use.note(ENDPOINT, busy(3_000));
  expect(await read()).toEqual([3_000, 3_000]);
  await use.note(ENDPOINT, idle(4_000));
  expect(await read()).toEqual([4_000, 4_000]);
});

it('is added later if the store fails', async () => {
  const { read, start, state } = await open();
  const use = start();
  state.isBroken = true;
  await use.note(ENDPOINT, idle(1_000));
  state.isBroken = false;
  expect(await read()).toEqual([0, 0]);
  await use.note(ENDPOINT, idle(1_000));
  expect(await read()).toEqual([1_000, 1_000]);
});

it('leaves the time and the cost of containers as they are', async () => {
  const { clock, start, store } = await open();
  const resource = { kind: 'endpoint', id: ENDPOINT.id, userId: 'ada', name: null } as const;
  const now = clock.now();
  const interval = { from: now, to: now + 10_000, price: 3_600_000, gpus: 2 };
  await store.write((tx) => addToBill(tx, resource, [interval]));
  await clock.advance(10_000);
  await start().note(ENDPOINT, idle(5_000));
  const billing = new Billing({
    ...{ store, clock, pods: undefined },
    nameOf: () => undefined,
  });
  const query = { userId: 'ada', step: 'day', group: 'resource', limit: 10 } as const;
  const page = await billing.show({
    ...query,
    ...{ from: undefined, to: undefined, kind: undefined, id: undefined, before: undefined },
    maxBytes: 100_000,
  });
  expect(page.records).toMatchObject([
    { id: ENDPOINT.id, seconds: 10, gpuSeconds: 20, busyGpuSeconds: 5, cost: '0.010000' },
  ]);
});

it('keeps the bill readable, however much a worker reports', async () => {
  const { clock, read, start, store } = await open();
  const use = start();
  await use.note(ENDPOINT, idle(2 ** 60));
  await use.note(ENDPOINT, idle(2 ** 61));
  expect(await read()).toEqual([Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER]);
  const resource = { kind: 'endpoint', id: ENDPOINT.id, userId: 'ada', name: null } as const;
  const now = clock.now();
  const interval = { from: now, to: now + 10_000, price: 3_600_000, gpus: 2 };
  await store.write((tx) => addToBill(tx, resource, [interval]));
  expect(await read()).toEqual([Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER]);
});

it('leaves nothing of an endpoint that was deleted meanwhile', async () => {
  const { read, start, store } = await open();
  const use = start();
  await use.note(ENDPOINT, idle(1_000));
  await store.write((tx) => tx.removeEndpoint(ENDPOINT.id));
  await use.note(ENDPOINT, idle(2_000));
  expect(await read()).toEqual([1_000, 1_000]);
  expect(await store.read((tx) => tx.resources({ kind: 'gpu_use', limit: 9 }))).toEqual([]);
});
