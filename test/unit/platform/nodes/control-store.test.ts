import { expect, it } from 'vitest';
import { ControlStore } from '../../../../src/platform/nodes/control-store.ts';
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
