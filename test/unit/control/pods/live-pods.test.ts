// What is kept of pods, and who sees it when.
import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { LivePods } from '../../../../src/control/pods/live-pods.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { sights, states } from '../../../support/containers/pod-states.ts';

const DEVICES = ['g0', 'g1', 'g2'];

async function openPods() {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const open = () => LivePods.open({ store, clock: new ManualClock(), gpuDevices: () => DEVICES });
  return { store, open, pods: await open() };
}

it('assigns no GPU to two pods, even if one is released during a write', async () => {
  const { pods } = await openPods();
  const waiting = states.waitingForGpu;
  await pods.add({ ...states.stopping, id: 'holder', gpus: ['g0'] });
  await pods.add({ ...waiting, id: 'second', createdAt: 2 });
  await pods.add({ ...waiting, id: 'third', createdAt: 3 });
  let third: Promise<boolean> | undefined;
  pods.onChange((id) => {
    if (id === 'holder') third = pods.allotGpus('third');
  });
  const freed = pods.change('holder', (pod) => ({ ...pod, gpus: [] }));
  const second = pods.allotGpus('second');
  await freed;
  expect(await Promise.all([second, third])).toEqual([true, true]);
  const held = pods.all().flatMap(({ gpus }) => gpus);
  expect(held).toHaveLength(2);
  expect(pods.heldGpus().size).toBe(2);
});

it('does not show a change before it is on disk', async () => {
  const { open, pods } = await openPods();
  await pods.add(states.exited);
  const change = pods.change('pod_1', (pod) => ({ ...pod, failures: 2 }));
  expect(pods.get('pod_1')?.failures).toBe(0);
  await change;
  expect(pods.get('pod_1')?.failures).toBe(2);
  expect((await open()).get('pod_1')).toEqual(pods.get('pod_1'));
});

it('loses neither of two simultaneous changes', async () => {
  const { pods } = await openPods();
  await pods.add(states.exited);
  const count = () => pods.change('pod_1', (pod) => ({ ...pod, failures: pod.failures + 1 }));
  await Promise.all([count(), count(), count()]);
  expect(pods.get('pod_1')?.failures).toBe(3);
});

it('is unchanged after a refused change', async () => {
  const { pods } = await openPods();
  await pods.add(states.exited);
  let asked = 0;
  const refused = pods.change('pod_1', (pod) => {
    if (asked++ > 0) throw new Error('no');
    return { ...pod, failures: 9 };
  });
  await expect(refused).rejects.toThrow('no');
  expect(pods.get('pod_1')).toEqual(states.exited);
});

it('reports changes of the record and new observations', async () => {
  const { pods } = await openPods();
  const heard: string[] = [];
  await pods.add(states.exited);
  const stop = pods.onChange((id, change) => heard.push(`${id} ${change}`));
  await pods.change('pod_1', (pod) => pod);
  await pods.change('pod_1', (pod) => ({ ...pod, reason: 'so' }));
  const seen = sights.endedWell;
  pods.noteSeen('pod_1', seen);
  pods.noteSeen('pod_1', { ...seen });
  pods.noteSeen('pod_1', undefined);
  pods.noteSeen('pod_1', undefined);
  pods.noteSeen('nobody', seen);
  expect(heard).toEqual(['pod_1 record', 'pod_1 seen', 'pod_1 seen']);
  stop();
  await pods.change('pod_1', (pod) => ({ ...pod, reason: null }));
  expect(heard).toHaveLength(3);
});

it('finds every pod, however many exist', async () => {
  const { open, pods } = await openPods();
  const ids = Array.from({ length: 2_001 }, (_, index) => `pod_${index}`);
  await Promise.all(ids.map((id) => pods.add({ ...states.exited, id })));
  expect((await open()).all()).toHaveLength(2_001);
});

it('keeps the records of the last 1,000 removed pods of a user, and those of all workers', async () => {
  const { pods, store } = await openPods();
  const gone = { ...states.exited, status: 'TERMINATED', desired: 'gone', removed: true } as const;
  const now = new ManualClock().now();
  const add = async (id: string, changes: object) => {
    await pods.add({ ...gone, id, ...changes });
  };
  for (let made = 0; made < 1_003; made++) await add(`pod_${made}`, { endedAt: now + made });
  await add('other', { userId: 'bob', endedAt: now });
  await add('worker', { endpointId: 'ep_1', endedAt: now });
  await pods.forgetGone();
  const left = await store.read((tx) => tx.resources({ kind: 'pod', limit: 2_000 }));
  const ids = new Set(left.map(({ id }) => id));
  expect(ids.size).toBe(1_002);
  for (const id of ['other', 'worker', 'pod_3', 'pod_1002']) expect(ids).toContain(id);
});
