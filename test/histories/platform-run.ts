// Records a history of one platform on SQLite, whose process, workers and connections fail.
import { type Fault, TcpProxy, type Weather } from '../support/network/tcp-proxy.ts';
import { PlatformProcess } from '../support/processes.ts';
import { createRandom } from '../support/random.ts';
import type { History } from './history.ts';
import { type Recording, record } from './run.ts';
import { addUsers, OWN_ENDPOINTS, PLATFORM_ARGS, pause, startWorkers } from './stand.ts';
import { QUICK_STORIES } from './stories.ts';

export type Load = Pick<
  Recording,
  'seed' | 'clients' | 'loadMs' | 'settleMs' | 'stories' | 'calmMs' | 'limitKey'
> & { args?: readonly string[] };

/** The load of the short runs, but for its seed. */
export const QUICK_LOAD: Omit<Load, 'seed'> = {
  ...{ clients: 15, loadMs: 5_000, calmMs: 1_500, settleMs: 60_000, stories: QUICK_STORIES },
};
/**
 * Jobs of endpoints that share a limit, which holds most of them back. A worker that waits asks again after all jobs must have
 * ended: if nobody wakes it, they do not.
 */
export const LIMITED_LOAD: Omit<Load, 'seed'> = {
  ...{
    ...QUICK_LOAD,
    clients: 6,
    loadMs: 6_000,
    calmMs: 3_000,
    stories: ['flow', 'limited', 'paced'],
    settleMs: 45_000,
  },
  ...{ limitKey: null, args: ['--take-wait-ms', '60000'] },
};
/** Share of the exchanges of clients and workers that have a fault. */
const FAULT_SHARE = 0.04;
const LONGEST_PAUSE_MS = 3_000;

export async function recordPlatform(load: Load): Promise<History> {
  await using ends = new AsyncDisposableStack();
  const random = createRandom(load.seed + 1);
  const args = [...PLATFORM_ARGS, ...(load.args ?? [])];
  const platform = await PlatformProcess.start({ endpoints: OWN_ENDPOINTS, args });
  ends.defer(() => platform.close());
  const startProxy = async () => {
    const proxy = await TcpProxy.start(platform.url);
    ends.defer(() => proxy.close());
    return proxy;
  };
  const [forClients, forWorkers] = [await startProxy(), await startProxy()];
  const users = await addUsers(platform, load.limitKey);
  const place = { urls: [forWorkers.url], folder: platform.folder };
  const workers = startWorkers(ends, users, place);
  const restart = async (signal: NodeJS.Signals) => {
    await platform.process.end(signal);
    await platform.restart();
  };
  for (const proxy of [forClients, forWorkers]) proxy.weather = createWeather(random);
  return await record({
    ...load,
    ...{ users, urls: () => [forClients.url], requestLimitMs: 8_000 },
    faults: [
      {
        'platform killed': () => restart('SIGKILL'),
        'platform stopped': () => restart('SIGTERM'),
        'platform paused': () => pause(platform.process, random() * LONGEST_PAUSE_MS),
      },
      workers.faults(random),
    ],
    async heal() {
      for (const proxy of [forClients, forWorkers]) proxy.weather = undefined;
      await restart('SIGKILL');
    },
  });
}

export function createWeather(random: () => number): Weather {
  return () => {
    if (random() >= FAULT_SHARE) return undefined;
    const direction = random() < 0.5 ? 'request' : 'answer';
    const afterBytes = Math.floor(random() * 600);
    const faults: Fault[] = [
      { kind: 'cut', direction, afterBytes },
      { kind: 'truncated', afterBytes },
      { kind: 'answer-lost' },
      { kind: 'held', direction, behind: 1 + Math.floor(random() * 20), maxMs: 700 },
      { kind: 'slow', bytesPerSecond: 2_000 },
    ];
    return faults[Math.floor(random() * faults.length)];
  };
}
