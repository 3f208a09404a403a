// Measures stops: how soon a cancel reaches the handler, and how soon the job of a killed worker
// process runs again.
import { listChildren } from '../test/support/process-tree.ts';
import { median, percentile } from './load.ts';
import { type Figure, timeBareRoundTrips } from './measures.ts';
import { Moments } from './moments.ts';
import { callPlatform } from './platform-calls.ts';
import {
  benchFile,
  type Platform,
  spawnNode,
  spawnWorker,
  startPlatform,
  stopProcess,
} from './processes.ts';
import { timeToRequest } from './starts.ts';

const CANCELS = 300;
/** Each round has a new supervisor, because it delays the restart after a second death. */
const KILLS = 3;
const ENDPOINT = 'lingering';

export async function measureCancel(): Promise<Figure[]> {
  const bare = await timeBareRoundTrips();
  const times = await withLingering(async (platform, moments) => {
    const worker = startWorker(platform);
    const found: number[] = [];
    for (let i = 0; i < CANCELS + 20; i++) found.push(await timeCancel(platform, moments));
    await stopProcess(worker);
    return found.slice(20);
  });
  return [0.5, 0.99].map((share) => ({
    name: `cancel to the handler's signal p${share * 100}`,
    unit: 'ms',
    value: percentile(times, share),
    floors: [{ name: 'bare fastify round trip', value: percentile(bare, share) }],
  }));
}

export async function measureRecovery(): Promise<Figure[]> {
  const startMs: number[] = [];
  const times = await withLingering(async (platform, moments) => {
    const found: number[] = [];
    for (let i = 0; i < KILLS; i++) {
      const start = (url: string) => spawnNode(benchFile('floors/first-request.ts'), url);
      startMs.push((await timeToRequest('/', start)).ms);
      found.push(await timeRecovery(platform, moments));
    }
    return found;
  });
  const floors = [{ name: 'bare node + undici, to its first request', value: median(startMs) }];
  const name = 'SIGKILL of a worker process to the next attempt';
  return [{ name, unit: 'ms', value: median(times), floors }];
}

async function withLingering<T>(
  measure: (platform: Platform, moments: Moments) => Promise<T>,
): Promise<T> {
  const platform = await startPlatform([ENDPOINT]);
  const moments = await Moments.listen();
  try {
    return await measure(platform, moments);
  } finally {
    moments.close();
    await platform.stop();
  }
}

function startWorker(platform: Platform) {
  const { url, workerKey: key } = platform;
  const worker = { url, key, endpoint: ENDPOINT, handler: 'handlers/lingering.ts', slots: 1 };
  // The measured deaths are expected, so they are not printed.
  return spawnWorker(worker, ['--log-level', 'fatal']);
}

async function timeCancel(platform: Platform, moments: Moments): Promise<number> {
  const job = await submit(platform, { until: Number.MAX_SAFE_INTEGER, postUrl: moments.url });
  await moments.find({ job, event: 'began', attempt: 1 });
  const askedAt = process.hrtime.bigint();
  const answered = callPlatform(platform, `/v2/${ENDPOINT}/cancel/${job}`, {});
  const stoppedAt = await moments.find({ job, event: 'stopped', attempt: 1 });
  await answered;
  return toMs(stoppedAt - askedAt);
}

async function timeRecovery(platform: Platform, moments: Moments): Promise<number> {
  const worker = startWorker(platform);
  const job = await submit(platform, { until: 2, postUrl: moments.url });
  await moments.find({ job, event: 'began', attempt: 1 });
  const [pid] = listChildren(worker.pid ?? 0);
  if (pid === undefined) throw new Error('the supervisor has no worker process');
  const killedAt = process.hrtime.bigint();
  process.kill(pid, 'SIGKILL');
  const beganAt = await moments.find({ job, event: 'began', attempt: 2 });
  await stopProcess(worker);
  return toMs(beganAt - killedAt);
}

async function submit(platform: Platform, input: unknown): Promise<string> {
  const { id } = JSON.parse(await callPlatform(platform, `/v2/${ENDPOINT}/run`, { input }));
  return String(id);
}

function toMs(nanoseconds: bigint): number {
  return Number(nanoseconds) / 1e6;
}
