import { expect, it } from 'vitest';
import { RecentInputs } from '../../../../src/store/live/live-jobs.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { addEndpoint, INPUT, makeJob } from '../../../support/store/stored-jobs.ts';

const read = (text: Uint8Array | undefined) => text && Buffer.from(text).toString();

it('returns an input as it was when it was put, until it is deleted', () => {
  const inputs = new RecentInputs();
  const input = Buffer.from('first');
  inputs.put({ endpointId: 'e', id: 'a' }, input);
  input.fill(0);
  expect(inputs.find({ endpointId: 'other', id: 'a' })).toBeUndefined();
  inputs.delete({ endpointId: 'other', id: 'a' });
  expect(read(inputs.find({ endpointId: 'e', id: 'a' }))).toBe('first');
  inputs.delete({ endpointId: 'e', id: 'a' });
  expect(inputs.find({ endpointId: 'e', id: 'a' })).toBeUndefined();
});

it('forgets the oldest inputs', () => {
  const inputs = new RecentInputs(2);
  for (const id of ['a', 'b', 'c']) inputs.put({ endpointId: 'e', id }, Buffer.from(id));
  const found = ['a', 'b', 'c'].map((id) => read(inputs.find({ endpointId: 'e', id })));
  expect(found).toEqual([undefined, 'b', 'c']);
});

it('returns the input of a job again and again', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  await addEndpoint(store);
  const job = makeJob({ id: 'a' });
  await store.write((tx) => tx.insertJob(job, INPUT));
  const readInput = () => store.write((tx) => tx.input(job));
  expect([await readInput(), await readInput()].map(read)).toEqual([read(INPUT), read(INPUT)]);
  await store.close();
});
