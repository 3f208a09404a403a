// A platform for tests with one load-balancing endpoint, whose workers are HTTP servers of the test.
import { once } from 'node:events';
import {
  type ClientRequest,
  type IncomingMessage,
  type RequestListener,
  type RequestOptions,
  request,
} from 'node:http';
import type { BalancerOptions } from '../../../src/control/balancing/balancer.ts';
import { type StandingWorker, startWorker, TargetList } from '../workers/worker-stand.ts';
import { type Platform, type PlatformSettings, readJson, startPlatform } from './platform.ts';

export interface BalancedPlatform extends Platform {
  endpointId: string;
  /** `/lb/<endpoint>` */
  base: string;
  targets: TargetList;
  /** Another worker of the endpoint, which the balancer knows of. */
  addWorker: (listener: RequestListener, podId?: string) => Promise<StandingWorker>;
  /** To the endpoint with the admin key, not ended; the path is sent as it is. */
  open: (path: string, options?: RequestOptions) => ClientRequest;
  /** Resolves when there are so many requests, those that wait included. */
  untilWaiting: (requests: number) => Promise<void>;
  untilReady: (workers: number) => Promise<void>;
}

export interface BalancedSettings extends Omit<PlatformSettings, 'balancing'> {
  balancing?: Omit<BalancerOptions, 'targets' | 'endpoints' | 'clock'>;
  endpoint?: object;
}

export async function startBalanced({
  balancing = {},
  endpoint = {},
  ...settings
}: BalancedSettings = {}): Promise<BalancedPlatform> {
  const targets = new TargetList();
  const platform = await startPlatform({
    engine: 'process',
    balancing: { ...balancing, targets },
    ...settings,
  });
  const { balancer, post } = platform;
  if (!balancer) throw new Error('the platform has no balancer');
  const template = { name: 'web', image: 'web', args: 'web', ports: ['8000/http'] };
  const { id: templateId } = await readJson(await post('/v1/templates', template));
  const creation = { name: 'web', type: 'LOAD_BALANCER', templateId, ...endpoint };
  const endpointId = String((await readJson(await post('/v1/endpoints', creation)))['id']);
  const base = `/lb/${endpointId}`;
  return {
    ...{ ...platform, endpointId, base, targets },
    async addWorker(listener, podId = 'pod_a') {
      const worker = await startWorker({ endpointId, podId, listener });
      targets.put(worker.target);
      return worker;
    },
    open: (path, options = {}) =>
      request({
        ...{ host: '127.0.0.1', port: platform.port, path: base + path, agent: false },
        ...options,
        headers: { authorization: `Bearer ${platform.admin}`, ...options.headers },
      }),
    async untilWaiting(requests) {
      while ((await balancer.load(endpointId)).running < requests) await nextTurn();
    },
    async untilReady(workers) {
      while ((await balancer.load(endpointId)).workers.length < workers) await nextTurn();
    },
  };
}

export async function readAnswer(sent: ClientRequest): Promise<IncomingMessage> {
  const [answer] = await once(sent, 'response');
  return answer;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
