// Measures load-balancing endpoints: requests through the platform beside the same requests sent
// directly to the worker.
import { withDeployment } from './deployments.ts';
import { type Load, percentile, sendLoad, timeEach } from './load.ts';
import type { Figure } from './measures.ts';
import { callPlatform } from './platform-calls.ts';
import { benchFile, type Platform, startFloor } from './processes.ts';

const CLIENTS = 32;
const REQUESTS = 20_000;
const PIECE_REQUESTS = 4_000;
const ROUND_TRIPS = 2_000;
const WARM_UP = 1_000;
const PIECE_BYTES = 65_536;
/** Pieces of one streamed answer. */
const PIECES = 4_000;
const MB = 1_000_000;

const DEPLOYMENT = {
  template: { args: `'${process.execPath}' '${benchFile('services/web.ts')}'`, ports: ['80/http'] },
  endpoint: {
    ...{ type: 'LOAD_BALANCER', workersMin: 1, workersMax: 1 },
    scaler: { type: 'REQUEST_COUNT', perWorker: 1_000 },
  },
};

/** URL and headers of the requests. */
type Way = Pick<Load, 'headers' | 'url'>;

export function measureProxy(): Promise<Figure[]> {
  return withDeployment(DEPLOYMENT, async (platform, endpoint) => {
    const headers = { authorization: `Bearer ${platform.adminKey}` };
    const through = { url: `${platform.url}/lb/${endpoint}`, headers };
    // The first request waits until a worker is ready.
    await sendLoad({ clients: 1, requests: 1, ...to(through, 'ping') });
    const direct = { url: await findWorker(platform) };
    const bare = await startFloor('floors/bare-proxy.ts', [direct.url]);
    try {
      const ways = { through, direct, bare };
      return [
        ...(await compareTimes(ways)),
        await compare({ ...ways, name: 'GET, 32 clients', unit: 'requests/s', rate: rateSmall }),
        await compare({
          ...ways,
          name: 'answers of 64 KB, 32 clients',
          unit: 'MB/s',
          rate: rateOnes,
        }),
        await compare({ ...ways, name: 'one streamed answer', unit: 'MB/s', rate: rateStream }),
      ];
    } finally {
      await bare.stop();
    }
  });
}

interface Ways {
  through: Way;
  /** Directly to the worker. */
  direct: Way;
  /** Through the floor, a process that only forwards. */
  bare: Way;
}

async function compareTimes({ bare, direct, through }: Ways): Promise<Figure[]> {
  const [times, directTimes, bareTimes] = [
    await timeSmall(through),
    await timeSmall(direct),
    await timeSmall(bare),
  ];
  return [0.5, 0.99].map((share) => ({
    name: `GET through a load-balancing endpoint p${share * 100}`,
    unit: 'ms',
    value: percentile(times, share),
    floors: [
      { name: 'direct', value: percentile(directTimes, share) },
      { name: 'through a bare node:http and undici', value: percentile(bareTimes, share) },
    ],
  }));
}

async function timeSmall(way: Way): Promise<number[]> {
  await timeEach({ requests: WARM_UP, ...to(way, 'small') });
  return timeEach({ requests: ROUND_TRIPS, ...to(way, 'small') });
}

async function rateSmall(way: Way): Promise<number> {
  await sendLoad({ clients: CLIENTS, requests: WARM_UP, ...to(way, 'small') });
  return sendLoad({ clients: CLIENTS, requests: REQUESTS, ...to(way, 'small') });
}

async function rateOnes(way: Way): Promise<number> {
  const load = { clients: CLIENTS, requests: PIECE_REQUESTS, ...to(way, 'piece') };
  return ((await sendLoad(load)) * PIECE_BYTES) / MB;
}

async function rateStream(way: Way): Promise<number> {
  const perSecond = await sendLoad({ clients: 1, requests: 1, ...to(way, `pieces?${PIECES}`) });
  return (perSecond * PIECES * PIECE_BYTES) / MB;
}

interface Comparison extends Ways {
  name: string;
  unit: string;
  rate: (way: Way) => Promise<number>;
}

async function compare({ name, rate, unit, ...ways }: Comparison): Promise<Figure> {
  const value = await rate(ways.through);
  const floors = [
    { name: 'direct', value: await rate(ways.direct) },
    { name: 'through a bare node:http and undici', value: await rate(ways.bare) },
  ];
  return { name: `${name}, through a load-balancing endpoint`, unit, value, floors };
}

function to({ headers, url }: Way, path: string): Way {
  return { url: `${url}/${path}`, ...(headers && { headers }) };
}

async function findWorker(platform: Platform): Promise<string> {
  const { pods } = JSON.parse(await callPlatform(platform, '/v2/pods'));
  const [{ ip, public: port }] = pods[0].runtime.ports;
  return `http://${ip}:${port}`;
}
