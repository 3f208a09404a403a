// Measures a client that calls every 20 ms from the start of platform and worker on: nothing is compiled yet.
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, request } from 'undici';
import { median } from './load.ts';
import type { Figure } from './measures.ts';
import { spawnWorker, startFloor, startPlatform, stopProcess } from './processes.ts';
import { SLOTS } from './stands.ts';

const MEASURED = 150;
const BETWEEN = 850;
const EVERY_MS = 20;
const BETWEEN_EVERY_MS = 5;
const ENDPOINT = 'noop';
const BODY = JSON.stringify({ input: { text: 'hello' } });

interface Target {
  url: string;
  authorization?: string;
}

/** p50 of the first calls and of those after 1,000, ms. */
interface Medians {
  first: number;
  later: number;
}

export async function measureWarmUp(): Promise<Figure[]> {
  const floor = await startFloor('floors/fastify-server.ts');
  const bare = await callRegularly({ url: `${floor.url}/small` });
  await floor.stop();
  const own = await callPlatform();
  const name = 'runsync every 20 ms';
  return [
    {
      ...{ name: `${name}, calls 1-150 after the start p50`, unit: 'ms', value: own.first },
      floors: [{ name: 'bare fastify', value: bare.first }],
    },
    {
      ...{ name: `${name}, 1,000 calls later p50`, unit: 'ms', value: own.later },
      floors: [{ name: 'bare fastify', value: bare.later }],
    },
  ];
}

async function callPlatform(): Promise<Medians> {
  const platform = await startPlatform([ENDPOINT]);
  const { adminKey, url, workerKey: key } = platform;
  const options = { url, key, endpoint: ENDPOINT, handler: 'handlers/noop.ts' };
  const worker = spawnWorker({ ...options, slots: SLOTS });
  try {
    const authorization = `Bearer ${adminKey}`;
    // A job that waits for the worker's start is no part of the figure.
    await call({ url: `${url}/v2/${ENDPOINT}/runsync`, authorization });
    return await callRegularly({ url: `${url}/v2/${ENDPOINT}/runsync`, authorization });
  } finally {
    await stopProcess(worker);
    await platform.stop();
  }
}

async function callRegularly(target: Target): Promise<Medians> {
  const dispatcher = new Agent({ connections: 1 });
  const first = await timeCalls(target, { dispatcher, count: MEASURED, everyMs: EVERY_MS });
  await timeCalls(target, { dispatcher, count: BETWEEN, everyMs: BETWEEN_EVERY_MS });
  const later = await timeCalls(target, { dispatcher, count: MEASURED, everyMs: EVERY_MS });
  await dispatcher.close();
  return { first: median(first), later: median(later) };
}

async function timeCalls(
  target: Target,
  { count, dispatcher, everyMs }: { count: number; everyMs: number; dispatcher: Agent },
): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const startedAt = performance.now();
    await call(target, dispatcher);
    times.push(performance.now() - startedAt);
    await sleep(Math.max(0, everyMs - (performance.now() - startedAt)));
  }
  return times;
}

async function call({ authorization, url }: Target, dispatcher?: Agent): Promise<void> {
  const { body, statusCode } = await request(url, {
    ...{ method: 'POST', body: BODY },
    headers: { 'content-type': 'application/json', ...(authorization && { authorization }) },
    ...(dispatcher && { dispatcher }),
  });
  const text = await body.text();
  if (statusCode !== 200) throw new Error(`${url}: ${statusCode} ${text}`);
}
