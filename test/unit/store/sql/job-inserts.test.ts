import { describe, expect, it } from 'vitest';
import { describeInsert } from '../../../../src/store/sql/job-inserts.ts';
import { imageColumns } from '../../../../src/store/sql/job-row.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { addEndpoint, INPUT, makeJob } from '../../../conformance/store/stored-jobs.ts';

describe('the insertion of a job', () => {
  it('gives a job that no worker has had few parameters', () => {
    const job = makeJob({ id: 'a', priority: 3, idempotencyKey: 'k' });
    expect(describeInsert(job, { input: INPUT }).params.length).toBeLessThan(26);
  });

  it.each([
    { attempt: 1 },
    { failures: 1 },
    { outputKind: 'value' as const },
    { status: 'CANCELLED' as const },
  ])('gives a job with %j all parameters', (fields) => {
    const job = makeJob({ id: 'a', ...fields });
    expect(describeInsert(job, {}).params).toHaveLength(imageColumns.length);
  });

  it('stores all that it is given', async () => {
    const store = openSqliteStore({ path: ':memory:', live: { endedJobs: 0, readyJobs: 0 } });
    await addEndpoint(store);
    const fresh = makeJob({ id: 'a', priority: 3, group: 'g', webhook: 'https://example.com' });
    const used = makeJob({ id: 'b', attempt: 2, failures: 1, progress: '1' });
    await store.write(function* (tx) {
      yield* tx.insertJob(fresh, INPUT);
      yield* tx.insertJob(used, INPUT);
    });
    const read = (id: string) => store.read((tx) => tx.job({ endpointId: fresh.endpointId, id }));
    expect(await read('a')).toEqual(fresh);
    expect(await read('b')).toEqual(used);
    await store.close();
  });
});
