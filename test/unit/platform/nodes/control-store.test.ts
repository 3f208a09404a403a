import { expect, it } from 'vitest';
import { letOthersRun, ManualClock } from '../../../../src/base/clock.ts';
import { silentLog as log } from '../../../../src/base/log.ts';
import type { ClusterView } from '../../../../src/cluster/cluster-rows.ts';
import { ControlCopies, ControlStore } from '../../../../src/platform/nodes/control-store.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';

it('answers writes in their order, even if the first announcement is slow', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  const slow = Promise.withResolvers<void>();
  const announcements = [slow.promise];
  const control = new ControlStore({
    reader: store,
    announce: async () => announcements.shift(),
  });
  control.own(store);
  const answered: string[] = [];
  const write = async (name: string) => {
    await control.write((tx) => tx.endpoint(name));
    answered.push(name);
  };
  const both = Promise.all([write('first'), write('second')]);
  await store.read((tx) => tx.endpoint('first'));
  expect(answered).toEqual([]);
  slow.resolve();
  await both;
  expect(answered).toEqual(['first', 'second']);
  await store.close();
});

it('answers the next write after a failed one', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  const control = new ControlStore({ reader: store, announce: async () => {} });
  control.own(store);
  const failed = control.write(() => {
    throw new Error('refused');
  });
  const next = control.write((tx) => tx.endpoint('next'));
  await expect(failed).rejects.toThrow('refused');
  await expect(next).resolves.toBeUndefined();
  await store.close();
});

/** Reads that end when the test says so. */
function createCopies() {
  const clock = new ManualClock();
  const reads: PromiseWithResolvers<void>[] = [];
  const reload = () => {
    const read = Promise.withResolvers<void>();
    reads.push(read);
    return read.promise;
  };
  return { clock, reads, copies: new ControlCopies({ clock, log, reloads: [reload] }) };
}

it('begins another read for calls that come during a read, and shares it', async () => {
  const { copies, reads } = createCopies();
  const first = copies.reload();
  await letOthersRun();
  const later = [copies.reload(), copies.reload()];
  await letOthersRun();
  expect(reads).toHaveLength(1);
  reads[0]?.resolve();
  await first;
  await letOthersRun();
  expect(reads).toHaveLength(2);
  reads[1]?.resolve();
  await Promise.all(later);
  expect(reads).toHaveLength(2);
});

it('pauses after a long read', async () => {
  const { clock, copies, reads } = createCopies();
  const first = copies.reload();
  await clock.advance(100);
  reads[0]?.resolve();
  await first;
  const second = copies.reload();
  await clock.advance(399);
  expect(reads).toHaveLength(1);
  await clock.advance(1);
  expect(reads).toHaveLength(2);
  reads[1]?.resolve();
  await second;
});

it('reads again after a failed read', async () => {
  const { copies, reads } = createCopies();
  const first = copies.reload();
  await letOthersRun();
  const second = copies.reload();
  reads[0]?.reject(new Error('no connection'));
  await expect(first).rejects.toThrow('no connection');
  await letOthersRun();
  reads[1]?.resolve();
  await second;
});

const shard = { id: 0, owner: 'leader', epoch: 1, offeredTo: null, failedOn: null };

function viewOf(controlNumber: number): ClusterView {
  const leader = { id: 'leader', url: 'http://leader', version: 1, isLeaving: false, isLive: true };
  return { nodes: [{ ...leader, controlNumber }], shards: [shard] };
}

it('keeps each that follows a view waiting until its records are read', async () => {
  const { copies, reads } = createCopies();
  const ended: string[] = [];
  const first = copies.follow(viewOf(1)).then(() => ended.push('first'));
  const second = copies.follow(viewOf(1)).then(() => ended.push('second'));
  await letOthersRun();
  expect(ended).toEqual([]);
  reads[0]?.resolve();
  await Promise.all([first, second]);
  expect(reads).toHaveLength(1);
  expect(await copies.follow(viewOf(1))).toBe(false);
  expect(reads).toHaveLength(1);
});

it('reads again for the same view after a failed read', async () => {
  const { copies, reads } = createCopies();
  const following = copies.follow(viewOf(1));
  await letOthersRun();
  reads[0]?.reject(new Error('no connection'));
  expect(await following).toBe(false);
  const again = copies.follow(viewOf(1));
  await letOthersRun();
  reads[1]?.resolve();
  expect(await again).toBe(true);
});
