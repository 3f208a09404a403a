import { expect, it } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { RecordedTime } from '../../../src/queue/recorded-time.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { addEndpoint, addJobs, INPUT, makeJob } from '../../support/store/stored-jobs.ts';

it('records the time with an operation that runs a second time', async () => {
  const clock = new ManualClock();
  const store = openSqliteStore({ path: ':memory:' });
  const { store: recorded } = new RecordedTime({ store, clock, log: silentLog });
  await addEndpoint(recorded);
  await addJobs(recorded, [makeJob({ id: 'twice' })]);
  await clock.advance(5_000);
  // The database refuses a row of the batch, so that each of its operations runs again, alone.
  const refused = store.write((tx) => tx.insertJob(makeJob({ id: 'twice' }), INPUT));
  const added = addJobs(recorded, [makeJob({ id: 'other' })]);
  await expect(refused).rejects.toThrow('UNIQUE');
  await added;
  const record = await store.read((tx) => tx.resource({ kind: 'run', id: 'time' }));
  expect(JSON.parse(record?.body ?? '{}')).toMatchObject({ at: clock.now() });
  await store.close();
});

it('records the time again if the commit that recorded it fails', async () => {
  const clock = new ManualClock();
  const store = openSqliteStore({ path: ':memory:' });
  const { store: recorded } = new RecordedTime({ store, clock, log: silentLog });
  await addEndpoint(recorded);
  await addJobs(recorded, [makeJob({ id: 'twice' })]);
  await clock.advance(5_000);
  await expect(addJobs(recorded, [makeJob({ id: 'twice' })])).rejects.toThrow('UNIQUE');
  await addJobs(recorded, [makeJob({ id: 'other' })]);
  const record = await store.read((tx) => tx.resource({ kind: 'run', id: 'time' }));
  expect(JSON.parse(record?.body ?? '{}')).toMatchObject({ at: clock.now() });
  await store.close();
});
