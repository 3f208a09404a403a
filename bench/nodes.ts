// Measures several nodes on one Postgres: what a job costs with more of them, what forwarding costs, and how long the
// takeover of a killed node takes.
import { NodeProcesses } from '../test/support/node-processes.ts';
import { PostgresServer } from '../test/support/postgres.ts';
import type { PlatformProcess } from '../test/support/processes.ts';
import { median, percentile } from './load.ts';
import type { Figure } from './measures.ts';
import { type Platform, readCpuMs, readRss, spawnWorker, stopProcess } from './processes.ts';
import { DURABLE } from './services/durable-postgres.ts';
import { PlatformStand, SLOTS } from './stands.ts';

const COUNTS = [1, 2, 4];
/** So many nodes are measured again with workers that do not know the owner of their endpoint. */
const UNTOLD_COUNT = 4;
const ENDPOINTS = ['noop-1', 'noop-2', 'noop-3', 'noop-4'];
const SHARDS = 4;
/** Of each endpoint. */
const CLIENTS = 8;
const WARM_UP = 500;
const JOBS = 4_000;
const ROUND_TRIPS = 500;
const TAKEOVERS = 20;
const TAKEOVER_LIMIT_MS = 60_000;
const POLL_MS = 20;
const INPUT = { text: 'hello' };

interface Costs {
  /** Processor time of all nodes, µs a job. */
  processor: number;
  statements: number;
  /** Of one node: MB. */
  memory: number;
  /** Of one node to Postgres. */
  connections: number;
}

export async function measureNodes(): Promise<Figure[]> {
  const costs: Costs[] = [];
  for (const count of COUNTS) costs.push(await withNodes({ count }, measureCosts));
  const untold = await withNodes({ count: UNTOLD_COUNT, advertise: false }, measureCosts);
  const forwarding = await withNodes({ count: 2 }, measureForwarding);
  const takeovers = await withNodes({ count: 3 }, measureTakeovers);
  return [
    ...describeCosts(costs),
    ...describeUntold(untold, costs),
    ...forwarding,
    ...describeTakeovers(takeovers),
  ];
}

interface Cluster {
  nodes: NodeProcesses;
  server: PostgresServer;
}

async function withNodes<T>(
  { advertise = true, count }: { advertise?: boolean; count: number },
  measure: (cluster: Cluster) => Promise<T>,
): Promise<T> {
  const server = await PostgresServer.start({
    settings: {
      ...DURABLE,
      max_connections: '100',
      shared_preload_libraries: 'pg_stat_statements',
    },
  });
  try {
    await server.query('create extension pg_stat_statements');
    const parts = { store: server.url(), count, shards: SHARDS, endpoints: ENDPOINTS, advertise };
    const nodes = await NodeProcesses.start(parts);
    try {
      await untilBalanced(server, count);
      return await measure({ nodes, server });
    } finally {
      await nodes.close();
    }
  } finally {
    await server.stop();
  }
}

/** Resolves when each node has its share of the shards. */
async function untilBalanced(server: PostgresServer, count: number): Promise<void> {
  const owners = 'select count(distinct owner) from shard where owner is not null';
  const unowned = 'select count(*) from shard where owner is null';
  const isBalanced = async () =>
    (await server.query(owners)) === String(Math.min(count, SHARDS)) &&
    (await server.query(unowned)) === '0';
  while (!(await isBalanced())) await pause();
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, POLL_MS));
}

async function measureCosts({ nodes, server }: Cluster): Promise<Costs> {
  const workers = ENDPOINTS.map((endpoint, index) =>
    startWorker(nodes.at(index % nodes.all.length), endpoint),
  );
  try {
    const run = async (jobs: number, before: number) => {
      await Promise.all(
        ENDPOINTS.map(async (endpoint, index) => {
          // Through every node alike, as behind a load balancer.
          const stand = standAt(nodes.at((index + 1) % nodes.all.length), endpoint);
          await stand.submitMany({ clients: CLIENTS, jobs, input: INPUT });
          await stand.waitForCompleted(before + jobs);
        }),
      );
    };
    await run(WARM_UP, 0);
    const before = await readTotals(nodes, server);
    await run(JOBS, WARM_UP);
    const after = await readTotals(nodes, server);
    const jobs = JOBS * ENDPOINTS.length;
    const sessions = await server.query(
      `select count(*) from pg_stat_activity where application_name = 'millrace'`,
    );
    return {
      processor: (1_000 * (after.cpuMs - before.cpuMs)) / jobs,
      statements: (after.statements - before.statements) / jobs,
      memory: median(await Promise.all(nodes.all.map((node) => readRss(pidOf(node))))),
      connections: Number(sessions) / nodes.all.length,
    };
  } finally {
    await Promise.all(workers.map(stopProcess));
  }
}

async function readTotals(nodes: NodeProcesses, server: PostgresServer) {
  const cpu = await Promise.all(nodes.all.map((node) => readCpuMs(pidOf(node))));
  const statements = Number(await server.query('select sum(calls) from pg_stat_statements'));
  return { cpuMs: cpu.reduce((sum, each) => sum + each, 0), statements };
}

function describeCosts(costs: readonly Costs[]): Figure[] {
  const rows: [keyof Costs, string, string][] = [
    ['processor', 'processor time of all nodes, a job', 'µs'],
    ['statements', 'statements a job', ''],
    ['memory', 'resident memory of a node', 'MB'],
    ['connections', 'connections of a node to Postgres', ''],
  ];
  const [one] = costs;
  return rows.flatMap(([key, name, unit]) =>
    costs.slice(1).map((cost, index) => ({
      ...{ name: `${name}, ${COUNTS[index + 1]} nodes`, unit, value: cost[key] },
      floors: one ? [{ name: 'one node', value: one[key] }] : [],
    })),
  );
}

/** What the same nodes cost if each call of a worker may have to be forwarded. */
function describeUntold(untold: Costs, costs: readonly Costs[]): Figure[] {
  const told = costs[COUNTS.indexOf(UNTOLD_COUNT)];
  return [
    {
      name: `processor time of all nodes, a job, ${UNTOLD_COUNT} nodes, workers not told the owner`,
      ...{ unit: 'µs', value: untold.processor },
      floors: told ? [{ name: 'told', value: told.processor }] : [],
    },
  ];
}

/** Of two nodes, the one that answers sooner owns the endpoint. */
async function measureForwarding({ nodes }: Cluster): Promise<Figure[]> {
  const [endpoint = ''] = ENDPOINTS;
  const worker = startWorker(nodes.at(0), endpoint);
  try {
    const measured: { p50: number; cpu: number }[] = [];
    for (const node of nodes.all) {
      const stand = standAt(node, endpoint);
      await stand.timeRoundTrips(100, INPUT);
      const before = await readAllCpuMs(nodes);
      const p50 = percentile(await stand.timeRoundTrips(ROUND_TRIPS, INPUT), 0.5);
      measured.push({ p50, cpu: ((await readAllCpuMs(nodes)) - before) / ROUND_TRIPS });
    }
    const [owner, other] = measured.toSorted((a, b) => a.p50 - b.p50);
    if (!owner || !other) throw new Error('two nodes were not measured');
    return [
      {
        ...{ name: 'runsync round trip p50 through another node', unit: 'ms', value: other.p50 },
        floors: [{ name: 'through the owner', value: owner.p50 }],
      },
      {
        ...{ name: 'processor time of both nodes for it', unit: 'ms', value: other.cpu },
        floors: [{ name: 'through the owner', value: owner.cpu }],
      },
    ];
  } finally {
    await stopProcess(worker);
  }
}

async function readAllCpuMs(nodes: NodeProcesses): Promise<number> {
  const each = await Promise.all(nodes.all.map((node) => readCpuMs(pidOf(node))));
  return each.reduce((sum, ms) => sum + ms, 0);
}

/** Kills each node in turn. @returns the times until all endpoints are served again, ms */
async function measureTakeovers({ nodes, server }: Cluster): Promise<number[]> {
  const times: number[] = [];
  for (let index = 0; index < TAKEOVERS; index++) {
    const victim = nodes.at(index % nodes.all.length);
    const asked = nodes.at((index + 1) % nodes.all.length);
    await victim.kill();
    const killedAt = performance.now();
    await Promise.all(ENDPOINTS.map((endpoint) => untilServed(asked, endpoint)));
    times.push(performance.now() - killedAt);
    await victim.restart();
    await untilBalanced(server, nodes.all.length);
  }
  return times;
}

async function untilServed(node: PlatformProcess, endpoint: string): Promise<void> {
  const end = performance.now() + TAKEOVER_LIMIT_MS;
  for (;;) {
    const answer = await node.fetch(`/v2/${endpoint}/health`).catch(() => undefined);
    if (answer?.status === 200) return;
    if (performance.now() > end) throw new Error(`nobody serves ${endpoint}`);
    await pause();
  }
}

function describeTakeovers(times: readonly number[]): Figure[] {
  const floors = [{ name: 'a lease of a node', value: 8 }];
  const sorted = times.toSorted((a, b) => a - b);
  return [
    { name: 'takeover of a killed node, median', unit: 's', value: median(sorted) / 1_000, floors },
    {
      ...{ name: `takeover, the longest of ${times.length}`, unit: 's' },
      ...{ value: (sorted.at(-1) ?? 0) / 1_000, floors },
    },
  ];
}

function startWorker(node: PlatformProcess, endpoint: string) {
  const { url, workerKey: key } = node;
  return spawnWorker({ url, key, endpoint, handler: 'handlers/noop.ts', slots: SLOTS });
}

function standAt(node: PlatformProcess, endpoint: string): PlatformStand {
  const platform: Platform = {
    ...{ url: node.url, grpcUrl: '', folder: node.folder, pid: pidOf(node) },
    ...{ adminKey: node.adminKey, workerKey: node.workerKey, stop: () => node.close() },
  };
  return new PlatformStand(platform, endpoint);
}

function pidOf({ process: { child } }: PlatformProcess): number {
  if (child.pid === undefined) throw new Error('the node is not running');
  return child.pid;
}
