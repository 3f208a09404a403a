// Measures the processor time that a job costs the platform.
import { sendLoad } from './load.ts';
import type { Figure } from './measures.ts';
import { readCpuMs, spawnWorker, startFloor, startPlatform, stopProcess } from './processes.ts';
import { PlatformStand, SLOTS } from './stands.ts';

const CLIENTS = 32;
const WARM_UP = 2_000;
const JOBS = 10_000;
const INPUT = { text: 'hello' };

export async function measureProcessor(): Promise<Figure[]> {
  const floors = [{ name: 'bare fastify, a request', value: await measureFastify() }];
  const value = await measurePlatform();
  return [{ name: 'processor time of the platform, a job over HTTP', unit: 'µs', value, floors }];
}

async function measureFastify(): Promise<number> {
  const floor = await startFloor('floors/fastify-server.ts');
  const load = {
    clients: CLIENTS,
    url: `${floor.url}/small`,
    body: JSON.stringify({ input: INPUT }),
  };
  await sendLoad({ ...load, requests: WARM_UP });
  const before = await readCpuMs(floor.pid);
  await sendLoad({ ...load, requests: 2 * JOBS });
  const usedMs = (await readCpuMs(floor.pid)) - before;
  await floor.stop();
  return (1_000 * usedMs) / (2 * JOBS);
}

async function measurePlatform(): Promise<number> {
  const platform = await startPlatform(['noop']);
  const { url, workerKey: key } = platform;
  const handler = { endpoint: 'noop', handler: 'handlers/noop.ts' };
  const worker = spawnWorker({ url, key, ...handler, slots: SLOTS });
  const stand = new PlatformStand(platform, 'noop');
  await stand.submitMany({ clients: CLIENTS, jobs: WARM_UP, input: INPUT });
  await stand.waitForCompleted(WARM_UP);
  const before = await readCpuMs(platform.pid);
  await stand.submitMany({ clients: CLIENTS, jobs: JOBS, input: INPUT });
  await stand.waitForCompleted(WARM_UP + JOBS);
  const usedMs = (await readCpuMs(platform.pid)) - before;
  await stopProcess(worker);
  await platform.stop();
  return (1_000 * usedMs) / JOBS;
}
