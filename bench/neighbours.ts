// Measures a client's round trips on one endpoint while other clients use another endpoint of the platform.
import { Agent, request } from 'undici';
import { percentile, timeEach } from './load.ts';
import { type Figure, timeBareRoundTrips } from './measures.ts';
import { type Platform, spawnWorker, startPlatform, stopProcess } from './processes.ts';
import { SLOTS } from './stands.ts';

const OWN = 'own';
const OTHER = 'other';
const WARM_UP = 1_000;
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
    const large = JSON.stringify({ input: { text: 'x'.repeat(LARGE_BYTES - 24) } });
    return [
      ...describe('alone and warm', await timeOwn(platform, ROUND_TRIPS), bare),
      ...describe(
        'while 32 clients flood another endpoint',
        await timeBeside(platform, { clients: FLOOD_CLIENTS, body: SMALL }),
        bare,
      ),
      ...describe(
        'while 3 clients send another endpoint jobs of 10 MB',
        await timeBeside(platform, { clients: LARGE_CLIENTS, body: large }),
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
  { body, clients }: { body: string; clients: number },
): Promise<number[]> {
  const dispatcher = new Agent({ connections: clients, pipelining: 1 });
  let isOver = false;
  const client = async () => {
    while (!isOver) {
      const answer = await request(`${platform.url}/v2/${OTHER}/runsync`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${platform.adminKey}`,
          'content-type': 'application/json',
        },
        ...{ dispatcher, body },
      });
      await answer.body.dump({ limit: 2 * LARGE_BYTES });
    }
  };
  const others = Promise.all(Array.from({ length: clients }, client));
  const times = await timeOwn(platform, ROUND_TRIPS);
  isOver = true;
  await others;
  await dispatcher.close();
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
