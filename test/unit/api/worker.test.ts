// The worker's calls over HTTP, and the pod that a worker belongs to.
import { once } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createGrpcServer } from '../../../src/api/grpc/server.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { decodeFrames, encodeFrames, FRAMES_MEDIA_TYPE } from '../../../src/wire/link/http-form.ts';
import { leaseHeaders } from '../../../src/wire/link/worker-link.ts';
import { METADATA } from '../../../src/wire/link/worker-stream.ts';
import {
  ENDPOINT,
  nextTake,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
} from '../../support/api/platform.ts';
import { RawStream } from '../../support/network/raw-stream.ts';

const WORKER = { workerId: 'w9', incarnation: 3 };
const HELLO = { ...WORKER, protocol: 1, version: '1', slots: 4, devices: [], outbox: [] };
const take = (takeId: string, rest = {}) => ({
  ...{ ...WORKER, takeId, max: 10, waitMs: 0, held: [] },
  ...rest,
});

const asWorker = (platform: Platform) => ({
  headers: { authorization: `Bearer ${platform.worker}` },
});

const verb = (platform: Platform, name: string, body: unknown, init: RequestInit = {}) =>
  platform.post(`/v2/demo/worker/${name}`, body, { ...asWorker(platform), ...init });

const report = (platform: Platform, message: Uint8Array, headers: Record<string, string> = {}) =>
  platform.call('/v2/demo/worker/report', {
    method: 'POST',
    body: Buffer.from(message),
    headers: {
      'content-type': FRAMES_MEDIA_TYPE,
      'millrace-worker': WORKER.workerId,
      'millrace-incarnation': '3',
      ...asWorker(platform).headers,
      ...headers,
    },
  });

const frames = (...list: { header: object; body: string }[]) =>
  Buffer.concat(
    encodeFrames(list.map(({ header, body }) => ({ header, body: Buffer.from(body) }))),
  );

async function takeLeases(platform: Platform, request: object) {
  const response = await verb(platform, 'take', request);
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe(FRAMES_MEDIA_TYPE);
  const frames = decodeFrames(Buffer.from(await response.arrayBuffer()));
  const leases = leaseHeaders.read(frames.map(({ header }) => header));
  return leases.map((lease, index) => ({ ...lease, input: `${frames[index]?.body}` }));
}

describe('a worker over HTTP', () => {
  it('says hello, takes a job, reports its outcome and leaves', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform, { input: { n: 1 } });
    const welcome = await verb(platform, 'hello', HELLO);
    expect(await readJson(welcome)).toMatchObject({ protocol: 1, leaseMs: 15_000 });
    const [lease] = await takeLeases(platform, take('t1'));
    expect(lease).toMatchObject({ jobId: id, attempt: 1, solo: false, input: '{"n":1}' });
    const header = { jobId: id, attempt: 1, token: lease?.token, seq: 1, kind: 'outcome' };
    const outcome = { kind: 'completed', executionMs: 7, output: 'value' };
    const message = frames({ header: { ...header, outcome }, body: '{"done":true}' });
    expect(await (await report(platform, message)).json()).toEqual([{ answer: 'applied' }]);
    expect(await (await report(platform, message)).json()).toEqual([{ answer: 'duplicate' }]);
    const record = await readJson(await platform.call(`/v2/demo/status/${id}`));
    expect(record).toMatchObject({ status: 'COMPLETED', output: { done: true } });
    const bye = await verb(platform, 'bye', { ...WORKER, reason: 'drained', outbox: [] });
    expect(bye.status).toBe(204);
  });

  it('gets 204 when there is no job', async () => {
    const platform = await startPlatform();
    await verb(platform, 'hello', HELLO);
    expect((await verb(platform, 'take', take('t'))).status).toBe(204);
  });

  it('gets inputs of many megabytes unchanged', async () => {
    const platform = await startPlatform();
    const text = 'ü'.repeat(4_000_000);
    for (let i = 0; i < 2; i++) await submitJob(platform, { input: { i, text } });
    await verb(platform, 'hello', HELLO);
    const leases = await takeLeases(platform, take('t'));
    expect(leases.map(({ input }) => JSON.parse(input).i)).toEqual([0]);
    expect(leases.every(({ input }) => JSON.parse(input).text === text)).toBe(true);
  });

  it('gets the same leases for a repeated takeId after a lost answer', async () => {
    const platform = await startPlatform();
    await submitJob(platform);
    await verb(platform, 'hello', HELLO);
    const once = await takeLeases(platform, take('t'));
    expect(await takeLeases(platform, take('t'))).toEqual(once);
  });

  it('learns of a cancel from its open renewal', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    await verb(platform, 'hello', HELLO);
    const [lease] = await takeLeases(platform, take('t'));
    const leases = [{ jobId: id, token: lease?.token, stopping: false }];
    const renewed = verb(platform, 'renew', { ...WORKER, waitMs: 60_000, leases });
    await platform.call(`/v2/demo/cancel/${id}`, { method: 'POST' });
    expect(await readJson(await renewed)).toEqual({
      drain: false,
      ended: [{ jobId: id, token: lease?.token, verdict: 'cancelled' }],
    });
  });

  it('leaves the job to the next if its take was aborted', async () => {
    const platform = await startPlatform();
    const reached = nextTake(platform);
    await verb(platform, 'hello', HELLO);
    const gone = new AbortController();
    const broken = verb(platform, 'take', take('t1', { waitMs: 20_000 }), { signal: gone.signal });
    const signal = await reached;
    gone.abort();
    await expect(broken).rejects.toThrow();
    if (!signal.aborted) await once(signal, 'abort');
    await platform.link.hello({ ...HELLO, workerId: 'w2' });
    const request = { ...take('t2', { waitMs: 4_000 }), workerId: 'w2' };
    const taken = platform.link.take(request, new AbortController().signal);
    const id = await submitJob(platform);
    expect(await taken).toMatchObject([{ jobId: id }]);
  });

  it('gets 409 with its code if the platform does not know it', async () => {
    const platform = await startPlatform();
    const response = await verb(platform, 'take', take('t'));
    expect(response.status).toBe(409);
    expect(await readJson(response)).toMatchObject({ code: 'unknown_worker' });
  });

  it('gets 409 with its code if its incarnation is old', async () => {
    const platform = await startPlatform();
    await verb(platform, 'hello', HELLO);
    const response = await verb(platform, 'take', { ...take('t'), incarnation: 2 });
    expect(await readJson(response)).toMatchObject({ status: 409, code: 'stale_incarnation' });
  });

  it('gets 404 for an unknown endpoint', async () => {
    const platform = await startPlatform();
    const response = await platform.post('/v2/none/worker/hello', HELLO, asWorker(platform));
    expect(response.status).toBe(404);
  });

  it('gets 403 with a key of another endpoint', async () => {
    const platform = await startPlatform();
    const { key } = await platform.keys.issue({ name: 'x', scopes: ['worker:other'] });
    const response = await verb(platform, 'hello', HELLO, { headers: { authorization: key } });
    expect(response.status).toBe(403);
  });

  it('gets 422 if it speaks another protocol', async () => {
    const platform = await startPlatform();
    const response = await verb(platform, 'hello', { ...HELLO, protocol: 99 });
    expect(await readJson(response)).toMatchObject({ status: 422, code: 'invalid' });
  });
});

describe('a report', () => {
  const header = { jobId: 'j', attempt: 1, token: 't', seq: 1, kind: 'progress' };

  it('is answered with gone if the job is removed', async () => {
    const platform = await startPlatform();
    await verb(platform, 'hello', HELLO);
    const response = await report(platform, frames({ header, body: '1' }));
    expect(await response.json()).toEqual([{ answer: 'gone' }]);
  });

  it('is named by its position if it is invalid', async () => {
    const platform = await startPlatform();
    await verb(platform, 'hello', HELLO);
    const wrong = { ...header, seq: 0 };
    const response = await report(
      platform,
      frames({ header, body: '1' }, { header: wrong, body: '' }),
    );
    expect(response.status).toBe(422);
    expect((await readJson(response))['errors']).toEqual([
      expect.stringMatching(/^reports\[1\]\.seq: /),
    ]);
  });

  it('is malformed if it is truncated', async () => {
    const platform = await startPlatform();
    const response = await report(platform, frames({ header, body: 'whole' }).subarray(0, -2));
    expect(await readJson(response)).toMatchObject({ status: 400, code: 'malformed' });
  });

  it.each([
    ['no worker', { 'millrace-worker': '' }],
    ['an invalid worker ID', { 'millrace-worker': '../x' }],
    ['an invalid incarnation', { 'millrace-incarnation': 'x' }],
  ])('gets 422 with %s in its headers', async (_name, headers) => {
    const platform = await startPlatform();
    expect((await report(platform, frames({ header, body: '1' }), headers)).status).toBe(422);
  });

  it('gets 415 if it is JSON', async () => {
    const platform = await startPlatform();
    expect((await verb(platform, 'report', [])).status).toBe(415);
  });
});

describe('the pod of a worker', () => {
  const POD = 'pod_0192d3a0-0000-7000-8000-000000000012';
  const HELLO = { incarnation: 1, protocol: 1, version: '1', slots: 1, devices: [], outbox: [] };

  type SayHello = (platform: Platform, key: string, workerId: string) => Promise<unknown>;

  const CARRIERS: Record<string, SayHello> = {
    http: (platform, key, workerId) => {
      const headers = { authorization: `Bearer ${key}` };
      return platform.post(`/v2/${ENDPOINT}/worker/hello`, { ...HELLO, workerId }, { headers });
    },

    async grpc({ endpoints, keys, workers }, key, workerId) {
      const server = createGrpcServer({
        ...{ ...workers, keys, endpoints, clock: systemClock, log: silentLog },
        ...{ host: '127.0.0.1', port: 0, isClosing: () => false },
      });
      const { url } = await server.start();
      const metadata = { authorization: `Bearer ${key}`, [METADATA.endpoint]: ENDPOINT };
      const stream = new RawStream(url, metadata);
      onTestFinished(async () => {
        stream.close();
        await server.close();
      });
      return stream.ask({ call: 1, hello: { ...HELLO, workerId } });
    },

    runpod: (platform, key, workerId) => {
      const headers = { authorization: `Bearer ${key}` };
      return platform.call(`/runpod/v2/${ENDPOINT}/ping/${workerId}`, { headers });
    },
  };

  const listWorkers = async ({ queue }: Platform) =>
    (await queue.workerLoads.load(ENDPOINT)).workers.map(({ id, podId }) => [id, podId]);

  it.each(Object.entries(CARRIERS))('is that of its key: %s', async (_, say) => {
    const platform = await startPlatform();
    const grant = { name: 'any name', scopes: [`worker:${ENDPOINT}`], podId: POD };
    const { key } = await platform.keys.issue(grant);
    await say(platform, key, 'any-id');
    expect(await listWorkers(platform)).toEqual([['any-id', POD]]);
  });

  it.each(Object.entries(CARRIERS))(
    'is none with another key, even with the ID of a pod: %s',
    async (_, say) => {
      const platform = await startPlatform();
      const { key } = await platform.keys.issue({ name: `pod ${POD}`, scopes: ['worker'] });
      for (const id of [POD, `${POD}-0`]) await say(platform, key, id);
      expect(await listWorkers(platform)).toEqual([
        [POD, null],
        [`${POD}-0`, null],
      ]);
      expect(platform.queue.workerLoads.ofPod(ENDPOINT, POD)).toEqual([]);
    },
  );

  it('runpod: the worker of a pod takes over its ID from a worker with another key', async () => {
    const platform = await startPlatform();
    const scopes = [`worker:${ENDPOINT}`];
    const { key } = await platform.keys.issue({ name: 'pod', scopes, podId: POD });
    await CARRIERS['runpod']?.(platform, platform.worker, 'w');
    await CARRIERS['runpod']?.(platform, key, 'w');
    await CARRIERS['runpod']?.(platform, platform.worker, 'w');
    expect(await listWorkers(platform)).toEqual([['w', POD]]);
  });
});
