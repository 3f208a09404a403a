// What the workers of one key may use, on each carrier.
import { describe, expect, it, onTestFinished } from 'vitest';
import { createGrpcServer } from '../../../../src/api/grpc/server.ts';
import {
  DEFAULT_WORKER_LIMITS,
  WorkerAllowance,
  type WorkerLimits,
} from '../../../../src/api/worker/worker-allowance.ts';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { METADATA } from '../../../../src/wire/link/worker-stream.ts';
import { ENDPOINT, readJson, startPlatform } from '../../../support/api/platform.ts';
import { RawStream } from '../../../support/network/raw-stream.ts';

const HELLO = { incarnation: 1, protocol: 1, version: '1', slots: 4, devices: [], outbox: [] };
const RENEW = { incarnation: 1, waitMs: 0, leases: [] };

async function start(limits: Partial<WorkerLimits>) {
  const present = new Set<string>();
  const allowance = new WorkerAllowance({
    limits: { ...DEFAULT_WORKER_LIMITS, ...limits },
    isPresent: (_endpoint, id) => present.has(id),
  });
  const platform = await startPlatform({ server: { workerAllowance: allowance } });
  const { admin, endpoints, keys, queue, worker } = platform;
  const headers = { authorization: `Bearer ${worker}` };
  const verb = (name: string, body: object) =>
    platform.post(`/v2/${ENDPOINT}/worker/${name}`, body, { headers });
  const hello = async (workerId: string) => {
    const answer = await verb('hello', { ...HELLO, workerId });
    if (answer.ok) present.add(workerId);
    return answer;
  };
  const openStream = async () => {
    const server = createGrpcServer({
      ...{ keys, endpoints, allowance, clock: systemClock, log: silentLog },
      ...{ host: '127.0.0.1', port: 0, noteCrash: () => {}, isClosing: () => false },
      linkTo: (id) => queue.link(id),
    });
    const { url } = await server.start();
    const metadata = { authorization: `Bearer ${worker}`, [METADATA.endpoint]: ENDPOINT };
    const stream = new RawStream(url, metadata);
    onTestFinished(async () => {
      stream.close();
      await server.close();
    });
    return stream;
  };
  return { platform, present, verb, hello, headers, openStream, admin };
}

describe('the calls of one worker key', () => {
  it('are refused beyond their limit until the window ends, on all carriers', async () => {
    const { hello, openStream, platform, verb } = await start({ calls: 3 });
    expect((await hello('a')).status).toBe(200);
    const renew = () => verb('renew', { ...RENEW, workerId: 'a' });
    expect([(await renew()).status, (await renew()).status]).toEqual([200, 200]);
    const refused = await renew();
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeLessThanOrEqual(10);
    expect(await readJson(refused)).toMatchObject({ code: 'rate_limited' });
    const stream = await openStream();
    const answer = await stream.ask({ call: 1, renew: { ...RENEW, workerId: 'a' } });
    expect(answer).toMatchObject({
      refusal: { code: 'unavailable', retryAfterMs: expect.any(Number) },
    });
    expect(Object(answer['refusal']).retryAfterMs).toBeGreaterThan(0);
    // The calls of clients are not among them.
    expect((await platform.call(`/v2/${ENDPOINT}/health`)).status).toBe(200);
  });
});

describe('the live workers of one key', () => {
  it('are counted once each and refused beyond their limit', async () => {
    const { hello } = await start({ ids: 2 });
    for (const id of ['a', 'b', 'a', 'b']) expect((await hello(id)).status).toBe(200);
    const refused = await hello('c');
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('10');
    expect(await readJson(refused)).toMatchObject({ code: 'rate_limited' });
  });

  it('count no more once they have left', async () => {
    const { hello, present } = await start({ ids: 2 });
    for (const id of ['a', 'b']) await hello(id);
    present.delete('a');
    expect((await hello('c')).status).toBe(200);
    expect((await hello('a')).status).toBe(429);
  });

  it('count while their hello is under way, although the queue does not know them yet', async () => {
    const limits = { ...DEFAULT_WORKER_LIMITS, ids: 1 };
    const allowance = new WorkerAllowance({ limits, isPresent: () => false });
    const caller = { keyId: 'key', userId: 'user' };
    const hello = Promise.withResolvers<void>();
    const name = (workerId: string) => ({ endpointId: ENDPOINT, workerId });
    const first = allowance.admit(caller, name('a'), () => hello.promise);
    const again = allowance.admit(caller, name('a'), async () => {});
    await again;
    const refused = allowance.admit(caller, name('b'), async () => {});
    await expect(refused).rejects.toMatchObject({ code: 'rate_limited' });
    hello.reject(new Error('the store is full'));
    await expect(first).rejects.toThrow('the store is full');
    await allowance.admit(caller, name('b'), async () => {});
  });

  it('are forgotten with their user when they have left and another user arrives', () => {
    const asked: string[] = [];
    const isPresent = (_endpoint: string, id: string) => {
      asked.push(id);
      return id === 'present';
    };
    const allowance = new WorkerAllowance({ limits: DEFAULT_WORKER_LIMITS, isPresent });
    allowance.countId(
      { keyId: 'key', userId: 'user 1' },
      { endpointId: ENDPOINT, workerId: 'absent' },
    );
    allowance.countId(
      { keyId: 'key', userId: 'user 2' },
      { endpointId: ENDPOINT, workerId: 'present' },
    );
    allowance.countId(
      { keyId: 'key', userId: 'user 3' },
      { endpointId: ENDPOINT, workerId: 'new' },
    );
    allowance.countId(
      { keyId: 'key', userId: 'user 4' },
      { endpointId: ENDPOINT, workerId: 'newer' },
    );
    expect(asked).toEqual(['absent', 'present', 'present', 'new']);
  });

  it('are bounded for all keys of a user together, also rotated ones', () => {
    const limits = { ...DEFAULT_WORKER_LIMITS, ids: 2, userids: 3 };
    const allowance = new WorkerAllowance({ limits, isPresent: () => true });
    const hello = (keyId: string, workerId: string, userId = 'mallory') =>
      allowance.countId({ keyId, userId }, { endpointId: ENDPOINT, workerId });
    const refusal = (bound: number) => {
      const message = expect.stringMatching(`\\b${bound}\\b`);
      return expect.objectContaining({ code: 'rate_limited', message });
    };
    for (const id of ['a', 'b']) hello('old', id);
    expect(() => hello('old', 'c')).toThrow(refusal(limits.ids));
    // A worker that goes on with the new key is none more.
    hello('rotated', 'a');
    hello('rotated', 'c');
    expect(() => hello('other', 'd')).toThrow(refusal(limits.userids));
    hello('hers', 'd', 'alice');
  });

  it('are counted over gRPC and RunPod’s protocol as well', async () => {
    const { headers, hello, openStream, platform } = await start({ ids: 1 });
    await hello('a');
    const stream = await openStream();
    const refused = await stream.ask({ call: 1, hello: { ...HELLO, workerId: 'b' } });
    expect(refused).toMatchObject({ refusal: { code: 'unavailable', retryAfterMs: 10_000 } });
    const ping = (id: string) => platform.call(`/runpod/v2/${ENDPOINT}/ping/${id}`, { headers });
    expect((await ping('b')).status).toBe(429);
  });
});
