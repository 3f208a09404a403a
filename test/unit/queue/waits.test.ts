// The reason why a job waits, in the record of a real queue, as its workers come and go.
import { afterEach, expect, it } from 'vitest';
import type { WaitReason } from '../../../src/wire/job/job-records.ts';
import {
  completed,
  ENDPOINT,
  failed,
  Hand,
  Platform,
  type PlatformOptions,
} from '../../support/queue-platform.ts';

/** More than the time for which workers are not counted again, ms. */
const RECOUNT_MS = 1_000;

let platform: Platform;
afterEach(() => platform.close());

async function open(options: PlatformOptions = {}): Promise<void> {
  platform = new Platform(options);
  await platform.start();
}

async function openHand(slots: number): Promise<Hand> {
  const hand = new Hand(() => platform.queue.link(ENDPOINT), { slots });
  await hand.hello();
  await platform.clock.advance(RECOUNT_MS);
  return hand;
}

async function why(id: string): Promise<Partial<WaitReason>> {
  await platform.clock.advance(RECOUNT_MS);
  const { waitReason = {} } = await platform.record(id);
  return waitReason;
}

it('changes with the workers of the endpoint', async () => {
  await open();
  const first = await platform.submit();
  expect(await why(first)).toMatchObject({ code: 'no_worker' });
  const hand = await openHand(1);
  expect(await why(first)).toMatchObject({ code: 'worker_ready' });
  await hand.takeOne();
  expect(await why(first)).toEqual({});
  const second = await platform.submit();
  expect(await why(second)).toMatchObject({ code: 'workers_busy' });
  await platform.clock.advance(60_000);
  expect(await why(second)).toMatchObject({ code: 'no_worker', since: expect.any(Number) });
});

it('names the delay, and then the failed attempt', async () => {
  await open();
  const hand = await openHand(1);
  const id = await platform.submit({ delay: 60_000 });
  expect(await why(id)).toMatchObject({ code: 'delayed', until: expect.any(Number) });
  await platform.clock.advance(60_000);
  const lease = await hand.takeOne();
  await hand.finish(lease, { ...failed, retry: 'after', retryAfterMs: 60_000 });
  const { code, message } = await why(id);
  expect(code).toBe('backing_off');
  expect(message).toContain('Attempt 1 failed with handler_error');
});

it('names the limit of its group', async () => {
  await open({ endpoint: { groupConcurrency: 1 } });
  const hand = await openHand(4);
  await platform.submit({ group: 'a' });
  const second = await platform.submit({ group: 'a' });
  const other = await platform.submit({ group: 'b' });
  const lease = await hand.takeOne();
  expect(await why(second)).toMatchObject({ code: 'group_at_limit' });
  expect(await why(other)).toMatchObject({ code: 'worker_ready' });
  await hand.finish(lease, completed);
  expect(await why(second)).toMatchObject({ code: 'worker_ready' });
});

it("names the scaler's reason, without a worker that could take the job", async () => {
  const crashes = { streak: 0, notBefore: 0, reason: null, isHandler: false };
  const none = {
    ...{ workersMax: 1, workers: 0, costPerHour: 0, since: 1 },
    ...{ crashes, starting: null, unversioned: null },
  };
  await open({ findScaling: async () => ({ ...none, cause: 'no_gpu', reason: 'no GPU is free' }) });
  const id = await platform.submit();
  const since = platform.clock.now();
  expect(await why(id)).toEqual({ code: 'no_gpu', message: 'No GPU is free.', since });
  await openHand(1);
  expect(await why(id)).toMatchObject({ code: 'worker_ready' });
});
