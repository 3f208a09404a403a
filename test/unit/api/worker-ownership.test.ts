// Which pod a worker belongs to: the pod of the key that the worker presents, on every carrier.
import { expect, it, onTestFinished } from 'vitest';
import { createGrpcServer } from '../../../src/api/grpc/server.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { METADATA } from '../../../src/wire/link/worker-stream.ts';
import { ENDPOINT, type Platform, startPlatform } from '../../support/api/platform.ts';
import { RawStream } from '../../support/network/raw-stream.ts';

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

it.each(Object.entries(CARRIERS))(
  '%s: a worker with the key of a pod belongs to that pod',
  async (_, say) => {
    const platform = await startPlatform();
    const grant = { name: 'any name', scopes: [`worker:${ENDPOINT}`], podId: POD };
    const { key } = await platform.keys.issue(grant);
    await say(platform, key, 'any-id');
    expect(await listWorkers(platform)).toEqual([['any-id', POD]]);
  },
);

it.each(Object.entries(CARRIERS))(
  '%s: a worker with another key belongs to no pod, even with the ID of a pod',
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
