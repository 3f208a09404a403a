// Jobs that run out of GPU memory, at an endpoint that retries them on its next GPU type: a real queue.
import { afterEach, describe, expect, it } from 'vitest';
import type { JobPolicy } from '../../../src/wire/job/job.ts';
import type { Device, Lease, Outcome } from '../../../src/wire/link/worker-link.ts';
import { type EndpointDeployment, endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { completed, ENDPOINT, Hand, NEVER, Platform } from '../../support/queue-platform.ts';
import { USUAL_DEPLOYMENT } from '../../support/store/stored-jobs.ts';

let platform: Platform;
afterEach(() => platform.close());

const [L4, L40S, H200] = ['l4', 'l40s', 'h200'] as const;
const OUT_OF_MEMORY: Outcome = {
  ...{ kind: 'failed', executionMs: 1, retry: 'default' },
  error: { code: 'gpu_out_of_memory', message: 'CUDA out of memory' },
};

async function deploy(changes: Partial<EndpointDeployment>, maxAttempts = 5): Promise<void> {
  const deployment: EndpointDeployment = {
    ...USUAL_DEPLOYMENT,
    ...{ name: 'e', templateId: 't', gpuTypeIds: [L4, L40S, H200] },
    scaler: { type: 'QUEUE_DELAY', seconds: 4 },
    retryOutOfMemoryOn: 'NEXT_GPU_TYPE',
    ...changes,
  };
  const settings = endpointSettings.parse({ maxAttempts });
  const endpoint = { id: ENDPOINT, settings, deployment, createdAt: 1 };
  await platform.store.write((tx) => tx.putEndpoint(endpoint));
}

async function open(changes: Partial<EndpointDeployment> = {}, maxAttempts = 5): Promise<void> {
  platform = new Platform();
  await platform.start();
  await deploy(changes, maxAttempts);
}

/** A worker with a GPU of this type; null: of a type that it does not know. */
async function openHand(gpuTypeId: string | null, id = `w-${gpuTypeId}`): Promise<Hand> {
  const hand = new Hand(() => platform.queue.link(ENDPOINT), { id, slots: 1 });
  const gpu: Device = { kind: 'gpu', index: 0, uuid: 'GPU-1', name: 'GPU', memoryBytes: 1 };
  const devices = [{ ...gpu, ...(gpuTypeId !== null && { gpuTypeId }) }];
  await hand.hello([], undefined, { devices });
  return hand;
}

/** Submits a job that runs out of memory on the hand's GPU. */
async function outgrow(hand: Hand, policy: JobPolicy = {}): Promise<string> {
  const id = await platform.submit(policy);
  await hand.finish(await hand.takeOne(), OUT_OF_MEMORY);
  return id;
}

const idsOf = (leases: Lease[]) => leases.map(({ jobId }) => jobId);

describe('a job that ran out of memory on a GPU type', () => {
  it('is leased only to workers of a later type, at once', async () => {
    await open();
    const small = await openHand(L4);
    const id = await outgrow(small);
    expect(await platform.job(id)).toMatchObject({
      ...{ status: 'IN_QUEUE', failures: 1, delayed: false },
      history: [{ code: 'gpu_out_of_memory', outgrownGpuType: L4 }],
    });
    const others = [await openHand(L4, 'other'), await openHand('t4'), await openHand(null)];
    for (const hand of [small, ...others]) expect(await hand.take()).toEqual([]);
    const medium = await openHand(L40S);
    expect(idsOf(await medium.take())).toEqual([id]);
  });

  it('moves on type by type, and stays on the last one until its attempts are used up', async () => {
    await open({}, 4);
    const id = await outgrow(await openHand(L4));
    const medium = await openHand(L40S);
    await medium.finish(await medium.takeOne(), OUT_OF_MEMORY);
    expect(await medium.take()).toEqual([]);
    const large = await openHand(H200);
    await large.finish(await large.takeOne(), OUT_OF_MEMORY);
    expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', delayed: true });
    await platform.clock.advance(60_000);
    for (const hand of [await openHand(L4, 'again'), await openHand(L40S, 'as well')]) {
      expect(await hand.take()).toEqual([]);
    }
    const again = await openHand(H200, 'large again');
    await again.finish(await again.takeOne(), OUT_OF_MEMORY);
    const { error, status } = await platform.record(id);
    expect(status).toBe('FAILED');
    const types = error?.attempts.map(({ outgrownGpuType }) => outgrownGpuType);
    expect(types).toEqual([L4, L40S, undefined, undefined]);
  });

  it('counts the attempt: with one, the job fails', async () => {
    await open({}, 1);
    const id = await outgrow(await openHand(L4));
    expect((await platform.record(id)).status).toBe('FAILED');
  });

  it('does not hold up other jobs, and keeps its place among them', async () => {
    await open();
    const small = await openHand(L4);
    const outgrown = [await outgrow(small), await outgrow(small), await outgrow(small)];
    const plain = [await platform.submit(), await platform.submit({ priority: 5 })];
    expect(idsOf(await small.take())).toEqual([plain[1]]);
    const large = await openHand(H200);
    expect(idsOf(await large.take())).toEqual([outgrown[0]]);
    const [other, third] = [await openHand(H200, 'other'), await openHand(H200, 'third')];
    expect(idsOf(await other.take())).toEqual([outgrown[1]]);
    expect(idsOf(await third.take())).toEqual([outgrown[2]]);
    const last = await openHand(L40S);
    expect(idsOf(await last.take())).toEqual([plain[0]]);
  });

  it('wakes a waiting worker of a later type behind waiting workers of earlier ones', async () => {
    await open();
    const small = await openHand(L4);
    await platform.submit();
    const lease = await small.takeOne();
    const waiting = [await openHand(L4, 'a'), await openHand(null, 'b'), await openHand(H200, 'c')];
    const takes = [];
    for (const hand of waiting) {
      takes.push(await platform.park('take', () => hand.take({ waitMs: 20_000, signal: NEVER })));
    }
    await small.finish(lease, OUT_OF_MEMORY);
    await platform.clock.advance(0);
    expect(takes.map(({ hasEnded }) => hasEnded)).toEqual([false, false, true]);
    expect(idsOf((await takes[2]?.answer) ?? [])).toEqual([lease.jobId]);
  });

  it('waits for a later type after a restart and a release', async () => {
    await open();
    const id = await outgrow(await openHand(L4));
    await platform.restart();
    expect(await (await openHand(L4)).take()).toEqual([]);
    const large = await openHand(H200);
    await large.finish(await large.takeOne(), { kind: 'released', reason: 'drain' });
    expect(await (await openHand(L4, 'again')).take()).toEqual([]);
    expect(idsOf(await large.take())).toEqual([id]);
  });

  it('may run anywhere once the endpoint has no later type, or no longer asks for one', async () => {
    await open();
    const small = await openHand(L4);
    const first = await outgrow(small);
    await deploy({ gpuTypeIds: [H200, L4] });
    expect(idsOf(await small.take())).toEqual([first]);
    await deploy({});
    const second = await outgrow(await openHand(L4, 'b'));
    await deploy({ retryOutOfMemoryOn: 'ANY_GPU_TYPE' });
    expect(idsOf(await (await openHand(L4, 'c')).take())).toEqual([second]);
  });

  it('runs anywhere after a retry by its client', async () => {
    await open({}, 1);
    const small = await openHand(L4);
    const id = await outgrow(small);
    await platform.queue.jobs.retry({ endpointId: ENDPOINT, id });
    expect(idsOf(await small.take())).toEqual([id]);
  });

  it('is retried as before without the option, or if the type of the worker is unknown', async () => {
    await open({ gpuTypeIds: [L4] });
    const small = await openHand(L4);
    const id = await outgrow(small);
    await platform.clock.advance(60_000);
    const again = await openHand(L4, 'again');
    const lease = await again.takeOne();
    expect(lease.jobId).toBe(id);
    await again.finish(lease, completed);
    await deploy({});
    const unknown = await openHand(null);
    const other = await outgrow(unknown);
    await platform.clock.advance(60_000);
    expect(idsOf(await (await openHand(null, 'again2')).take())).toEqual([other]);
  });

  it('is told to the scaler with its type', async () => {
    await open();
    const small = await openHand(L4);
    await outgrow(small);
    const since = platform.clock.now();
    await platform.submit();
    const load = await platform.queue.workerLoads.load(ENDPOINT);
    expect(load).toMatchObject({
      ...{ waiting: 2, running: 0, oldestQueuedAt: since },
      outgrown: [{ gpuType: L4, waiting: 1, oldestQueuedAt: since }],
    });
  });
});
