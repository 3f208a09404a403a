// Measures an endpoint with 99,000 queued jobs: how fast a worker drains it, and how long a purge takes and
// delays others.
import { setTimeout as sleep } from 'node:timers/promises';
import { sendLoad } from './load.ts';
import type { Figure } from './measures.ts';
import { callPlatform } from './platform-calls.ts';
import { type Platform, spawnWorker, startPlatform, stopProcess } from './processes.ts';
import { SLOTS } from './stands.ts';

const FULL = 'full';
const EMPTY = 'empty';
/** An endpoint accepts 100,000. */
const QUEUED = 99_000;
const DRAINED = 6_000;
/** The first jobs of a new worker do not count. */
const WARM_UP = 1_000;
const CLIENTS = 32;
const IDLE_MS = 1_000;
const BODY = '{"input":{"text":"hello"}}';

export async function measureBacklog(): Promise<Figure[]> {
  const platform = await startPlatform([FULL, EMPTY]);
  try {
    await submit(platform, FULL, QUEUED);
    await submit(platform, EMPTY, DRAINED);
    const empty = await measureDrain(platform, EMPTY);
    const full = await measureDrain(platform, FULL);
    await submit(platform, FULL, QUEUED - (await countQueued(platform)));
    await readLoopDelay(platform);
    await sleep(IDLE_MS);
    const idleMs = await readLoopDelay(platform);
    const startedAt = performance.now();
    const answer = await callPlatform(platform, `/v2/${FULL}/purge-queue`, {});
    const purgeMs = performance.now() - startedAt;
    const loopMs = await readLoopDelay(platform);
    if (JSON.parse(answer).removed !== QUEUED) throw new Error(`purge: ${answer}`);
    const name = '99,000 queued jobs';
    return [
      {
        ...{ name: `${name}: drain of 5,000`, unit: 'jobs/s', value: full },
        floors: [{ name: '5,000 of an endpoint without others', value: empty }],
      },
      {
        ...{ name: `${name}: purge`, unit: 'ms', value: purgeMs },
        floors: [{ name: 'the goal', value: 2_000 }],
      },
      {
        ...{ name: `${name}: longest event-loop delay of the purge`, unit: 'ms', value: loopMs },
        floors: [{ name: 'idle platform', value: idleMs }],
      },
    ];
  } finally {
    await platform.stop();
  }
}

/** @returns jobs/s after the first ones */
async function measureDrain(platform: Platform, endpoint: string): Promise<number> {
  const { url, workerKey: key } = platform;
  const worker = spawnWorker({ url, key, endpoint, handler: 'handlers/noop.ts', slots: SLOTS });
  const before = await waitForCompleted(platform, endpoint, WARM_UP);
  const startedAt = performance.now();
  const completed = await waitForCompleted(platform, endpoint, DRAINED);
  const rate = (completed - before) / ((performance.now() - startedAt) / 1_000);
  await stopProcess(worker);
  return rate;
}

/** @returns their number, which may be larger */
async function waitForCompleted(
  platform: Platform,
  endpoint: string,
  count: number,
): Promise<number> {
  for (;;) {
    const completed = await countCompleted(platform, endpoint);
    if (completed >= count) return completed;
    await sleep(5);
  }
}

async function countCompleted(platform: Platform, endpoint: string): Promise<number> {
  const health = await callPlatform(platform, `/v2/${endpoint}/health`);
  return JSON.parse(health).jobs.completed;
}

async function countQueued(platform: Platform): Promise<number> {
  const { jobs } = JSON.parse(await callPlatform(platform, `/v2/${FULL}/health`));
  return jobs.inQueue;
}

/** Longest delay since the last call, ms. */
async function readLoopDelay(platform: Platform): Promise<number> {
  const metrics = await callPlatform(platform, '/metrics');
  return 1_000 * Number(/^nodejs_eventloop_lag_max_seconds (\S+)$/m.exec(metrics)?.[1]);
}

function submit(platform: Platform, endpoint: string, requests: number): Promise<number> {
  return sendLoad({
    ...{ clients: CLIENTS, requests, body: BODY },
    url: `${platform.url}/v2/${endpoint}/run`,
    headers: { authorization: `Bearer ${platform.adminKey}` },
  });
}
