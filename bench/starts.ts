// Measures starts: how soon a worker takes jobs, the processor time until then, and the memory later.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { killTree, listChildren } from '../test/support/process-tree.ts';
import { median } from './load.ts';
import type { Figure } from './measures.ts';
import {
  benchFile,
  readCpuMs,
  readRss,
  spawnNode,
  spawnWorker,
  startPlatform,
  stopProcess,
} from './processes.ts';

const IDLE_MS = 3_000;
const STARTS = 5;

/** A start, from the spawn to its first request or its first line. */
export interface Start {
  ms: number;
  /** Processor time of the process and its descendants. */
  cpuMs: number;
}

export async function measureColdStart(): Promise<Figure[]> {
  const floor: Start[] = [];
  const process: Start[] = [];
  const worker: Start[] = [];
  const platform: Start[] = [];
  for (let i = 0; i < STARTS; i++) {
    const startFloor = (url: string) => spawnNode(benchFile('floors/first-request.ts'), url);
    floor.push(await timeToRequest('/', startFloor));
    process.push(await timeWorkerStart(['--unsupervised']));
    worker.push(await timeWorkerStart([]));
    platform.push(await timePlatformStart());
  }
  const readings = [
    { what: 'cold start', read: ({ ms }: Start) => ms },
    { what: 'processor time of a cold start', read: ({ cpuMs }: Start) => cpuMs },
  ];
  return readings.flatMap(({ what, read }) => {
    const value = median(floor.map(read));
    const floors = [{ name: 'bare node + undici, to its first request', value }];
    const figure = (name: string, starts: Start[]) => ({
      ...{ name: `${what}, spawn to ${name}`, unit: 'ms', value: median(starts.map(read)), floors },
    });
    return [
      figure('first take: a worker process', process),
      figure('first take: with its supervisor', worker),
      figure('first line: a platform', platform),
    ];
  });
}

export async function measureIdleMemory(): Promise<Figure[]> {
  const platform = await startPlatform(['noop']);
  const supervisor = spawnWorker({
    url: platform.url,
    key: platform.workerKey,
    endpoint: 'noop',
    handler: 'handlers/noop.ts',
    slots: 1,
  });
  const peers = [
    spawnNode('-e', 'setInterval(() => {}, 60_000)'),
    spawnNode(benchFile('floors/idle-libraries.ts')),
  ];
  await sleep(IDLE_MS);
  const pids = [...peers, supervisor].map(({ pid = 0 }) => pid);
  const [worker = 0] = listChildren(supervisor.pid ?? 0);
  const [bare = 0, libraries = 0, above = 0, own = 0] = await Promise.all(
    [...pids, worker].map(readRss),
  );
  await Promise.all([supervisor, ...peers].map(stopProcess));
  await platform.stop();
  const floor = { name: 'bare node', value: bare };
  const peer = { name: 'node with undici, pino, one piscina thread', value: libraries };
  return [
    { name: 'idle worker process, one thread', unit: 'MB RSS', value: own, floors: [floor, peer] },
    { name: 'its supervisor', unit: 'MB RSS', value: above, floors: [floor] },
  ];
}

async function timePlatformStart(): Promise<Start> {
  const startedAt = performance.now();
  const platform = await startPlatform(['noop']);
  const ms = performance.now() - startedAt;
  const cpuMs = await readCpuMs(platform.pid);
  await platform.stop();
  return { ms, cpuMs };
}

/** Measures the spawn of `millrace worker` to its first take. */
export function timeWorkerStart(args: string[]): Promise<Start> {
  return timeToRequest('/take', (url) => {
    const worker = { url, key: 'mr_x', endpoint: 'noop', handler: 'handlers/noop.ts', slots: 1 };
    return spawnWorker(worker, args);
  });
}

/**
 * Measures the spawn to the first request whose path ends in `ending`; `hello` gets a welcome,
 * other calls an empty answer.
 */
export async function timeToRequest(
  ending: string,
  start: (url: string) => ReturnType<typeof spawnNode>,
): Promise<Start> {
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
  const pids = listTree(child.pid ?? 0);
  const cpuMs = (await Promise.all(pids.map(readCpuMs))).reduce((sum, each) => sum + each, 0);
  // Without this, the worker process would have to notice the supervisor's death.
  killTree(child.pid ?? 0);
  server.closeAllConnections();
  server.close();
  return { ms, cpuMs };
}

function listTree(pid: number): number[] {
  return [pid, ...listChildren(pid).flatMap(listTree)];
}
