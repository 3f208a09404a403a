// What is measured of a platform with much in it, 1,000 endpoints and 100,000 queued jobs: its memory, how
// soon it starts, what it does when nobody asks for anything, and how soon a worker gets a job.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { create } from './deployments.ts';
import { percentile, sendLoad } from './load.ts';
import type { Figure } from './measures.ts';
import { type Platform, readCpuMs, readRss, startPlatformIn } from './processes.ts';
import { timeTakes } from './takes.ts';

const ENDPOINTS = 1_000;
const JOBS_EACH = 100;
const CLIENTS = 32;
const TAKES = 1_000;
/** Has a worker, in a crowd and alone. */
const SERVED = 'served';
/** For what the start has left to be freed. */
const SETTLE_MS = 3_000;
const IDLE_MS = 20_000;
const ARGS = ['--engine', 'process', '--endpoint', SERVED];

interface Seen {
  startMs: number;
  rssMb: number;
  /** Of a minute in which nobody asks for anything. */
  idleCpuMs: number;
  takeMs: number[];
}

export async function measureCrowd(): Promise<Figure[]> {
  const empty = await inFolder(visit);
  const deployed = await inFolder(async (folder) => {
    await fill(folder, 0);
    return visit(folder);
  });
  const crowd = await inFolder(async (folder) => {
    const filledMb = await fill(folder, JOBS_EACH);
    return { filledMb, ...(await visit(folder)) };
  });
  const name = '1,000 endpoints, 100,000 queued jobs';
  return [
    ...compare('1,000 endpoints', deployed, empty),
    {
      ...{ name: `${name}: memory when they have come`, unit: 'MB RSS', value: crowd.filledMb },
      floors: [{ name: 'of none', value: empty.rssMb }],
    },
    ...compare(name, crowd, empty),
  ];
}

function compare(what: string, crowd: Seen, empty: Seen): Figure[] {
  const figure = (name: string, unit: string, read: (seen: Seen) => number) => ({
    ...{ name: `${what}: ${name}`, unit, value: read(crowd) },
    floors: [{ name: 'of none', value: read(empty) }],
  });
  return [
    figure('start', 'ms', ({ startMs }) => startMs),
    figure('memory after a start', 'MB RSS', ({ rssMb }) => rssMb),
    figure('processor time of an idle minute', 'ms', ({ idleCpuMs }) => idleCpuMs),
    figure('take p50', 'ms', ({ takeMs }) => percentile(takeMs, 0.5)),
    figure('take p99', 'ms', ({ takeMs }) => percentile(takeMs, 0.99)),
  ];
}

async function inFolder<T>(measure: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'));
  try {
    return await measure(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Endpoints that could have workers and are to have none, each with so many jobs. @returns MB then */
async function fill(folder: string, jobsEach: number): Promise<number> {
  const platform = await startPlatformIn(folder, ARGS);
  try {
    const template = { name: 'bench', image: 'none', args: 'sleep 1' };
    const templateId = await create(platform, '/v1/templates', template);
    for (let i = 0; i < ENDPOINTS; i++) {
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

/** Starts it again on what is there. */
async function visit(folder: string): Promise<Seen> {
  const startedAt = performance.now();
  const platform = await startPlatformIn(folder, ARGS);
  const startMs = performance.now() - startedAt;
  try {
    await sleep(SETTLE_MS);
    const rssMb = await readRss(platform.pid);
    const before = await readCpuMs(platform.pid);
    await sleep(IDLE_MS);
    const idleCpuMs = ((await readCpuMs(platform.pid)) - before) * (60_000 / IDLE_MS);
    await submit(platform, SERVED, TAKES);
    return { startMs, rssMb, idleCpuMs, takeMs: await timeTakes(platform, SERVED, TAKES) };
  } finally {
    await platform.stop();
  }
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
