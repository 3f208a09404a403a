// Measures batch handlers on a simulated device: how much of the device they use, and how long a job that
// arrives alone waits for others.
import { DEVICE_MS, runOnDevice } from './handlers/device.ts';
import { median, percentile } from './load.ts';
import type { Figure } from './measures.ts';
import { spawnWorker, startPlatform, stopProcess } from './processes.ts';
import { PlatformStand } from './stands.ts';

const ENDPOINT = 'device';
const SIZES = [1, 8, 32];
/** Batches of each measured run. */
const BATCHES = 200;
/** A batch that is not full waits this long, ms. */
const MAX_WAIT_MS = 5;
const TURNS = 20;
const WARM_UP_TURNS = 4;
const CALLS_A_TURN = 10;
const CLIENTS = 32;
const INPUT = { text: 'hello' };

interface Batches {
  /** 0: a handler of single jobs. */
  size: number;
  waitMs: number;
  /** Runs before the worker starts. */
  before?: (stand: PlatformStand) => Promise<void>;
}

export async function measureBatches(): Promise<Figure[]> {
  const batchesPerSecond = await measureDevice();
  const figures: Figure[] = [];
  for (const size of SIZES) {
    const value = await measureRate(size);
    figures.push({
      name: `jobs on a device of ${DEVICE_MS} ms a batch, batches of ${size}`,
      unit: 'jobs/s',
      value,
      floors: [{ name: 'the device alone', value: batchesPerSecond * size }],
    });
  }
  return [...figures, ...(await measureAddedWait())];
}

/** Full batches that the device alone runs in a second. */
async function measureDevice(): Promise<number> {
  const startedAt = performance.now();
  for (let batch = 0; batch < BATCHES; batch++) await runOnDevice();
  return BATCHES / ((performance.now() - startedAt) / 1_000);
}

/** With a full queue: while clients submit, they compete with platform and worker for the processors. */
async function measureRate(size: number): Promise<number> {
  const warmUp = 4 * size;
  const jobs = BATCHES * size;
  const batches = { size, waitMs: MAX_WAIT_MS };
  const submit = (stand: PlatformStand) =>
    stand.submitMany({ clients: CLIENTS, jobs: warmUp + jobs, input: INPUT });
  return withBatches({ ...batches, before: submit }, async (stand) => {
    await stand.waitForCompleted(warmUp);
    const startedAt = performance.now();
    await stand.waitForCompleted(warmUp + jobs);
    return jobs / ((performance.now() - startedAt) / 1_000);
  });
}

/**
 * Compares single calls of a batch handler with those of a handler of single jobs. They take turns,
 * because the speed of the machine drifts.
 */
async function measureAddedWait(): Promise<Figure[]> {
  const times: { alone: number[]; batched: number[] } = { alone: [], batched: [] };
  await withBatches({ size: 0, waitMs: 0 }, (single) =>
    withBatches({ size: 32, waitMs: MAX_WAIT_MS }, async (batching) => {
      for (let turn = -WARM_UP_TURNS; turn < TURNS; turn++) {
        const alone = await single.timeRoundTrips(CALLS_A_TURN, INPUT);
        const batched = await batching.timeRoundTrips(CALLS_A_TURN, INPUT);
        if (turn < 0) continue;
        times.alone.push(...alone);
        times.batched.push(...batched);
      }
    }),
  );
  const { alone, batched } = times;
  const added = [0.5, 0.9].map((share) => percentile(batched, share) - percentile(alone, share));
  return added.map((value, index) => ({
    name: `added wait of a single job, maxWaitMs ${MAX_WAIT_MS}, p${index === 0 ? 50 : 90}`,
    unit: 'ms',
    value,
    floors: [
      { name: 'maxWaitMs + 3 ms', value: MAX_WAIT_MS + 3 },
      { name: 'runsync without batches p50', value: median(alone) },
    ],
  }));
}

async function withBatches<T>(
  { before, size, waitMs }: Batches,
  measure: (stand: PlatformStand) => Promise<T>,
): Promise<T> {
  const platform = await startPlatform([ENDPOINT]);
  const { url, workerKey: key } = platform;
  const env = { BENCH_BATCH_SIZE: String(size), BENCH_BATCH_WAIT_MS: String(waitMs) };
  const handler = 'handlers/device.ts';
  const stand = new PlatformStand(platform, ENDPOINT);
  await before?.(stand);
  const worker = spawnWorker({ url, key, endpoint: ENDPOINT, handler, env });
  try {
    return await measure(stand);
  } finally {
    await stopProcess(worker);
    await platform.stop();
  }
}
