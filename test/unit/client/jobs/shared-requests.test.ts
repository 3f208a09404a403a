// Submissions that share requests, against a real platform over HTTP.
import { describe, expect, it } from 'vitest';
import { createClient } from '../../../../src/client.ts';
import { ENDPOINT, startPlatform } from '../../../support/api/platform.ts';

async function start() {
  const platform = await startPlatform();
  let requests = 0;
  const client = createClient({
    ...{ url: platform.url, key: platform.admin, endpoint: ENDPOINT },
    fetch: (...call) => {
      requests++;
      return fetch(...call);
    },
  });
  return { platform, client, requests: () => requests };
}

const inputs = (count: number) => Array.from({ length: count }, (_, n) => ({ n }));

describe('submissions that share requests', () => {
  it('queue each job with its own input, once', async () => {
    const { client, platform, requests } = await start();
    const jobs = await Promise.all(inputs(250).map((input) => client.run(input)));
    expect(requests()).toBe(3);
    for (const n of [0, 99, 100, 249]) {
      const { input, status } = await client.details(jobs[n]?.id ?? '');
      expect([input, status]).toEqual([{ n }, 'IN_QUEUE']);
    }
    expect((await platform.queue.health(ENDPOINT)).jobs.inQueue).toBe(250);
  });

  it('return the first job for its idempotency key, and refuse another input with that key', async () => {
    const { client } = await start();
    const named = { idempotencyKey: 'order-7' };
    const [first, second, other] = await Promise.allSettled([
      client.run({ n: 1 }, named),
      client.run({ n: 1 }, named),
      client.run({ n: 2 }, named),
    ]);
    expect(first).toMatchObject({ value: { id: expect.any(String) } });
    expect(second).toEqual(first);
    expect(other).toMatchObject({ reason: { status: 409, problem: { code: 'conflict' } } });
  });

  it('refuse an invalid job with the answer that it has alone, and queue the others', async () => {
    const { client } = await start();
    const invalid = { policy: { priority: 99 } };
    const alone = await client.run({ n: 0 }, invalid).catch((error: unknown) => error);
    const [valid, refused] = await Promise.allSettled([
      client.run({ n: 1 }),
      client.run({ n: 2 }, invalid),
    ]);
    expect(valid.status).toBe('fulfilled');
    expect(alone).toMatchObject({ status: 422 });
    expect(refused).toEqual({ status: 'rejected', reason: alone });
  });

  it('refuse all jobs of an endpoint that does not exist', async () => {
    const { platform } = await start();
    const client = createClient({ url: platform.url, key: platform.admin, endpoint: 'none' });
    const settled = await Promise.allSettled(inputs(3).map((input) => client.run(input)));
    for (const each of settled) expect(each).toMatchObject({ reason: { status: 404 } });
  });

  it('go through runMany in any number', async () => {
    const { client, platform, requests } = await start();
    const results = await client.runMany(inputs(1_000).map((input) => ({ input })));
    expect(requests()).toBe(10);
    const last = results.at(-1);
    const id = last?.status === 'fulfilled' ? last.value.id : '';
    expect((await client.details(id)).input).toEqual({ n: 999 });
    expect((await platform.queue.health(ENDPOINT)).jobs.inQueue).toBe(1_000);
  });
});
