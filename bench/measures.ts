// Measures the figures, one function each; a function returns the value and its floors.
import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Piscina } from 'piscina';
import { median, percentile, sendLoad, timeEach } from './load.ts';
import { benchFile, startFloor } from './processes.ts';
import { CARRIERS, type Carrier, SLOTS, withStand } from './stands.ts';

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
const ECHOES = { first: 8, warm: 20 };
const HELLO = { text: 'hello' };

export async function measureJobs(): Promise<Figure[]> {
  const floors = [
    { name: 'bare fastify requests/s', value: await measureBareFastify() },
    { name: 'piscina tasks/s', value: await measurePiscina() },
  ];
  const figures: Figure[] = [];
  for (const carrier of CARRIERS) {
    const value = await measureJobRate(carrier);
    figures.push({ name: `run to COMPLETED, ${carrier}`, unit: 'jobs/s', value, floors });
  }
  return figures;
}

function measureJobRate(carrier: Carrier): Promise<number> {
  return withStand({ carrier, handler: 'noop' }, async (stand) => {
    await stand.submitMany({ clients: CLIENTS, jobs: 1_000, input: HELLO });
    await stand.waitForCompleted(1_000);
    const startedAt = performance.now();
    await stand.submitMany({ clients: CLIENTS, jobs: JOBS, input: HELLO });
    await stand.waitForCompleted(JOBS + 1_000);
    return JOBS / ((performance.now() - startedAt) / 1_000);
  });
}

export async function measureRoundTrip(): Promise<Figure[]> {
  const bare = await timeBareRoundTrips();
  const figures: Figure[] = [];
  for (const carrier of CARRIERS) {
    const times = await withStand({ carrier, handler: 'noop' }, async (stand) => {
      await stand.timeRoundTrips(200, HELLO);
      return stand.timeRoundTrips(ROUND_TRIPS, HELLO);
    });
    figures.push(...describeTimes(`runsync round trip, ${carrier}`, times, bare));
  }
  return figures;
}

/**
 * Time from before the client's request to the handler's first line. It includes a commit, which
 * the platform waits for.
 */
export async function measurePickUp(): Promise<Figure[]> {
  const bare = await timeBareRoundTrips();
  const synced = await timeSyncs();
  const figures: Figure[] = [];
  for (const carrier of CARRIERS) {
    const times = await withStand({ carrier, handler: 'began' }, async (stand) => {
      const found: number[] = [];
      for (let i = 0; i < ROUND_TRIPS + 200; i++) {
        const submittedAt = process.hrtime.bigint();
        const beganAt = BigInt(String(await stand.runsync({})));
        found.push(Number(beganAt - submittedAt) / 1e6);
      }
      return found.slice(200);
    });
    const name = `pick-up, submit to handler, ${carrier}`;
    for (const figure of describeTimes(name, times, bare)) {
      const value = percentile(synced, figure.name.endsWith('p99') ? 0.99 : 0.5);
      figure.floors.push({ name: 'write and fsync of 4 KB, ms', value });
      figures.push(figure);
    }
  }
  return figures;
}

function describeTimes(name: string, times: number[], bare: number[]): Figure[] {
  return [0.5, 0.99].map((share) => ({
    name: `${name} p${share * 100}`,
    unit: 'ms',
    value: percentile(times, share),
    floors: [{ name: 'bare fastify round trip', value: percentile(bare, share) }],
  }));
}

export async function measureChunks(): Promise<Figure[]> {
  const floor = { name: 'JSON.stringify + parse of such chunks/s', value: measureJsonChunks() };
  const name = 'small chunks, generator to client';
  const figures: Figure[] = [];
  for (const carrier of CARRIERS) {
    const value = await measureChunkRate(carrier, []);
    figures.push({ name: `${name}, ${carrier}`, unit: 'chunks/s', value, floors: [floor] });
  }
  const stateDir = await mkdtemp(join(tmpdir(), 'millrace-bench-'));
  const value = await measureChunkRate('HTTP', ['--state-dir', stateDir]);
  await rm(stateDir, { recursive: true });
  const peer = { name: 'without it', value: figures[0]?.value ?? Number.NaN };
  const onDisk = `${name}, HTTP with --state-dir`;
  return [...figures, { name: onDisk, unit: 'chunks/s', value, floors: [peer, floor] }];
}

function measureChunkRate(carrier: Carrier, workerArgs: string[]): Promise<number> {
  return withStand({ carrier, handler: 'chunks', workerArgs }, async (stand) => {
    await stand.stream({ count: 1_000 }, 1_000);
    const startedAt = performance.now();
    await stand.stream({ count: CHUNKS }, CHUNKS);
    return CHUNKS / ((performance.now() - startedAt) / 1_000);
  });
}

export async function measureEcho(): Promise<Figure[]> {
  const input = { text: 'x'.repeat(ECHO_BYTES - 24) };
  const perSecond = (times: number[]) => ECHO_BYTES / 1_000_000 / (median(times) / 1_000);
  const floor = await startFloor('floors/fastify-server.ts');
  const bare = await timeEach({
    url: `${floor.url}/echo`,
    requests: ECHOES.first + ECHOES.warm,
    headers: { 'content-type': 'application/octet-stream' },
    body: JSON.stringify({ input }),
  });
  await floor.stop();
  const figures: Figure[] = [];
  for (const carrier of CARRIERS) {
    const times = await withStand({ carrier, handler: 'noop' }, (stand) =>
      stand.timeRoundTrips(ECHOES.first + ECHOES.warm, input),
    );
    for (const [when, pick] of [
      [`first ${ECHOES.first}`, (all: number[]) => all.slice(0, ECHOES.first)],
      ['warm', (all: number[]) => all.slice(ECHOES.first)],
    ] as const) {
      const name = `10 MB echo by runsync, ${carrier}, ${when}`;
      const floors = [{ name: 'bare fastify echo', value: perSecond(pick(bare)) }];
      figures.push({ name, unit: 'MB/s', value: perSecond(pick(times)), floors });
    }
  }
  return figures;
}

/** @returns ms */
async function timeSyncs(): Promise<number[]> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'));
  const file = openSync(join(folder, 'log'), 'w');
  const page = Buffer.alloc(4_096);
  const times: number[] = [];
  for (let i = 0; i < ROUND_TRIPS; i++) {
    const startedAt = performance.now();
    writeSync(file, page);
    fsyncSync(file);
    times.push(performance.now() - startedAt);
  }
  closeSync(file);
  await rm(folder, { recursive: true });
  return times;
}

/** @returns ms */
export async function timeBareRoundTrips(): Promise<number[]> {
  const floor = await startFloor('floors/fastify-server.ts');
  const small = { url: `${floor.url}/small`, body: JSON.stringify({ input: HELLO }) };
  await timeEach({ ...small, requests: 200 });
  const times = await timeEach({ ...small, requests: ROUND_TRIPS });
  await floor.stop();
  return times;
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
