// Write operations: commit, rollback, visibility and order.
import { expect, it } from 'vitest';
import type { StoredJob, Transaction } from '../../../src/store/store.ts';
import { addJobs, ENDPOINT, INPUT, makeJob } from '../../support/store/stored-jobs.ts';
import { bytesOf, idsOf, keyOf, readJob, store, textOf } from './store-under-test.ts';

export function describeWrites(): void {
  it('returns the result of its operation', async () => {
    const given = await store.write((tx) => {
      tx.insertJob(makeJob({ id: 'a' }), INPUT);
      return 42;
    });
    expect(given).toBe(42);
  });

  it('sees the jobs that it has changed, and the next one of the commit sees the counters', async () => {
    const inserted = store.write((tx) => {
      tx.insertJob(makeJob({ id: 'a' }), INPUT);
      return tx.job(keyOf('a'))?.id;
    });
    const counted = store.write((tx) => tx.endpoint(ENDPOINT)?.inQueue);
    expect(await Promise.all([inserted, counted])).toEqual(['a', 1]);
  });

  it('reads lists before it changes what they show', async () => {
    const late = store.write((tx) => {
      tx.insertJob(makeJob({ id: 'a' }), INPUT);
      return tx.queuedJobs(ENDPOINT, 1);
    });
    await expect(late).rejects.toThrow('read first');
    expect(await readJob('a')).toBeUndefined();
  });

  it('reads no ready or leased jobs after it has changed a job, wherever they are', async () => {
    await store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), INPUT));
    const all = { endpointId: ENDPOINT, limit: 1, now: 0 };
    const lists: ((tx: Transaction) => unknown)[] = [
      (tx) => tx.readyJobs(ENDPOINT, 1),
      (tx) => tx.takeableJobs(all),
      (tx) => tx.leasedJobs(),
      (tx) => tx.countLeases(ENDPOINT, 'g'),
      (tx) => tx.jobs({ ...all, status: 'IN_PROGRESS', before: undefined }),
    ];
    for (const list of lists) {
      await store.write(list);
      const late = store.write((tx) => {
        const job = tx.job(keyOf('a'));
        if (job) tx.saveJob(job, { ...job, attempt: 1 }, 0);
        list(tx);
      });
      await expect(late).rejects.toThrow('read first');
    }
  });

  it('reads what many items need in two runs', async () => {
    let runs = 0;
    const ids = Array.from({ length: 100 }, (_, index) => `w${index}`);
    await store.write((tx) => {
      runs += 1;
      tx.each(ids, (id) => tx.worker(ENDPOINT, id));
    });
    expect(runs).toBe(2);
  });

  it('runs again for what is not in memory, and changes once', async () => {
    await store.write((tx) => tx.insertJob(makeJob({ id: 'a', idempotencyKey: 'k' }), INPUT));
    const found = await store.write((tx) => {
      const first = tx.jobByIdempotencyKey(ENDPOINT, 'k');
      const job = makeJob({ id: 'b', position: 2 });
      tx.insertJob(job, INPUT);
      const workers = tx.each(['w1', 'w2'], (id) => tx.worker(ENDPOINT, id));
      return [first?.id, workers, tx.job(keyOf('b'))?.id];
    });
    expect(found).toEqual(['a', [undefined, undefined], 'b']);
    expect((await store.read((tx) => tx.endpoint(ENDPOINT)))?.inQueue).toBe(2);
  });

  it('is invisible to reads before its commit', async () => {
    const written = store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), INPUT));
    const early = await readJob('a');
    await written;
    expect(early).toBeUndefined();
    expect((await readJob('a'))?.id).toBe('a');
  });

  it('is invisible to a read that starts during the write', async () => {
    let asked: Promise<StoredJob | undefined> | undefined;
    const written = store.write((tx) => {
      tx.insertJob(makeJob({ id: 'a' }), INPUT);
      asked = readJob('a');
      throw new Error('changed my mind');
    });
    await expect(written).rejects.toThrow('changed my mind');
    expect(await asked).toBeUndefined();
  });

  it('is rolled back if it throws, without an effect on other writes of the same commit', async () => {
    const insert = (id: string) => store.write((tx) => tx.insertJob(makeJob({ id }), INPUT));
    const fail = (id: string) =>
      store.write((tx) => {
        tx.insertJob(makeJob({ id }), INPUT);
        throw new Error(`no ${id}`);
      });
    const results = await Promise.allSettled([
      insert('a'),
      fail('b'),
      insert('c'),
      fail('d'),
      insert('e'),
    ]);
    expect(results.map((result) => result.status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
      'rejected',
      'fulfilled',
    ]);
    const jobs = await store.read((tx) => tx.queuedJobs(ENDPOINT, 10));
    expect(idsOf(jobs).sort()).toEqual(['a', 'c', 'e']);
    expect((await store.read((tx) => tx.endpoint(ENDPOINT)))?.inQueue).toBe(3);
  });

  it('runs again if it throws because of a change that is not committed, without that change', async () => {
    await store.write((tx) => tx.insertJob(makeJob({ id: 'taken' }), INPUT));
    const undone = store.write((tx) => {
      tx.insertJob(makeJob({ id: 'a' }), INPUT);
      tx.insertJob(makeJob({ id: 'taken' }), INPUT);
    });
    const second = store.write((tx) => {
      const found = tx.job(keyOf('a'));
      tx.insertJob(makeJob({ id: 'b' }), INPUT);
      if (found) throw new Error('saw a job that was never committed');
    });
    await expect(undone).rejects.toThrow();
    await second;
    expect(await readJob('a')).toBeUndefined();
    expect((await readJob('b'))?.id).toBe('b');
  });

  it('rejects with the error that it throws, even before its first change', async () => {
    const refused = new Error('refused');
    const written = store.write((tx) => {
      tx.endpoint(ENDPOINT);
      throw refused;
    });
    const neighbour = store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), INPUT));
    await expect(written).rejects.toBe(refused);
    await neighbour;
    expect(await readJob('a')).toBeDefined();
  });

  it('is rolled back alone if the database refuses it', async () => {
    await addJobs(store, [makeJob({ id: 'a' })]);
    const again = store.write((tx) => {
      tx.putOutput(keyOf('a'), bytesOf('1'));
      tx.insertJob(makeJob({ id: 'a' }), INPUT);
    });
    const neighbour = store.write((tx) => tx.putOutput(keyOf('b'), bytesOf('2')));
    await expect(again).rejects.toThrow();
    await neighbour;
    expect(await store.read((tx) => tx.output(keyOf('a')))).toBeUndefined();
    expect(textOf(await store.read((tx) => tx.output(keyOf('b'))))).toBe('2');
  });

  it('runs in the order of the calls', async () => {
    const job = makeJob({ id: 'a' });
    await addJobs(store, [job]);
    const increase = () =>
      store.write((tx) => {
        const now = tx.job(keyOf('a'));
        if (now) tx.saveJob(now, { ...now, attempt: now.attempt + 1 }, 0);
        return now?.attempt;
      });
    expect(await Promise.all(Array.from({ length: 1_200 }, increase))).toEqual(
      Array.from({ length: 1_200 }, (_, i) => i),
    );
  });

  it('is committed by close if it started before', async () => {
    const written = store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), INPUT));
    await store.close();
    await expect(written).resolves.toBeUndefined();
    await expect(store.write((tx) => tx.removeWorker(ENDPOINT, 'x'))).rejects.toThrow('closed');
    await expect(readJob('a')).rejects.toThrow('closed');
  });
}
