// Measures scaling from zero: how long the first job of an endpoint without workers takes.
import { setTimeout as sleep } from 'node:timers/promises';
import { waitForNoWorker, withDeployment } from './deployments.ts';
import { median } from './load.ts';
import type { Figure } from './measures.ts';
import { callPlatform } from './platform-calls.ts';
import { benchFile, type Platform, spawnNode } from './processes.ts';
import { timeToRequest, timeWorkerStart } from './starts.ts';

const FIRST_JOBS = 7;
/** Rounds before the measured ones, so that the machine's file cache is warm. */
const WARM_UP = 1;
/** Time for the platform to finish its work for the ended worker, ms. */
const QUIET_MS = 500;
const DEPLOYMENT = {
  template: { handler: 'handlers/noop.ts' },
  endpoint: { workersMax: 1, idleTimeout: 1 },
};

/** Time from before the client's `runsync` to its answer; each round begins without a worker. */
export async function measureFirstJob(): Promise<Figure[]> {
  const bareMs: number[] = [];
  const workerMs: number[] = [];
  const times = await withDeployment(DEPLOYMENT, async (platform, endpoint) => {
    const found: number[] = [];
    for (let i = 0; i < FIRST_JOBS + WARM_UP; i++) {
      found.push(await timeFirstJob(platform, endpoint));
      const startBare = (url: string) => spawnNode(benchFile('floors/first-request.ts'), url);
      bareMs.push((await timeToRequest('/', startBare)).ms);
      workerMs.push((await timeWorkerStart([])).ms);
    }
    return found.slice(WARM_UP);
  });
  const floors = [
    { name: 'spawn of `millrace worker` to its first take', value: median(workerMs) },
    { name: 'bare node + undici, to its first request', value: median(bareMs) },
  ];
  return [
    { name: 'first job on an endpoint without workers', unit: 'ms', value: median(times), floors },
  ];
}

async function timeFirstJob(platform: Platform, endpoint: string): Promise<number> {
  await waitForNoWorker(platform);
  await sleep(QUIET_MS);
  const startedAt = performance.now();
  const answer = await callPlatform(platform, `/v2/${endpoint}/runsync?wait=60000`, { input: {} });
  const ms = performance.now() - startedAt;
  const { status } = JSON.parse(answer);
  if (status !== 'COMPLETED') throw new Error(`the first job is ${answer}`);
  return ms;
}
