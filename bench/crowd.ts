// Measures a platform with 1,000 endpoints and 100,000 queued jobs: memory, start time, idle
// processor time, and how soon a worker gets a job.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { create } from './deployments.ts';
import { percentile, sendLoad } from './load.ts';
import type { Figure } from './measures.ts';
import {
  type Platform,
  readCpuMs,
  readRss,
  spawnNode,
  startPlatformIn,
  stopProcess,
} from './processes.ts';
import { timeTakes } from './takes.ts';

const ENDPOINTS = 1_000;
const JOBS_EACH = 100;
const CLIENTS = 32;
const TAKES = 1_000;
/** Jobs taken from one platform before the other platform has its turn. */
const TAKES_IN_TURN = 50;
/** The endpoint with a worker; it exists on the crowded and on the empty platform. */
const SERVED = 'served';
/** Time for earlier work of the platform to end, ms. */
const SETTLE_MS = 3_000;
const IDLE_MS = 60_000;
const ARGS = ['--engine', 'process', '--endpoint', SERVED, '--quota', 'endpoints=1000000'];

interface Crowd {
  endpoints: number;
  jobsEach: number;
}

interface Rest {
  startMs: number;
  rssMb: number;
  /** Processor time of an idle minute, ms. */
  idleCpuMs: number;
}

export async function measureCrowd(): Promise<Figure[]> {
  const empty = await openFolder();
  const deployed = await openFolder();
  const crowd = await openFolder();
  const alone = await openFolder();
  try {
    await fill(deployed, { endpoints: ENDPOINTS, jobsEach: 0 });
    const crowdMb = await fill(crowd, { endpoints: ENDPOINTS, jobsEach: JOBS_EACH });
    const aloneMb = await fill(alone, { endpoints: 1, jobsEach: ENDPOINTS * JOBS_EACH });
    const floor = await rest(empty);
    const bareMs = await idleBare();
    const name = '1,000 endpoints, 100,000 queued jobs';
    return [
      ...compareRest('1,000 endpoints', await rest(deployed), floor, bareMs),
      ...compareRest(name, await rest(crowd), floor, bareMs),
      {
        ...{ name: `${name}: memory when they have come`, unit: 'MB RSS', value: crowdMb },
        floors: [{ name: 'the same jobs, one endpoint', value: aloneMb }],
      },
      ...(await compareTakes(`${name}: take`, crowd, empty)),
      ...(await compareTakes('100,000 jobs on another endpoint: take', alone, empty)),
    ];
  } finally {
    for (const folder of [empty, deployed, crowd, alone]) await rm(folder, { recursive: true });
  }
}

function openFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'millrace-bench-'));
}

function compareRest(what: string, crowd: Rest, empty: Rest, bareMs: number): Figure[] {
  const figure = (name: string, unit: string, read: (seen: Rest) => number) => ({
    ...{ name: `${what}: ${name}`, unit, value: read(crowd) },
    floors: [{ name: 'of none', value: read(empty) }],
  });
  const idle = figure('processor time of an idle minute', 'ms', ({ idleCpuMs }) => idleCpuMs);
  return [
    figure('start', 'ms', ({ startMs }) => startMs),
    figure('memory after a start', 'MB RSS', ({ rssMb }) => rssMb),
    { ...idle, floors: [...idle.floors, { name: 'of bare node', value: bareMs }] },
  ];
}

/** Creates endpoints with workersMax 0, each with `jobsEach` jobs. @returns the platform's memory, MB */
async function fill(folder: string, { endpoints, jobsEach }: Crowd): Promise<number> {
  const platform = await startPlatformIn(folder, ARGS);
  try {
    const template = { name: 'bench', image: 'none', args: 'sleep 1' };
    const templateId = await create(platform, '/v1/templates', template);
    for (let i = 0; i < endpoints; i++) {
      const endpoint = { name: `bench ${i}`, templateId, workersMax: 0 };
      const id = await create(platform, '/v1/endpoints', endpoint);
      if (jobsEach > 0) await submit(platform, id, jobsEach);
    }
    await sleep(SETTLE_MS);
    return await readRss(platform.pid);
  } finally {
    await platform.stop();
  }
}

/** Restarts the platform on this folder and leaves it idle. */
async function rest(folder: string): Promise<Rest> {
  const startedAt = performance.now();
  const platform = await startPlatformIn(folder, ARGS);
  const startMs = performance.now() - startedAt;
  try {
    await sleep(SETTLE_MS);
    const rssMb = await readRss(platform.pid);
    return { startMs, rssMb, idleCpuMs: await measureIdle(platform.pid) };
  } finally {
    await platform.stop();
  }
}

/** @returns processor time of an idle minute of a process that only waits, ms */
async function idleBare(): Promise<number> {
  const bare = spawnNode('--eval', 'setInterval(() => {}, 1e9)');
  await sleep(SETTLE_MS);
  try {
    return await measureIdle(bare.pid ?? 0);
  } finally {
    await stopProcess(bare);
  }
}

async function measureIdle(pid: number): Promise<number> {
  const before = await readCpuMs(pid);
  await sleep(IDLE_MS);
  return (await readCpuMs(pid)) - before;
}

/** Takes from both platforms in turns, so that other load of the machine affects both. */
async function compareTakes(name: string, crowd: string, empty: string): Promise<Figure[]> {
  const platforms = [await startPlatformIn(crowd, ARGS), await startPlatformIn(empty, ARGS)];
  const times: number[][] = [[], []];
  try {
    for (const platform of platforms) await submit(platform, SERVED, TAKES);
    for (let taken = 0; taken < TAKES; taken += TAKES_IN_TURN) {
      for (const [place, platform] of platforms.entries()) {
        times[place]?.push(...(await timeTakes(platform, SERVED, TAKES_IN_TURN)));
      }
    }
  } finally {
    for (const platform of platforms) await platform.stop();
  }
  const [own = [], floor = []] = times;
  return [0.5, 0.99].map((share) => ({
    ...{ name: `${name} p${share * 100}`, unit: 'ms', value: percentile(own, share) },
    floors: [{ name: 'of none', value: percentile(floor, share) }],
  }));
}

async function submit(platform: Platform, endpoint: string, jobs: number): Promise<void> {
  await sendLoad({
    clients: CLIENTS,
    requests: jobs,
    url: `${platform.url}/v2/${endpoint}/run`,
    headers: { authorization: `Bearer ${platform.adminKey}` },
    body: '{"input":{"text":"hello"}}',
  });
}
