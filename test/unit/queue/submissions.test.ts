// How jobs come into the queue: the limit of the endpoint, idempotency, what a policy sets, and jobs in one commit.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Submission } from '../../../src/queue/admission.ts';
import type { BatchedJob, SubmissionBatch } from '../../../src/queue/submissions.ts';
import type { WebhookSender } from '../../../src/queue/webhooks/webhooks.ts';
import { StoreUnavailableError } from '../../../src/store/store.ts';
import { ProblemError } from '../../../src/wire/problem.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { ENDPOINT, Hand, Platform } from '../../support/queue-platform.ts';
import { USUAL_DEPLOYMENT } from '../../support/store/stored-jobs.ts';

describe('a submission', () => {
  let platform: Platform;

  beforeEach(async () => {
    platform = new Platform({
      endpoint: { maxQueued: 3, executionTimeoutMs: 5_000, maxAttempts: 2 },
    });
    await platform.start();
  });

  afterEach(() => platform.close());

  function submit(changed: Partial<Submission> = {}) {
    const input = Buffer.from('{}');
    const plain: Submission = {
      endpointId: ENDPOINT,
      mode: 'run',
      input,
      policy: {},
      idempotency: undefined,
    };
    return platform.queue.submissions.submit({ ...plain, ...changed });
  }

  const CHOSEN = '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76';

  describe('a submission with an ID of its caller', () => {
    it('makes one job, however often it is repeated', async () => {
      const newJob = { id: CHOSEN, isRepeated: false };
      expect(await submit({ newJob })).toEqual({ id: CHOSEN, status: 'IN_QUEUE' });
      const again = { newJob: { ...newJob, isRepeated: true } };
      expect(await submit(again)).toEqual({ id: CHOSEN, status: 'IN_QUEUE' });
      const worker = new Hand(() => platform.queue.link(ENDPOINT));
      await worker.hello();
      await worker.take();
      expect(await submit(again)).toEqual({ id: CHOSEN, status: 'IN_PROGRESS' });
      expect(await platform.queue.health(ENDPOINT)).toMatchObject({
        jobs: { inQueue: 0, inProgress: 1 },
      });
    });

    it('makes one job if the repetition overtakes the first submission', async () => {
      const repeated = { newJob: { id: CHOSEN, isRepeated: true } };
      const late = { newJob: { id: CHOSEN, isRepeated: false } };
      await Promise.all([submit(repeated), submit(late)]);
      expect(await submit(late)).toEqual({ id: CHOSEN, status: 'IN_QUEUE' });
      expect(await platform.queue.health(ENDPOINT)).toMatchObject({ jobs: { inQueue: 1 } });
    });
  });

  describe('a submission', () => {
    it('becomes a queued job with the settings of the endpoint and the defaults', async () => {
      const { id, status } = await submit();
      expect(status).toBe('IN_QUEUE');
      const now = platform.clock.now();
      expect(await platform.job(id)).toMatchObject({
        status: 'IN_QUEUE',
        priority: 0,
        delayed: false,
        submittedAt: now,
        expiresAt: now + 86_400_000,
        executionTimeoutMs: 5_000,
        maxAttempts: 2,
        attempt: 0,
      });
    });

    it('follows its policy, with its time to live from when it is due', async () => {
      const policy = { ttl: 10_000, executionTimeout: 1_000, priority: 7, delay: 2_000 };
      const { id } = await submit({ policy });
      const now = platform.clock.now();
      expect(await platform.job(id)).toMatchObject({
        priority: 7,
        delayed: true,
        availableAt: now + 2_000,
        expiresAt: now + 2_000 + 10_000,
        executionTimeoutMs: 1_000,
      });
    });

    it('passes its unchanged input to a waiting or later worker', async () => {
      const worker = { workerId: 'w1', incarnation: 1 };
      const link = platform.queue.link(ENDPOINT);
      await link.hello({ ...worker, protocol: 1, version: '1', slots: 9, devices: [], outbox: [] });
      const take = (takeId: string, held: string[] = []) =>
        link.take({ ...worker, takeId, max: 1, waitMs: 1_000, held }, new AbortController().signal);
      const waiting = take('1');
      const inputs = ['{"waited":"for"}', '{"found":"later"}'];
      for (const input of inputs) await submit({ input: Buffer.from(input) });
      const first = await waiting;
      const again = await take('1');
      const later = await take(
        '2',
        first.map(({ token }) => token),
      );
      const given = [...first, ...again, ...later].map(({ input }) =>
        Buffer.from(input).toString(),
      );
      // Asked for again, it comes from the store.
      expect(given).toEqual([inputs[0], inputs[0], inputs[1]]);
    });

    it('passes its trace to the worker', async () => {
      const worker = new Hand(() => platform.queue.link(ENDPOINT));
      await worker.hello();
      const trace = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' };
      await submit({ trace: { ...trace, tracestate: 'vendor=state' } });
      await submit({ trace });
      await submit();
      const leases = await worker.take({ max: 3 });
      expect(leases.map(({ traceparent, tracestate }) => [traceparent, tracestate])).toEqual([
        [trace.traceparent, 'vendor=state'],
        [trace.traceparent, undefined],
        [undefined, undefined],
      ]);
    });

    it('gets a UUIDv7, with a prefix for runsync', async () => {
      const uuid = '[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}';
      expect((await submit()).id).toMatch(new RegExp(`^${uuid}$`));
      expect((await submit({ mode: 'runsync' })).id).toMatch(new RegExp(`^sync-${uuid}$`));
    });

    it('is refused to an unknown endpoint', async () => {
      await expect(submit({ endpointId: 'nowhere' })).rejects.toMatchObject({ code: 'not_found' });
    });

    it('is refused to an endpoint without a queue, and the error names the path to call', async () => {
      const settings = endpointSettings.parse({});
      const deployment = {
        ...USUAL_DEPLOYMENT,
        ...{ name: 'web', type: 'LOAD_BALANCER' as const, templateId: 'tpl_1' },
        scaler: { type: 'REQUEST_COUNT' as const, perWorker: 4 },
      };
      const balanced = { id: 'ep_web', settings, deployment, createdAt: 1 };
      await platform.store.write((tx) => tx.putEndpoint(balanced));
      const refused = submit({ endpointId: 'ep_web' });
      await expect(refused).rejects.toMatchObject({
        code: 'conflict',
        message: expect.stringContaining('/lb'),
      });
    });

    it('is refused while the queue is full, delayed jobs included, and accepted again afterwards', async () => {
      const jobs = [await submit(), await submit({ policy: { delay: 9_000 } }), await submit()];
      const refusal = await submit().catch((error: unknown) => error);
      expect(refusal).toMatchObject({ code: 'queue_full', status: 429 });
      expect(refusal).toHaveProperty('retryAfterMs', 5_000);
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: jobs[0]?.id ?? '' });
      await submit();
    });

    it('is counted exactly when many share one commit', async () => {
      const results = await Promise.allSettled(Array.from({ length: 10 }, () => submit()));
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
      expect((await platform.health()).jobs.inQueue).toBe(3);
    });
  });

  describe('an idempotency key', () => {
    const idempotency = { key: 'k', requestHash: 'h' };

    it('leaves the job in the trace of the first request', async () => {
      const trace = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' };
      const later = { traceparent: trace.traceparent.replace('4bf9', 'aaaa'), tracestate: 'a=b' };
      const { id } = await submit({ idempotency, trace });
      expect(await submit({ idempotency, trace: later })).toMatchObject({ id });
      expect(await platform.job(id)).toMatchObject({ ...trace, tracestate: null });
    });

    it('returns the first job in its current state for the same body', async () => {
      const first = await submit({ idempotency });
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: first.id });
      expect(await submit({ idempotency })).toEqual({ id: first.id, status: 'CANCELLED' });
      expect((await platform.health()).jobs.inQueue).toBe(0);
    });

    it('returns one job to all requests in the same commit', async () => {
      const jobs = await Promise.all([submit({ idempotency }), submit({ idempotency })]);
      expect(jobs[0]?.id).toBe(jobs[1]?.id);
    });

    it('is a conflict with another body that names the first job', async () => {
      const { id } = await submit({ idempotency });
      const again = submit({ idempotency: { key: 'k', requestHash: 'other' } });
      await expect(again).rejects.toMatchObject({
        code: 'conflict',
        message: expect.stringContaining(id),
      });
    });

    it('returns the first job even if the queue is now full', async () => {
      const { id } = await submit({ idempotency });
      await submit();
      await submit();
      expect((await submit({ idempotency })).id).toBe(id);
    });

    it('can be used again when the first job is removed', async () => {
      const { id } = await submit({ idempotency, policy: { ttl: 10_000 } });
      await platform.clock.advance(10_000);
      expect((await submit({ idempotency })).id).not.toBe(id);
    });
  });
});

describe('a batch of submissions', () => {
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

    it('are one job with one idempotency key, also in the last place of the queue', async () => {
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
});
