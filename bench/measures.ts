// What is measured, one function a figure; each gives its value and the floors beside it.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Piscina } from 'piscina';
import { request } from 'undici';
import { median, percentile, sendLoad, timeEach } from './load.ts';
import {
  benchFile,
  type Platform,
  readRss,
  spawnNode,
  spawnWorker,
  startFloor,
  startPlatform,
  stopProcess,
} from './processes.ts';

export interface Figure {
  name: string;
  unit: string;
  value: number;
  floors: { name: string; value: number }[];
}

const CLIENTS = 32;
const JOBS = 10_000;
const ROUND_TRIPS = 1_000;
const CHUNKS = 200_000;
const ECHO_BYTES = 10_000_000;
const SLOTS = 64;
const IDLE_MS = 3_000;

export async function measureJobs(): Promise<Figure[]> {
  const bare = await measureBareFastify();
  const tasks = await measurePiscina();
  return withWorker('noop', async (platform, endpoint) => {
    const load = {
      clients: CLIENTS,
      url: `${platform.url}/v2/${endpoint}/run`,
      headers: { authorization: `Bearer ${platform.adminKey}` },
      body: '{"input":{"text":"hello"}}',
    };
    await sendLoad({ ...load, requests: 1_000 });
    await waitForCompleted(platform, endpoint, 1_000);
    const startedAt = performance.now();
    await sendLoad({ ...load, requests: JOBS });
    await waitForCompleted(platform, endpoint, JOBS + 1_000);
    const value = JOBS / ((performance.now() - startedAt) / 1_000);
    const floors = [
      { name: 'bare fastify requests/s', value: bare },
      { name: 'piscina tasks/s', value: tasks },
    ];
    return [{ name: 'run to COMPLETED', unit: 'jobs/s', value, floors }];
  });
}

export async function measureRoundTrip(): Promise<Figure[]> {
  const floor = await startFloor('floors/fastify-server.ts');
  const body = '{"input":{"text":"hello"}}';
  await timeEach({ url: `${floor.url}/small`, requests: 200, body });
  const bare = await timeEach({ url: `${floor.url}/small`, requests: ROUND_TRIPS, body });
  await floor.stop();
  return withWorker('noop', async (platform, endpoint) => {
    const load = {
      url: `${platform.url}/v2/${endpoint}/runsync`,
      headers: { authorization: `Bearer ${platform.adminKey}` },
      body,
    };
    await timeEach({ ...load, requests: 200 });
    const times = await timeEach({ ...load, requests: ROUND_TRIPS });
    return [0.5, 0.99].map((share) => ({
      name: `runsync round trip p${share * 100}`,
      unit: 'ms',
      value: percentile(times, share),
      floors: [{ name: 'bare fastify round trip', value: percentile(bare, share) }],
    }));
  });
}

export async function measureChunks(): Promise<Figure[]> {
  const encoded = measureJsonChunks();
  return withWorker('chunks', async (platform, endpoint) => {
    await streamChunks(platform, endpoint, 1_000);
    const startedAt = performance.now();
    await streamChunks(platform, endpoint, CHUNKS);
    const value = CHUNKS / ((performance.now() - startedAt) / 1_000);
    const floors = [{ name: 'JSON.stringify + parse of such chunks/s', value: encoded }];
    return [{ name: 'small chunks, generator to client', unit: 'chunks/s', value, floors }];
  });
}

export async function measureEcho(): Promise<Figure[]> {
  const body = JSON.stringify({ input: { text: 'x'.repeat(ECHO_BYTES - 24) } });
  const perSecond = (times: number[]) => ECHO_BYTES / 1_000_000 / (median(times) / 1_000);
  const floor = await startFloor('floors/fastify-server.ts');
  const headers = { 'content-type': 'application/octet-stream' };
  const bare = await timeEach({ url: `${floor.url}/echo`, requests: 8, headers, body });
  await floor.stop();
  return withWorker('noop', async (platform, endpoint) => {
    const times = await timeEach({
      url: `${platform.url}/v2/${endpoint}/runsync`,
      requests: 8,
      headers: { authorization: `Bearer ${platform.adminKey}` },
      body,
    });
    const floors = [{ name: 'bare fastify echo', value: perSecond(bare) }];
    return [{ name: '10 MB echo by runsync', unit: 'MB/s', value: perSecond(times), floors }];
  });
}

export async function measureColdStart(): Promise<Figure[]> {
  const floorMs: number[] = [];
  const workerMs: number[] = [];
  for (let i = 0; i < 5; i++) {
    floorMs.push(
      await timeToRequest('/', (url) => spawnNode(benchFile('floors/first-request.ts'), url)),
    );
    workerMs.push(
      await timeToRequest('/take', (url) =>
        spawnWorker({ url, key: 'mr_x', endpoint: 'noop', handler: 'handlers/noop.ts', slots: 1 }),
      ),
    );
  }
  const floors = [{ name: 'bare node + undici, to its first request', value: median(floorMs) }];
  return [{ name: 'cold start, spawn to first take', unit: 'ms', value: median(workerMs), floors }];
}

export async function measureIdleMemory(): Promise<Figure[]> {
  const platform = await startPlatform(['noop']);
  const processes = [
    spawnWorker({
      url: platform.url,
      key: platform.workerKey,
      endpoint: 'noop',
      handler: 'handlers/noop.ts',
      slots: 1,
    }),
    spawnNode('-e', 'setInterval(() => {}, 60_000)'),
    spawnNode(benchFile('floors/idle-libraries.ts')),
  ];
  await sleep(IDLE_MS);
  const [value = 0, bare = 0, libraries = 0] = await Promise.all(processes.map(readRss));
  await Promise.all(processes.map(stopProcess));
  await platform.stop();
  const floors = [
    { name: 'bare node', value: bare },
    { name: 'node with undici, pino, one piscina thread', value: libraries },
  ];
  return [{ name: 'idle worker, one thread', unit: 'MB RSS', value, floors }];
}

async function withWorker(
  handler: string,
  measure: (platform: Platform, endpoint: string) => Promise<Figure[]>,
): Promise<Figure[]> {
  const platform = await startPlatform([handler]);
  const worker = spawnWorker({
    url: platform.url,
    key: platform.workerKey,
    endpoint: handler,
    handler: `handlers/${handler}.ts`,
    slots: SLOTS,
  });
  try {
    return await measure(platform, handler);
  } finally {
    await stopProcess(worker);
    await platform.stop();
  }
}

async function waitForCompleted(platform: Platform, endpoint: string, count: number) {
  for (;;) {
    const answer = await get(platform, `/v2/${endpoint}/health`);
    const health: unknown = await answer.body.json();
    if (JSON.stringify(health).includes(`"completed":${count},`)) return;
    await sleep(5);
  }
}

async function streamChunks(platform: Platform, endpoint: string, count: number): Promise<void> {
  const answer = await request(`${platform.url}/v2/${endpoint}/run`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${platform.adminKey}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify({ input: { count } }),
  });
  const { id } = JSON.parse(await answer.body.text());
  let after = '0';
  for (let seen = 0; seen < count; ) {
    const page = await get(platform, `/v2/${endpoint}/stream/${id}?after=${after}`);
    const chunks = JSON.parse(await page.body.text());
    seen += chunks.length;
    after = String(page.headers['millrace-next']);
    if (chunks.length === 0) throw new Error(`stream ended after ${seen} of ${count} chunks`);
  }
}

function get(platform: Platform, path: string) {
  return request(`${platform.url}${path}`, {
    headers: { authorization: `Bearer ${platform.adminKey}` },
  });
}

async function measureBareFastify(): Promise<number> {
  const floor = await startFloor('floors/fastify-server.ts');
  const load = { clients: CLIENTS, url: `${floor.url}/small`, body: '{"input":{"text":"hello"}}' };
  await sendLoad({ ...load, requests: 2_000 });
  const value = await sendLoad({ ...load, requests: 2 * JOBS });
  await floor.stop();
  return value;
}

async function measurePiscina(): Promise<number> {
  const pool = new Piscina({
    filename: benchFile('floors/piscina-task.ts'),
    minThreads: 1,
    maxThreads: 1,
    concurrentTasksPerWorker: SLOTS,
    atomics: 'disabled',
  });
  await Promise.all(Array.from({ length: 1_000 }, () => pool.run('hello')));
  let left = JOBS;
  const startedAt = performance.now();
  const runner = async () => {
    while (left-- > 0) await pool.run('hello');
  };
  await Promise.all(Array.from({ length: SLOTS }, runner));
  const value = JOBS / ((performance.now() - startedAt) / 1_000);
  await pool.destroy();
  return value;
}

function measureJsonChunks(): number {
  const startedAt = performance.now();
  for (let i = 0; i < CHUNKS; i++) {
    JSON.parse(JSON.stringify({ output: { i, text: 'token' }, metrics: {} }));
  }
  return CHUNKS / ((performance.now() - startedAt) / 1_000);
}

/** From the spawn to the first request whose path ends in `ending`; other verbs are welcomed. */
async function timeToRequest(
  ending: string,
  start: (url: string) => ReturnType<typeof spawnNode>,
): Promise<number> {
  const welcome = { protocol: 1, leaseMs: 15_000, renewEveryMs: 5_000, takeWaitMs: 20_000 };
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no address');
  const arrived = new Promise<number>((resolve) => {
    server.on('request', (incoming, answer) => {
      if (incoming.url?.endsWith(ending)) resolve(performance.now());
      answer.setHeader('content-type', 'application/json');
      if (incoming.url?.endsWith('/hello')) answer.end(JSON.stringify(welcome));
      else if (!incoming.url?.endsWith('/take')) answer.end('{"ended":[],"drain":false}');
    });
  });
  const startedAt = performance.now();
  const child = start(`http://127.0.0.1:${address.port}`);
  const ms = (await arrived) - startedAt;
  child.kill('SIGKILL');
  server.closeAllConnections();
  server.close();
  return ms;
}
