// Jobs that come into the queue together: one commit, one result each, and the same IDs when they are repeated.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { BatchedJob, SubmissionBatch } from '../../../src/queue/submissions.ts';
import type { WebhookSender } from '../../../src/queue/webhooks/webhooks.ts';
import { StoreUnavailableError } from '../../../src/store/store.ts';
import { ProblemError } from '../../../src/wire/problem.ts';
import { ENDPOINT, Hand, Platform } from '../../support/queue-platform.ts';

const PART = 1_024;
const CHOSEN = '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76';

let platform: Platform;

beforeEach(async () => {
  const sender: WebhookSender = {
    judge: (url) => (url.includes('private') ? 'it is private' : undefined),
    send: async () => undefined,
    close: async () => {},
  };
  platform = new Platform({
    endpoint: { maxQueued: 5 },
    settings: { payloadPartBytes: PART },
    webhooks: () => sender,
  });
  await platform.start();
});

afterEach(() => platform.close());

const job = (changed: Partial<BatchedJob> = {}): BatchedJob => ({
  ...{ input: Buffer.from('{}'), policy: {}, idempotency: undefined, webhook: undefined },
  ...changed,
});
const many = (count: number) => Array.from({ length: count }, () => job());
const large = (changed: Partial<BatchedJob> = {}) =>
  job({ input: Buffer.from(JSON.stringify({ text: 'x'.repeat(3 * PART) })), ...changed });

async function submit(jobs: BatchedJob[], changed: Partial<SubmissionBatch> = {}) {
  const batch = { endpointId: ENDPOINT, jobs, ...changed };
  const results = await platform.queue.submissions.submitMany(batch);
  return results.map((each) => (each instanceof ProblemError ? each.code : each.id));
}

const counts = async () => (await platform.queue.health(ENDPOINT)).jobs;

describe('jobs submitted together', () => {
  it('are written by one operation, those with large inputs included, in their order', async () => {
    const write = vi.spyOn(platform.store, 'write');
    const ids = await submit([job(), large(), job()]);
    const weights = write.mock.calls.map(([, options]) => options?.weight);
    // The large input has four parts.
    expect(weights).toEqual([...Array.from({ length: 4 }, () => undefined), 3]);
    const worker = new Hand(() => platform.queue.link(ENDPOINT));
    await worker.hello();
    const leases = await worker.take({ max: 3 });
    expect(leases.map(({ jobId }) => jobId)).toEqual(ids);
    expect(leases[1]?.input).toHaveLength(large().input.length);
  });

  it('are refused one by one: full queue, webhook, idempotency key', async () => {
    const idempotency = { key: 'k', requestHash: 'a' };
    const results = await submit([
      job({ idempotency }),
      job({ webhook: 'http://private/' }),
      job({ idempotency: { key: 'k', requestHash: 'b' } }),
      large({ idempotency }),
      ...many(5),
    ]);
    expect(results.slice(1, 3)).toEqual(['invalid', 'conflict']);
    expect(results[3]).toBe(results[0]);
    expect(results.slice(4).filter((each) => each === 'queue_full')).toHaveLength(1);
    expect(results.at(-1)).toBe('queue_full');
    expect(await counts()).toMatchObject({ inQueue: 5 });
  });

  it('do not store a large input that is refused', async () => {
    await submit(many(5));
    const write = vi.spyOn(platform.store, 'write');
    expect(await submit([large(), job()])).toEqual(['queue_full', 'queue_full']);
    expect(write).toHaveBeenCalledTimes(1);
  });

  it('of one idempotency key are one job, also in the last place of the queue', async () => {
    await submit(many(4));
    const idempotency = { key: 'same', requestHash: 'same' };
    const [first, second] = await submit([large({ idempotency }), large({ idempotency })]);
    expect(second).toBe(first);
    expect(await counts()).toMatchObject({ inQueue: 5 });
  });

  it('are all refused if the endpoint does not exist', async () => {
    await expect(submit([job()], { endpointId: 'none' })).rejects.toThrow('none not found');
    await expect(submit([large()], { endpointId: 'none' })).rejects.toThrow('none not found');
  });

  it('are none in the queue if the store fails, and leave no large input', async () => {
    const real = platform.store.write.bind(platform.store);
    const write = vi.spyOn(platform.store, 'write');
    write.mockImplementation((operation, options) =>
      options?.weight === undefined
        ? real(operation, options)
        : Promise.reject(new StoreUnavailableError('full')),
    );
    await expect(submit([job(), large()])).rejects.toThrow(StoreUnavailableError);
    write.mockRestore();
    expect(await counts()).toMatchObject({ inQueue: 0 });
    await platform.clock.advance(2_000);
    const unused = () => platform.store.read((tx) => tx.unusedPayloads(10));
    await expect.poll(unused).toEqual([]);
  });

  it('are found again when the batch is repeated, also if the repetition overtakes it', async () => {
    const newJobs = { id: CHOSEN, isRepeated: false };
    const again = { newJobs: { ...newJobs, isRepeated: true } };
    const [ids, repeated] = await Promise.all([
      submit([job(), large(), job()], again),
      submit([job(), large(), job()], { newJobs }),
    ]);
    expect(repeated).toEqual(ids);
    expect(new Set(ids).size).toBe(3);
    expect(ids).not.toContain(CHOSEN);
    expect(await submit([job(), large(), job()], again)).toEqual(ids);
    expect(await counts()).toMatchObject({ inQueue: 3 });
  });
});
