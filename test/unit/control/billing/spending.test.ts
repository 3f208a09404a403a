// What users and endpoints have spent: the stored sums, the time that no row has yet, and the containers that a process
// has not observed since its start.
import { expect, it, onTestFinished } from 'vitest';
import { addToBill, kindOf } from '../../../../src/control/billing/bill-rows.ts';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { Spending } from '../../../../src/control/billing/spending.ts';
import { Pods } from '../../../../src/control/pods/pods.ts';
import type { Container } from '../../../../src/engine/engine.ts';
import type { Store, Transaction } from '../../../../src/store/store.ts';
import { createCatalog, GPU, PodWorld } from '../../../support/containers/pod-world.ts';
import { NO_NAMES } from '../../../support/no-names.ts';

const DAY_MS = 86_400_000;
const OWNER = 'owner';
/** Millionths of a USD per hour of a pod with one GPU. */
const PRICE = 2_000_000n;

const catalog = createCatalog(['g1', 'g2']);

async function openWorld(): Promise<PodWorld> {
  const world = await PodWorld.open({ catalog });
  onTestFinished(() => world.close());
  return world;
}

function spendingOf({ clock, store }: PodWorld, pods: Pods): Spending {
  const billing = new Billing({ store, clock, pods, nameOf: () => undefined });
  return new Spending({ store, billing });
}

async function read(spending: Spending, world: PodWorld, endpointId: string | null = null) {
  const from = Math.floor(world.clock.now() / DAY_MS) * DAY_MS;
  const [spent] = await spending.read([{ userId: OWNER, endpointId, from, to: from + DAY_MS }]);
  if (!spent || spent instanceof Error) throw spent ?? new Error('nothing was read');
  return spent;
}

it('counts a container that this process has not observed yet apart, until it is observed', async () => {
  const world = await openWorld();
  await world.create({ gpu: { id: GPU, count: 1 } });
  await world.settle();
  const begun = world.clock.now();
  await world.settle(100_000);
  const { clock, engine, store } = world;
  const templates = { ...NO_NAMES, find: () => undefined };
  // A platform that has just started: it has read the records, and its reconciler has not run yet.
  const pods = await Pods.open({
    store,
    clock,
    engine,
    catalog,
    templates,
    bill: { add: addToBill },
  });
  await world.settle(50_000);
  const ms = BigInt(clock.now() - begun);
  expect(await read(spendingOf(world, pods), world)).toEqual({ billed: 0n, unseen: ms * PRICE });
  const { billed, unseen } = await read(spendingOf(world, world.pods), world);
  expect(unseen).toBe(0n);
  // The reconciler looks every 2 s.
  expect(ms - billed / PRICE).toBeLessThanOrEqual(2_000n);
  await world.restart();
  expect((await read(spendingOf(world, world.pods), world)).unseen).toBe(0n);
});

it('counts no time twice while the end of an interval is on disk and its pod is not in memory yet', async () => {
  const world = await openWorld();
  const { id } = await world.create({ gpu: { id: GPU, count: 1 } });
  await world.settle(100_000);
  const { clock, engine, store } = world;
  const isAnswered = Promise.withResolvers<void>();
  const isOnDisk = Promise.withResolvers<void>();
  const slow: Store = Object.assign(Object.create(null), {
    read: store.read.bind(store),
    write: async (...given: Parameters<Store['write']>) => {
      const written = await store.write(...given);
      isOnDisk.resolve();
      await isAnswered.promise;
      return written;
    },
  });
  const templates = { ...NO_NAMES, find: () => undefined };
  const pods = await Pods.open({
    store: slow,
    clock,
    engine,
    catalog,
    templates,
    bill: { add: addToBill },
  });
  const seen = world.pods.live.seen(id);
  const begun = pods.live.get(id)?.meter?.until ?? 0;
  pods.meter.note(id, seen, pods.meter.begin());
  const spending = spendingOf(world, pods);
  const units = BigInt(clock.now() - begun) * PRICE;
  expect((await read(spending, world)).billed).toBe(units);
  const end: Container | undefined = seen && {
    ...{ ...seen, state: 'exited', exitCode: 0, endedAt: clock.now() },
  };
  const closing = pods.live.changeBilled(id, (pod) =>
    pods.meter.measure(pod, end, pods.meter.begin()),
  );
  await isOnDisk.promise;
  expect((await read(spending, world)).billed).toBe(units);
  isAnswered.resolve();
  await closing;
  pods.meter.note(id, end, pods.meter.begin());
  expect((await read(spending, world)).billed).toBe(units);
});

it('costs as many rows as the period has days, and nothing for what other users have running', async () => {
  const world = await openWorld();
  const { clock, store } = world;
  const own = { kind: 'endpoint', id: 'ep_1', userId: OWNER, name: null } as const;
  const today = Math.floor(clock.now() / DAY_MS) * DAY_MS;
  await store.write((tx) => {
    for (let day = 1; day <= 20; day++) {
      const from = today - day * DAY_MS;
      addToBill(tx, own, [{ from, to: from + 1_000, price: 1, gpus: 0 }]);
    }
  });
  const read: number[] = [];
  const counted: Pick<Store, 'read' | 'write'> = {
    write: store.write.bind(store),
    read: (operation) =>
      store.read((tx) => {
        const resources: Transaction['resources'] = (listing) => {
          const rows = tx.resources(listing);
          read.push(rows.length);
          return rows;
        };
        return operation(Object.assign(Object.create(tx), { resources }));
      }),
  };
  const interval = { from: today - 1_000, to: today, price: 1, gpus: 0 };
  const openIntervals = function* () {
    yield { resource: own, interval };
    const resource = { ...own, id: 'ep_2', userId: 'bob' };
    yield {
      resource,
      get interval(): typeof interval {
        throw new Error('it is of another user');
      },
    };
  };
  const billing = { openIntervals, *unseenIntervals() {} };
  const spending = new Spending({ store: counted, billing });
  const scopes = [null, 'ep_1'].flatMap((endpointId) =>
    [1, 10].map((days) => ({
      ...{ userId: OWNER, endpointId, from: today - days * DAY_MS, to: today },
    })),
  );
  const spent = await spending.read(scopes);
  expect(spent.map((each) => (each instanceof Error ? each : each.billed))).toEqual([
    ...[2_000n, 11_000n],
    ...[2_000n, 11_000n],
  ]);
  expect(read).toEqual([1, 10, 1, 10]);
});

it('reads one row for each day, however many resources the user has', async () => {
  const world = await openWorld();
  const { clock, store } = world;
  const at = clock.now();
  await store.write((tx) => {
    for (let index = 0; index < 500; index++) {
      const resource = { kind: 'endpoint', id: `ep_${index}`, userId: OWNER, name: null } as const;
      addToBill(tx, resource, [{ from: at, to: at + 1_000, price: 1, gpus: 1 }]);
    }
  });
  let rows = 0;
  const counted: Pick<Store, 'read' | 'write'> = {
    write: (operation, options) => store.write(operation, options),
    read: async (operation) => {
      const found = await store.read(operation);
      if (Array.isArray(found)) rows += found.length;
      return found;
    },
  };
  const billing = new Billing({ store, clock, pods: undefined, nameOf: () => undefined });
  const spending = new Spending({ store: counted, billing });
  expect((await read(spending, world)).billed).toBe(500_000n);
  expect((await read(spending, world, 'ep_7')).billed).toBe(1_000n);
  expect(rows).toBe(2);
  const stored = await store.read((tx) => tx.resources({ kind: kindOf('day'), limit: 1_000 }));
  expect(stored).toHaveLength(500);
});
