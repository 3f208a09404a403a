// Measures one platform on Postgres beside the same platform on SQLite: jobs, round trips, processor time, and what
// a job costs the database.
import { readdir, readFile } from 'node:fs/promises';
import { PostgresServer } from '../test/support/postgres.ts';
import { percentile } from './load.ts';
import type { Figure } from './measures.ts';
import { readCpuMs, spawnWorker, startPlatform, stopProcess } from './processes.ts';
import { DURABLE } from './services/durable-postgres.ts';
import { PlatformStand, SLOTS } from './stands.ts';

const CLIENTS = 32;
const WARM_UP = 4_000;
const JOBS = 20_000;
const ROUND_TRIPS = 1_000;
const INPUT = { text: 'hello' };

/** What a store costs, in the order of the table. */
interface Costs {
  jobsPerSecond: number;
  p50: number;
  p99: number;
  /** Processor time of the platform, µs a job. */
  platform: number;
}

/** What a job costs Postgres. */
interface DatabaseCosts {
  /** Processor time, µs. */
  processor: number;
  statements: number;
  transactions: number;
  walBytes: number;
}

export async function measurePostgres(): Promise<Figure[]> {
  const sqlite = await measureStore([], () => Promise.resolve());
  const server = await PostgresServer.start({
    settings: { ...DURABLE, shared_preload_libraries: 'pg_stat_statements' },
  });
  try {
    await server.query('create extension pg_stat_statements');
    const readings: DatabaseCosts[] = [];
    const note = async () => {
      readings.push(await readDatabase(server));
    };
    const costs = await measureStore(['--store', server.url()], note);
    return [...describe(costs, sqlite), ...describeDatabase(readings)];
  } finally {
    await server.stop();
  }
}

/** `onBoundary` is called before and after the measured jobs. */
async function measureStore(args: string[], onBoundary: () => Promise<void>): Promise<Costs> {
  const platform = await startPlatform(['noop'], args);
  const { url, workerKey: key } = platform;
  const handler = { endpoint: 'noop', handler: 'handlers/noop.ts' };
  const worker = spawnWorker({ url, key, ...handler, slots: SLOTS });
  try {
    const stand = new PlatformStand(platform, 'noop');
    await stand.submitMany({ clients: CLIENTS, jobs: WARM_UP, input: INPUT });
    await stand.waitForCompleted(WARM_UP);
    await onBoundary();
    const cpuBefore = await readCpuMs(platform.pid);
    const startedAt = performance.now();
    await stand.submitMany({ clients: CLIENTS, jobs: JOBS, input: INPUT });
    await stand.waitForCompleted(WARM_UP + JOBS);
    const seconds = (performance.now() - startedAt) / 1_000;
    const cpuMs = (await readCpuMs(platform.pid)) - cpuBefore;
    await onBoundary();
    await stand.timeRoundTrips(200, INPUT);
    const times = await stand.timeRoundTrips(ROUND_TRIPS, INPUT);
    return {
      jobsPerSecond: JOBS / seconds,
      p50: percentile(times, 0.5),
      p99: percentile(times, 0.99),
      platform: (1_000 * cpuMs) / JOBS,
    };
  } finally {
    await stopProcess(worker);
    await platform.stop();
  }
}

function describe(postgres: Costs, sqlite: Costs): Figure[] {
  const rows: [keyof Costs, string, string][] = [
    ['jobsPerSecond', 'run to COMPLETED', 'jobs/s'],
    ['p50', 'runsync round trip p50', 'ms'],
    ['p99', 'runsync round trip p99', 'ms'],
    ['platform', 'processor time of the platform, a job', 'µs'],
  ];
  return rows.map(([key, name, unit]) => ({
    name: `${name}, on Postgres`,
    unit,
    value: postgres[key],
    floors: [{ name: 'on SQLite', value: sqlite[key] }],
  }));
}

function describeDatabase([before, after]: DatabaseCosts[]): Figure[] {
  if (!before || !after) throw new Error('the database was not read');
  const rows: [keyof DatabaseCosts, string, string, string, number][] = [
    ['processor', 'processor time of Postgres, a job', 'µs', '100 µs', 100],
    ['statements', 'statements a job', '', 'one', 1],
    ['transactions', 'transactions a job', '', 'one in ten jobs', 0.1],
    ['walBytes', 'write-ahead log a job', 'bytes', '1 KB', 1_024],
  ];
  return rows.map(([key, name, unit, floor, value]) => ({
    ...{ name, unit },
    value: (after[key] - before[key]) / JOBS,
    floors: [{ name: floor, value }],
  }));
}

/** Totals since the server's start. */
async function readDatabase(server: PostgresServer): Promise<DatabaseCosts> {
  // The statistics of other sessions arrive within a second.
  await server.query('select pg_sleep(1.2)');
  const row = await server.query(`select
    (select sum(calls) from pg_stat_statements),
    (select sum(calls) from pg_stat_statements where query ilike 'commit'),
    (select wal_bytes from pg_stat_wal)`);
  const [statements = 0, transactions = 0, walBytes = 0] = row.split('|').map(Number);
  return {
    statements,
    transactions,
    walBytes,
    processor: 1_000 * (await readFamilyMs(server.pid)),
  };
}

/** Processor time of a process and of the processes that it started, ms. */
async function readFamilyMs(pid: number): Promise<number> {
  const found = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const times = await Promise.all(
    found.map(async (name) => {
      const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '');
      const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
      const isFamily = Number(name) === pid || parent === pid;
      return isFamily ? readCpuMs(Number(name)).catch(() => 0) : 0;
    }),
  );
  return times.reduce((sum, each) => sum + each, 0);
}
