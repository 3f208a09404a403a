// Measures a client's round trips on one endpoint while other clients use another endpoint of the platform.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { percentile, timeEach } from './load.ts';
import { type Figure, timeBareRoundTrips } from './measures.ts';
import { benchFile, type Platform, spawnWorker, startPlatform, stopProcess } from './processes.ts';
import { SLOTS } from './stands.ts';

const OWN = 'own';
const OTHER = 'other';
const WARM_UP = 1_000;
/** While the other clients call: V8 compiles what many calls at a time need. */
const WARM_UP_BESIDE = 500;
const ROUND_TRIPS = 500;
const FLOOD_CLIENTS = 32;
const LARGE_CLIENTS = 3;
const LARGE_BYTES = 10_000_000;
const SMALL = JSON.stringify({ input: { text: 'hello' } });

export async function measureNeighbours(): Promise<Figure[]> {
  const bare = await timeBareRoundTrips();
  const platform = await startPlatform([OWN, OTHER]);
  const { url, workerKey: key } = platform;
  const handler = { url, key, handler: 'handlers/noop.ts', slots: SLOTS };
  const workers = [OWN, OTHER].map((endpoint) => spawnWorker({ ...handler, endpoint }));
  try {
    await timeOwn(platform, WARM_UP);
    return [
      ...describe('alone and warm', await timeOwn(platform, ROUND_TRIPS), bare),
      ...describe(
        'while 32 clients flood another endpoint',
        await timeBeside(platform, { clients: FLOOD_CLIENTS, bytes: 0 }),
        bare,
      ),
      ...describe(
        'while 3 clients send another endpoint jobs of 10 MB',
        await timeBeside(platform, { clients: LARGE_CLIENTS, bytes: LARGE_BYTES }),
        bare,
      ),
    ];
  } finally {
    for (const worker of workers) await stopProcess(worker);
    await platform.stop();
  }
}

function timeOwn(platform: Platform, requests: number): Promise<number[]> {
  return timeEach({
    ...{ requests, body: SMALL },
    url: `${platform.url}/v2/${OWN}/runsync`,
    headers: { authorization: `Bearer ${platform.adminKey}` },
  });
}

async function timeBeside(
  platform: Platform,
  { bytes, clients }: { bytes: number; clients: number },
): Promise<number[]> {
  const url = `${platform.url}/v2/${OTHER}/runsync`;
  const args = [url, `Bearer ${platform.adminKey}`, String(clients), String(bytes)];
  const senders = fork(benchFile('senders.ts'), args);
  const exited = once(senders, 'exit');
  await once(senders, 'message');
  await timeOwn(platform, WARM_UP_BESIDE);
  const times = await timeOwn(platform, ROUND_TRIPS);
  senders.disconnect();
  await exited;
  return times;
}

function describe(when: string, times: number[], bare: number[]): Figure[] {
  return [0.5, 0.99].map((share) => ({
    name: `round trip ${when} p${share * 100}`,
    unit: 'ms',
    value: percentile(times, share),
    floors: [{ name: 'bare fastify round trip', value: percentile(bare, share) }],
  }));
}
