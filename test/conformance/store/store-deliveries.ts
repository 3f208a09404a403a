// Webhook deliveries: stored by receiver and time, independent of their jobs.
import { expect, it } from 'vitest';
import type { StoredDelivery } from '../../../src/store/store.ts';
import { addJobs, makeDelivery, makeJob } from '../../support/store/stored-jobs.ts';
import { bytesOf, idsOf, keyOf, store, textOf } from './store-under-test.ts';

const RECORD = '{"id":"job-1","output":"ä"}';

async function add(...deliveries: StoredDelivery[]): Promise<void> {
  await store.write((tx) => {
    for (const delivery of deliveries) tx.insertDelivery(delivery, [bytesOf(RECORD)]);
  });
}

async function listDue(receiver: string, now: number, limit = 10): Promise<StoredDelivery[]> {
  return store.read((tx) => tx.dueDeliveries({ userId: 'owner', receiver, now, limit }));
}

async function readRecord(id: string): Promise<string> {
  const parts: Uint8Array[] = [];
  for (let at = 0; ; at++) {
    const part = await store.read((tx) => tx.deliveryPart(keyOf(id), at));
    if (!part) return Buffer.concat(parts).toString();
    parts.push(part);
  }
}

export function describeDeliveries(): void {
  it('are returned unchanged when they are due', async () => {
    const delivery = makeDelivery({
      id: 'd1',
      url: 'http://[::1]:8080/a?b=%C3%A4',
      receiver: '[::1]:8080',
      createdAt: 1_767_225_600_001,
      platformRanMs: 31_536_000_000,
      bytes: 20_971_520,
      attempts: 3,
      nextAt: 1_767_225_600_002,
    });
    await add(delivery);
    expect(await listDue('[::1]:8080', 1_767_225_600_001)).toEqual([]);
    expect(await listDue('[::1]:8080', 1_767_225_600_002)).toEqual([delivery]);
    const record = await store.read((tx) => tx.deliveryPart(keyOf('d1'), 0));
    expect(textOf(record)).toBe(RECORD);
    expect(await store.read((tx) => tx.deliveryPart(keyOf('d2'), 0))).toBeUndefined();
  });

  it('are listed by user and receiver, earliest first, up to a limit', async () => {
    await add(
      makeDelivery({ id: 'late', nextAt: 30 }),
      makeDelivery({ id: 'early', nextAt: 10 }),
      makeDelivery({ id: 'middle', nextAt: 20, endpointId: 'ep_other' }),
      makeDelivery({ id: 'foreign', nextAt: 5, receiver: 'other.example' }),
      makeDelivery({ id: 'of another user', nextAt: 5, userId: 'grace' }),
    );
    expect(idsOf(await listDue('example.com', 30))).toEqual(['early', 'middle', 'late']);
    expect(idsOf(await listDue('example.com', 30, 2))).toEqual(['early', 'middle']);
    expect(idsOf(await listDue('example.com', 20))).toEqual(['early', 'middle']);
    expect(idsOf(await listDue('unknown.example', 30))).toEqual([]);
  });

  it('list each receiver of a user once, with its earliest delivery', async () => {
    expect(await store.read((tx) => tx.receivers())).toEqual([]);
    await add(
      makeDelivery({ id: 'a', receiver: 'b.example', nextAt: 30 }),
      makeDelivery({ id: 'b', receiver: 'a.example', nextAt: 20 }),
      makeDelivery({ id: 'c', receiver: 'b.example', nextAt: 10 }),
      makeDelivery({ id: 'd', receiver: 'b.example', nextAt: 5, userId: 'grace' }),
    );
    expect(await store.read((tx) => tx.receivers())).toEqual([
      { userId: 'grace', receiver: 'b.example', nextAt: 5 },
      { userId: 'owner', receiver: 'a.example', nextAt: 20 },
      { userId: 'owner', receiver: 'b.example', nextAt: 10 },
    ]);
  });

  it('return the time of the next delivery to a receiver', async () => {
    await add(
      makeDelivery({ id: 'a', nextAt: 10 }),
      makeDelivery({ id: 'b', nextAt: 30 }),
      makeDelivery({ id: 'c', nextAt: 20, receiver: 'other.example' }),
    );
    const next = (after: number) =>
      store.read((tx) => tx.nextDeliveryAt({ userId: 'owner', receiver: 'example.com' }, after));
    expect(await next(0)).toBe(10);
    expect(await next(10)).toBe(30);
    expect(await next(30)).toBeUndefined();
  });

  it('change only their time and attempts when they are postponed', async () => {
    const delivery = makeDelivery({ id: 'a' });
    const other = makeDelivery({ id: 'b' });
    await add(delivery, other);
    const postponed = { ...delivery, attempts: 1, nextAt: 500 };
    await store.write((tx) => tx.postponeDelivery({ ...postponed, url: 'ignored' }));
    expect(await listDue('example.com', 2_000)).toEqual([postponed, other]);
  });

  it('are removed with their record, and others are kept', async () => {
    await add(makeDelivery({ id: 'a' }), makeDelivery({ id: 'b' }));
    await store.write((tx) => tx.removeDelivery(keyOf('a')));
    expect(idsOf(await listDue('example.com', 2_000))).toEqual(['b']);
    const read = (id: string) => store.read((tx) => tx.deliveryPart(keyOf(id), 0));
    expect([await read('a'), textOf(await read('b'))]).toEqual([undefined, RECORD]);
  });

  it('outlive their job', async () => {
    const job = makeJob({ id: 'job-1', status: 'COMPLETED' });
    await addJobs(store, [job]);
    await add(makeDelivery({ id: 'a', jobId: job.id }));
    await store.write((tx) => tx.removeJob(job));
    expect(idsOf(await listDue('example.com', 2_000))).toEqual(['a']);
    const record = await store.read((tx) => tx.deliveryPart(keyOf('a'), 0));
    expect(textOf(record)).toBe(RECORD);
  });

  it('keep the output of a job in their record after the job is removed', async () => {
    const output = Buffer.alloc(2_500_000, 'x');
    const job = makeJob({ id: 'job-1', status: 'COMPLETED', webhook: 'https://example.com/' });
    await addJobs(store, [job]);
    const bytes = await store.write((tx) => {
      tx.putOutput(job, output);
      const record = [bytesOf('{"output":'), { outputOf: job }, bytesOf('}')];
      tx.insertDelivery(makeDelivery({ id: 'a' }), record);
      return tx.outputBytes(job);
    });
    expect(bytes).toBe(output.length);
    expect(await readRecord('a')).toBe(`{"output":${output}}`);
    await store.write((tx) => tx.removeJob(job));
    expect(await readRecord('a')).toBe(`{"output":${output}}`);
  });

  it.each(['job', 'delivery'])(
    'leave no output behind if the %s is removed first',
    async (first) => {
      const job = makeJob({ id: 'job-1', status: 'COMPLETED', webhook: 'https://example.com/' });
      await addJobs(store, [job]);
      await store.write((tx) => {
        tx.putOutput(job, bytesOf('"done"'));
        tx.insertDelivery(makeDelivery({ id: 'a' }), [{ outputOf: job }]);
      });
      const removals = [
        () => store.write((tx) => tx.removeJob(job)),
        () => store.write((tx) => tx.removeDelivery(keyOf('a'))),
      ];
      if (first === 'delivery') removals.reverse();
      await removals[0]?.();
      if (first === 'job') expect(await readRecord('a')).toBe('"done"');
      else expect(textOf(await store.read((tx) => tx.output(job)))).toBe('"done"');
      await removals[1]?.();
      expect(await store.read((tx) => tx.outputBytes(job))).toBe(0);
    },
  );

  it('leave no output behind if their endpoint is removed', async () => {
    const job = makeJob({ id: 'job-1', status: 'COMPLETED', webhook: 'https://example.com/' });
    await addJobs(store, [job]);
    await store.write((tx) => {
      tx.putOutput(job, bytesOf('"done"'));
      tx.insertDelivery(makeDelivery({ id: 'a' }), [{ outputOf: job }]);
      tx.removeJob(job);
      tx.removeEndpoint(job.endpointId);
    });
    expect(await store.read((tx) => tx.outputBytes(job))).toBe(0);
    expect(await store.read((tx) => tx.deliveryPart(keyOf('a'), 0))).toBeUndefined();
  });

  it('are rolled back with the operation that inserted them', async () => {
    const failing = store.write((tx) => {
      tx.insertDelivery(makeDelivery({ id: 'a' }), [bytesOf(RECORD)]);
      throw new Error('on purpose');
    });
    await expect(failing).rejects.toThrow('on purpose');
    expect(await store.read((tx) => tx.receivers())).toEqual([]);
    expect(await store.read((tx) => tx.deliveryPart(keyOf('a'), 0))).toBeUndefined();
  });

  it('are counted by endpoint', async () => {
    await add(
      makeDelivery({ id: 'a' }),
      makeDelivery({ id: 'b' }),
      makeDelivery({ id: 'a', endpointId: 'ep_other' }),
    );
    expect(await store.read((tx) => tx.countDeliveries())).toEqual([
      { endpointId: 'ep_other', count: 1 },
      { endpointId: 'ep_test', count: 2 },
    ]);
  });
}
