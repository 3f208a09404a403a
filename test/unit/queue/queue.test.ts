// The operations of clients on jobs in the queue, and the records that they read.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JobKey } from '../../../src/store/store.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  failed,
  Hand,
  logOf,
  NEVER,
  Platform,
  progressOf,
} from '../../support/queue-platform.ts';

let platform: Platform;
let worker: Hand;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
});

afterEach(() => platform.close());

function key(id: string): JobKey {
  return { endpointId: ENDPOINT, id };
}

async function submitSync(): Promise<string> {
  const { submissions } = platform.queue;
  const input = Buffer.from('{}');
  const plain = { endpointId: ENDPOINT, input, policy: {}, idempotency: undefined };
  return (await submissions.submit({ ...plain, mode: 'runsync' })).id;
}

describe('a record', () => {
  it('has the waiting time so far of a waiting job', async () => {
    const id = await platform.submit();
    await platform.clock.advance(1_234);
    expect(await platform.record(id)).toEqual({
      id,
      status: 'IN_QUEUE',
      delayTime: 1_234,
      executionTime: 0,
      attempt: 0,
      waitReason: { code: 'worker_ready', message: expect.stringContaining('4 slots free') },
    });
  });

  it('has the times so far and the last progress of a running job', async () => {
    const id = await platform.submit();
    await platform.clock.advance(200);
    const lease = await worker.takeOne();
    await worker.report([progressOf(lease, 1, 0.1), progressOf(lease, 2, { step: 'ä' })]);
    await platform.clock.advance(300);
    expect(await platform.record(id)).toEqual({
      id,
      status: 'IN_PROGRESS',
      delayTime: 200,
      executionTime: 300,
      attempt: 1,
      workerId: 'w1',
      progress: { step: 'ä' },
    });
  });

  it('has the output and the execution time of a completed job', async () => {
    const id = await platform.submit();
    await platform.clock.advance(200);
    const lease = await worker.takeOne();
    await platform.clock.advance(300);
    await worker.finish(lease, { ...completed, executionMs: 41.5 }, { body: '{"a":[1]}' });
    await platform.clock.advance(1_000);
    expect(await platform.record(id)).toEqual({
      id,
      status: 'COMPLETED',
      delayTime: 200,
      executionTime: 42,
      attempt: 1,
      workerId: 'w1',
      output: { a: [1] },
    });
  });

  it('has the array of values that a streamed job yielded', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    await worker.report([chunksOf(lease, 1, 0, ['a', null]), chunksOf(lease, 2, 2, [{ b: 1 }])]);
    await worker.finish(lease, { ...completed, output: 'chunks' }, { seq: 3 });
    expect((await platform.record(id)).output).toEqual(['a', null, { b: 1 }]);
  });

  it('has an empty array if a streamed job yielded nothing', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    await worker.finish(lease, { ...completed, output: 'chunks' });
    expect((await platform.record(id)).output).toEqual([]);
  });

  it('has the value that a streamed job returned', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['a']));
    await worker.finish(lease, completed, { seq: 2, body: '"returned"' });
    expect((await platform.record(id)).output).toBe('returned');
  });

  it('counts the wait of a retried job from its requeueing', async () => {
    const id = await platform.submit();
    await platform.clock.advance(500);
    await worker.finish(await worker.takeOne(), failed);
    await platform.clock.advance(1_700);
    const waiting = await platform.record(id);
    expect(waiting).toMatchObject({ status: 'IN_QUEUE', delayTime: 1_700, executionTime: 5 });
    await worker.takeOne();
    expect(await platform.record(id)).toMatchObject({
      attempt: 2,
      delayTime: 1_700,
      executionTime: 0,
    });
  });

  it('has no run in its wait if the job was cancelled in the queue after a lost attempt', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    await worker.renew([lease]);
    await platform.clock.advance(15_000 + 60_000);
    await platform.queue.jobs.cancel(key(id));
    expect(await platform.record(id)).toMatchObject({
      status: 'CANCELLED',
      executionTime: 0,
      delayTime: 60_000,
    });
  });

  it('is not found for an unknown job', async () => {
    await expect(platform.record('nobody')).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('a streamed output that is too large for the record', () => {
  it('appears with its size only and stays in the stream', async () => {
    const small = new Platform({ settings: { maxOutputBytes: 40 } });
    await small.start();
    const hand = new Hand(() => small.queue.link(ENDPOINT));
    await hand.hello();
    const id = await small.submit();
    const lease = await hand.takeOne();
    await hand.reportOne(chunksOf(lease, 1, 0, ['x'.repeat(30), 'y'.repeat(30)]));
    await hand.finish(lease, { ...completed, output: 'chunks' }, { seq: 2 });
    const record = await small.record(id);
    expect(record).not.toHaveProperty('output');
    expect(record.outputBytes).toBeGreaterThan(60);
    await small.close();
  });
});

describe('waiting for the end', () => {
  it('ends when the job ends', async () => {
    const id = await submitSync();
    const waiting = platform.queue.jobs.waitForEnd(key(id), 60_000, NEVER);
    await worker.finish(await worker.takeOne(), completed, { body: '7' });
    expect(JSON.parse((await waiting).body.toString())).toMatchObject({ output: 7 });
  });

  it('shows every client the same output: from memory, then from the store', async () => {
    const id = await submitSync();
    const waiting = [1, 2].map(() => platform.queue.jobs.waitForEnd(key(id), 60_000, NEVER));
    await worker.finish(await worker.takeOne(), completed, { body: '"ä"' });
    const records = [...(await Promise.all(waiting)), await platform.queue.jobs.record(key(id))];
    expect(records.map(({ body }) => JSON.parse(body.toString()).output)).toEqual(['ä', 'ä', 'ä']);
  });

  it('ends when the job is cancelled', async () => {
    const id = await submitSync();
    const waiting = platform.queue.jobs.waitForEnd(key(id), 60_000, NEVER);
    await platform.queue.jobs.purge(ENDPOINT);
    expect(await waiting).toMatchObject({ id, status: 'CANCELLED' });
  });

  it('returns the current record when the time is over', async () => {
    const id = await submitSync();
    const waiting = platform.queue.jobs.waitForEnd(key(id), 5_000, NEVER);
    await platform.clock.advance(5_000);
    expect(await waiting).toMatchObject({ id, status: 'IN_QUEUE' });
  });

  it('continues after a failure that is retried', async () => {
    const id = await submitSync();
    const waiting = platform.queue.jobs.waitForEnd(key(id), 60_000, NEVER);
    await worker.finish(await worker.takeOne(), failed);
    await platform.clock.advance(2_000);
    await worker.finish(await worker.takeOne(), completed, { body: '8' });
    expect(await waiting).toMatchObject({ status: 'COMPLETED' });
  });

  it('ends with not_found when the job’s time to live runs out', async () => {
    const id = await platform.submit({ ttl: 10_000 });
    const waiting = platform.queue.jobs.waitForEnd(key(id), 60_000, NEVER);
    const ended = expect(waiting).rejects.toMatchObject({ code: 'not_found' });
    await platform.clock.advance(10_000);
    await ended;
  });

  it('ends when the queue closes, as takes and renewals do', async () => {
    const id = await submitSync();
    const waiting = platform.queue.jobs.waitForEnd(key(id), 60_000, NEVER);
    const lease = await worker.takeOne();
    const take = await platform.park('take', () => worker.take({ waitMs: 20_000 }));
    const renew = await platform.park('renew', () => worker.renew([lease], { waitMs: 5_000 }));
    await platform.queue.close();
    expect(await waiting).toMatchObject({ status: 'IN_PROGRESS' });
    expect(await take.answer).toEqual([]);
    expect(await renew.answer).toEqual({ ended: [], drain: false });
  });
});

describe('cancel and retry', () => {
  it('answer with the status', async () => {
    const id = await platform.submit();
    expect(await platform.queue.jobs.cancel(key(id))).toEqual({ id, status: 'CANCELLED' });
    expect(await platform.queue.jobs.cancel(key(id))).toEqual({ id, status: 'CANCELLED' });
  });

  it('are refused with a conflict that names the status', async () => {
    const id = await platform.submit();
    const { jobs } = platform.queue;
    await expect(jobs.retry(key(id))).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('IN_QUEUE'),
    });
    await worker.finish(await worker.takeOne(), completed);
    await expect(jobs.cancel(key(id))).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('COMPLETED'),
    });
  });

  it('are not found for an unknown job', async () => {
    const notFound = { code: 'not_found' };
    await expect(platform.queue.jobs.cancel(key('x'))).rejects.toMatchObject(notFound);
    await expect(platform.queue.jobs.retry(key('x'))).rejects.toMatchObject(notFound);
    await expect(platform.queue.jobs.setTtl(key('x'), 10_000)).rejects.toMatchObject(notFound);
  });

  it('retry runs the same input again under the same ID and removes the earlier output', async () => {
    const id = await platform.submit({}, Buffer.from('{"n":1}'));
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['old']));
    await worker.finish(lease, { ...failed, retry: 'never' }, { seq: 2 });
    expect(await platform.queue.jobs.retry(key(id))).toEqual({ id, status: 'IN_QUEUE' });
    expect(await platform.record(id)).toEqual({
      id,
      status: 'IN_QUEUE',
      delayTime: 0,
      executionTime: 0,
      attempt: 1,
      waitReason: { code: 'worker_ready', message: expect.any(String) },
      workerId: 'w1',
    });
    const again = await worker.takeOne();
    expect(again).toMatchObject({ jobId: id, attempt: 2 });
    expect(Buffer.from(again.input).toString()).toBe('{"n":1}');
  });
});

async function putOtherEndpoint(): Promise<void> {
  const settings = endpointSettings.parse({});
  await platform.store.write((tx) => tx.putEndpoint({ id: 'other', settings, createdAt: 0 }));
}

describe('purge', () => {
  it('cancels all waiting jobs, page by page, and leaves running jobs alone', async () => {
    const running = await platform.submit();
    await worker.takeOne();
    const ids = await Promise.all(Array.from({ length: 450 }, () => platform.submit()));
    ids.push(await platform.submit({ delay: 60_000 }));
    expect(await platform.queue.jobs.purge(ENDPOINT)).toBe(451);
    expect((await platform.job(running)).status).toBe('IN_PROGRESS');
    expect((await platform.record(ids[0] ?? '')).status).toBe('CANCELLED');
    expect((await platform.record(ids.at(-1) ?? '')).status).toBe('CANCELLED');
    expect((await platform.health()).jobs).toMatchObject({ inQueue: 0, inProgress: 1 });
    expect(await platform.queue.jobs.purge(ENDPOINT)).toBe(0);
  });

  it('cancels jobs of all kinds, however they are mixed', async () => {
    const policies = [{}, { priority: 9 }, { delay: 60_000 }, { ttl: 60_000 }, { priority: 1 }];
    const tried = await platform.submit();
    await worker.takeOne();
    const ids = [tried];
    for (let n = 0; n < 300; n++) {
      const policy = policies[(n * n) % 7];
      ids.push(policy ? await platform.submit(policy) : await submitSync());
    }
    await platform.clock.advance(20_000);
    expect(await platform.job(tried)).toMatchObject({ status: 'IN_QUEUE', attempt: 1 });
    const ended = platform.queue.jobs.waitForEnd(key(ids[150] ?? ''), 60_000, NEVER);
    expect(await platform.queue.jobs.purge(ENDPOINT)).toBe(301);
    expect((await ended).status).toBe('CANCELLED');
    const now = platform.clock.now();
    for (const id of ids) {
      const job = await platform.job(id);
      const keptMs = Math.min(
        job.submittedAt + job.ttlMs - now,
        job.mode === 'run' ? 1_800_000 : 60_000,
      );
      expect(job).toMatchObject({ status: 'CANCELLED', delayed: false, expiresAt: now + keptMs });
      expect(job.dueAt).toBe(job.expiresAt);
    }
    expect((await platform.health()).jobs).toMatchObject({ inQueue: 0, inProgress: 0 });
  });

  it('leaves jobs alone that are submitted after the call', async () => {
    await Promise.all(Array.from({ length: 300 }, () => platform.submit()));
    const purged = platform.queue.jobs.purge(ENDPOINT);
    const later = [await platform.submit(), await platform.submit({ priority: 9 })];
    expect(await purged).toBe(300);
    for (const id of later) expect((await platform.record(id)).status).toBe('IN_QUEUE');
    expect((await platform.health()).jobs.inQueue).toBe(2);
  });

  it('lets other operations run between its slices', async () => {
    await Promise.all(Array.from({ length: 600 }, () => platform.submit()));
    const purged = platform.queue.jobs.purge(ENDPOINT).then(() => 'purged');
    const read = async () => {
      for (;;) {
        const { inQueue } = (await platform.health()).jobs;
        if (inQueue > 0 && inQueue < 600) return 'read';
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    expect(await Promise.race([read(), purged])).toBe('read');
    await purged;
  });

  it('commits one slice at a time, however many calls wait', async () => {
    await putOtherEndpoint();
    await Promise.all(Array.from({ length: 300 }, () => platform.submit()));
    let [open, most] = [0, 0];
    const write = platform.store.write.bind(platform.store);
    platform.store.write = async (operation, options) => {
      most = Math.max(most, ++open);
      try {
        return await write(operation, options);
      } finally {
        open--;
      }
    };
    const endpoints = Array.from({ length: 20 }, (_, index) => (index % 2 ? ENDPOINT : 'other'));
    const unused = { endpointId: ENDPOINT, id: 'lost' };
    await platform.store.write((tx) => tx.beginPayload('input', unused, new Uint8Array(9)));
    const swept = platform.clock.advance(31_000);
    const purged = await Promise.all(endpoints.map((id) => platform.queue.jobs.purge(id)));
    await swept;
    expect(await platform.store.read((tx) => tx.unusedPayloads(1))).toEqual([]);
    expect(purged.reduce((sum, cancelled) => sum + cancelled)).toBe(300);
    expect(most).toBe(1);
  });

  it('does not wait for all calls for another endpoint', async () => {
    await putOtherEndpoint();
    await Promise.all(Array.from({ length: 600 }, () => platform.submit()));
    const ended: string[] = [];
    const purge = (id: string) =>
      platform.queue.jobs.purge(id).then((cancelled) => ended.push(`${id} ${cancelled}`));
    await Promise.all([...Array.from({ length: 10 }, () => purge(ENDPOINT)), purge('other')]);
    expect(ended.slice(0, 2)).toEqual(['other 0', `${ENDPOINT} 600`]);
    expect(ended).toHaveLength(11);
  });

  it('is not found for an unknown endpoint', async () => {
    await expect(platform.queue.jobs.purge('x')).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('the list', () => {
  it('is newest first, page by page, without duplicates or gaps', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 7; i++) ids.unshift(await platform.submit());
    const seen: string[] = [];
    let before: number | undefined;
    do {
      const listing = { endpointId: ENDPOINT, status: undefined, before, limit: 3 };
      const page = await platform.queue.jobs.list(listing);
      seen.push(...page.jobs.map(({ id }) => id));
      before = page.next;
    } while (before !== undefined);
    expect(seen).toEqual(ids);
  });

  it('has no next page when the last one is full', async () => {
    await platform.submit();
    await platform.submit();
    const listing = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 2 };
    expect(await platform.queue.jobs.list(listing)).toMatchObject({ next: undefined });
  });

  it('contains only jobs of the requested status', async () => {
    const id = await platform.submit();
    await platform.submit();
    await platform.queue.jobs.cancel(key(id));
    const listing = { endpointId: ENDPOINT, before: undefined, limit: 10 };
    const { jobs } = await platform.queue.jobs.list({ ...listing, status: 'CANCELLED' });
    expect(jobs).toEqual([
      {
        id,
        status: 'CANCELLED',
        attempt: 0,
        submittedAt: platform.clock.now(),
        delayTime: 0,
        executionTime: 0,
      },
    ]);
  });
});

describe('the log of a job', () => {
  it('continues over all attempts and is read from a position', async () => {
    const id = await platform.submit();
    const first = await worker.takeOne();
    await worker.reportOne(logOf(first, 1, '{"a":1}\n'));
    await worker.finish(first, { kind: 'released', reason: 'drain' }, { seq: 2 });
    await worker.reportOne(logOf(await worker.takeOne(), 1, '{"b":2}\n', 3));
    const { jobs } = platform.queue;
    const log = await jobs.log(key(id), 0);
    expect(Buffer.from(log.lines).toString()).toBe('{"a":1}\n{"b":2}\n');
    expect(log).toMatchObject({ next: 16, dropped: 3, status: 'IN_PROGRESS' });
    expect(Buffer.from((await jobs.log(key(id), 8)).lines).toString()).toBe('{"b":2}\n');
    expect(await jobs.log(key(id), 16)).toMatchObject({ next: 16 });
  });

  it('keeps the lines that fit and counts the others', async () => {
    const small = new Platform({ settings: { maxLogBytes: 10 } });
    await small.start();
    const hand = new Hand(() => small.queue.link(ENDPOINT));
    await hand.hello();
    const id = await small.submit();
    const lease = await hand.takeOne();
    await hand.report([logOf(lease, 1, '1234567\n'), logOf(lease, 2, 'a\nb\nc\n', 2)]);
    const log = await small.queue.jobs.log(key(id), 0);
    expect(Buffer.from(log.lines).toString()).toBe('1234567\n');
    expect(log.dropped).toBe(5);
    await small.close();
  });
});

describe('health', () => {
  it('counts jobs in each state, ended jobs since the creation, and workers', async () => {
    await worker.finish(await takeNew(), completed);
    await worker.finish(await takeNew(), { ...failed, retry: 'never' });
    const error = { code: 'execution_timeout', message: 'late' } as const;
    const end = { kind: 'timed_out', executionMs: 1, error, stopped: 'signal' } as const;
    await worker.finish(await takeNew(), end);
    await takeNew();
    await platform.submit();
    await platform.submit({ delay: 60_000 });
    const counts = { completed: 1, failed: 2, inProgress: 1, inQueue: 2, retried: 0 };
    expect(await platform.health()).toEqual({ jobs: counts, workers: { idle: 0, running: 1 } });
    await platform.clock.advance(3_600_000);
    expect((await platform.health()).jobs).toMatchObject({ completed: 1, failed: 2 });
  });

  it('is not found for an unknown endpoint', async () => {
    await expect(platform.queue.health('x')).rejects.toMatchObject({ code: 'not_found' });
  });

  async function takeNew() {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    if (lease.jobId !== id) throw new Error('another job was taken');
    return lease;
  }
});
