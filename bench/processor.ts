// Measures the processor time that a job costs the platform.
import { sendLoad } from './load.ts';
import type { Figure } from './measures.ts';
import { readCpuMs, spawnWorker, startFloor, startPlatform, stopProcess } from './processes.ts';
import { PlatformStand, SLOTS } from './stands.ts';

const CLIENTS = 32;
const WARM_UP = 2_000;
const JOBS = 10_000;
const INPUT = { text: 'hello' };

/** Jobs of one request; 1: with `run`. */
const TOGETHER = [1, 16, 32, 100];

export async function measureProcessor(): Promise<Figure[]> {
  const floors = [{ name: 'bare fastify, a request', value: await measureFastify() }];
  const figures: Figure[] = [];
  for (const together of TOGETHER) {
    const name = `processor time of the platform, a job over HTTP${describe(together)}`;
    figures.push({ name, unit: 'µs', value: await measurePlatform(together), floors });
  }
  return figures;
}

function describe(together: number): string {
  return together === 1 ? '' : `, ${together} jobs in a request`;
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

async function measurePlatform(together: number): Promise<number> {
  const platform = await startPlatform(['noop']);
  const { url, workerKey: key } = platform;
  const handler = { endpoint: 'noop', handler: 'handlers/noop.ts' };
  const worker = spawnWorker({ url, key, ...handler, slots: SLOTS });
  const stand = new PlatformStand(platform, 'noop');
  const submit = (requested: number) => {
    const jobs = Math.ceil(requested / together) * together;
    const load = { clients: CLIENTS, jobs, input: INPUT };
    const sent =
      together === 1 ? stand.submitMany(load) : stand.submitTogether({ ...load, together });
    return sent.then(() => jobs);
  };
  const first = await submit(WARM_UP);
  await stand.waitForCompleted(first);
  const before = await readCpuMs(platform.pid);
  const jobs = await submit(JOBS);
  await stand.waitForCompleted(first + jobs);
  const usedMs = (await readCpuMs(platform.pid)) - before;
  await stopProcess(worker);
  await platform.stop();
  return (1_000 * usedMs) / jobs;
}
