// Runs jobs on three nodes that share a Postgres server, while nodes, the server, connections and workers fail at random,
// and checks that each acknowledged job ends once, with the right result.
import { readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { PostgresProxy } from '../network/postgres-proxy.ts';
import { NodeProcesses } from '../node-processes.ts';
import { PostgresServer } from '../postgres.ts';
import type { PlatformProcess } from '../processes.ts';
import { createRandom } from '../random.ts';
import { KilledWorker } from '../workers/killed-worker.ts';
import { describeFlaw, type EndedJob, TERMS } from './kill-run.ts';
import { ALL_FAULTS, causeFault, type FaultWorld, type NodeFault } from './node-faults.ts';
import {
  type Caller,
  chooseJob,
  chooseShortJob,
  findChanges,
  lookAtAll,
  persist,
  runJobs,
  submitJobs,
  untilIdle,
} from './peril-clients.ts';

export interface NodeRun {
  jobs: number;
  /** In this order, spread over the jobs. A number: so many in random order, each kind as often as the others. */
  faults: readonly NodeFault[] | number;
  /** A job that takes longer fails the run, ms. */
  limitMs: number;
  /** Longest pause of a node, ms. Default 20,000. */
  longestPauseMs?: number;
  seed: number;
  /**
   * Harmless jobs, submitted as fast as the nodes take them, and looked at once all have ended and the nodes have been
   * killed. Default: clients watch jobs of all kinds.
   */
  isFast?: boolean;
}

export interface NodeResult {
  acknowledged: number;
  /** Number of faults by kind. */
  faults: Record<string, number>;
  /** Jobs that were delivered more than once. */
  repeated: number;
  /** One line for each job with a wrong end. */
  wrong: string[];
  /** One line for each job that changed after a restart of all nodes. */
  changed: string[];
  /** One line for each request without an answer in a minute. */
  hung: string[];
  /** Jobs in the database that nobody submitted. */
  extraJobs: number;
  /** One line for each endpoint that a node does not answer for at the end. */
  unserved: string[];
  /** More connections to Postgres than all nodes need. */
  leakedConnections: number;
  /** Exit codes of nodes and supervisors that were asked to end. */
  exitCodes: (number | null)[];
  /** Number of warnings and errors that the nodes have logged, by text. */
  logged: Record<string, number>;
  /** Longest time from a request to its answer, ms. */
  longestMs: number;
  /** Of each node at the end. */
  handles: number[];
}

const COUNT = 3;
const SHARDS = 6;
const ENDPOINTS = ['perilous-1', 'perilous-2', 'perilous-3', 'perilous-4'];
const WORKERS = 6;
const REQUEST_LIMIT_MS = 60_000;
/** How long clients wait for a node that is paused, ms. */
const PAUSED_LIMIT_MS = 2_000;
/** Each node has one connection for its membership and one to read the control plane; each shard has one. */
const CONNECTIONS = COUNT * 2 + SHARDS;
const SETTLE_MS = 20_000;
const LONGEST_PAUSE_MS = 20_000;
const HOUR_AHEAD = fileURLToPath(new URL('../clocks/an-hour-ahead.js', import.meta.url));

export async function runUnderNodeFaults(run: NodeRun): Promise<NodeResult> {
  const random = createRandom(run.seed);
  const server = await PostgresServer.start({ settings: { fsync: 'on', full_page_writes: 'on' } });
  const proxies = await Promise.all(
    Array.from({ length: COUNT }, () => PostgresProxy.start(server.port)),
  );
  const store = await server.createDatabase();
  const nodes = await NodeProcesses.start({
    store: (index) => proxies[index]?.redirect(store) ?? '',
    ...{ count: COUNT, shards: SHARDS, endpoints: ENDPOINTS, args: TERMS },
    // With every other seed, workers call the owners directly.
    advertise: run.seed % 2 === 1,
    lastEnv: { NODE_OPTIONS: `--import=${HOUR_AHEAD}` },
  });
  try {
    return await new Run(run, { server, store, proxies, nodes, random }).run();
  } finally {
    await nodes.close();
    await Promise.all(proxies.map((proxy) => proxy.close()));
    await server.stop();
  }
}

/** Prints what the run has seen. @returns one line for everything that is wrong */
export function describeFlaws(result: NodeResult, jobs: number): string[] {
  const { acknowledged, changed, exitCodes, hung, unserved, wrong, ...seen } = result;
  console.log(JSON.stringify(seen, null, 2));
  const { extraJobs, leakedConnections } = seen;
  const failed = exitCodes.filter((code) => code !== 0).map((code) => `exit code ${code}`);
  const counts = [
    ...(acknowledged === jobs ? [] : [`${acknowledged} of ${jobs} jobs acknowledged`]),
    ...(leakedConnections === 0 ? [] : [`${leakedConnections} connections to Postgres too many`]),
    ...(extraJobs === 0 ? [] : [`${extraJobs} jobs too many`]),
  ];
  return [...wrong, ...changed, ...hung, ...unserved, ...failed, ...counts];
}

interface World {
  server: PostgresServer;
  /** URL of the database. */
  store: string;
  proxies: readonly PostgresProxy[];
  nodes: NodeProcesses;
  random: () => number;
}

class Run {
  readonly #run: NodeRun;
  readonly #world: World;
  readonly #caller: AnyNode;
  readonly #outputs: string[] = [];
  readonly #exitCodes: (number | null)[] = [];
  readonly #faults: Record<string, number> = {};
  /** Share of the jobs that may start: the rest waits for the faults to come. */
  #progress = 0;

  constructor(run: NodeRun, world: World) {
    this.#run = run;
    this.#world = world;
    this.#caller = new AnyNode(world.nodes.all, world.random);
  }

  async run(): Promise<NodeResult> {
    const { isFast = false, jobs, limitMs } = this.#run;
    const { nodes, random } = this.#world;
    const workers = Array.from({ length: WORKERS }, (_, index) => this.#startWorker(index));
    const choose = isFast ? chooseShortJob : chooseJob;
    const asked = Array.from({ length: jobs }, (_, n) => choose(n, random));
    let ended: EndedJob[] = [];
    const submitted: Omit<EndedJob, 'seen'>[] = [];
    const mayStart = (n: number) => n < jobs * this.#progress;
    const clients = { endpoints: ENDPOINTS, asked, mayStart };
    const running = isFast
      ? submitJobs(this.#caller, { ...clients, submitted })
      : runJobs(this.#caller, { ...clients, ended, until: Date.now() + limitMs });
    const progress = () => ended.length + submitted.length;
    await Promise.all([running, this.#causeFaults(workers, progress)]);
    if (isFast) await untilIdle(this.#caller, ENDPOINTS);
    const unserved = await this.#findUnserved();
    const leakedConnections = await this.#countLeaks();
    const handles = nodes.all.map(countHandles);
    this.#exitCodes.push(...(await Promise.all(workers.map((worker) => worker.leave()))));
    await this.#restart();
    if (isFast) ended = await lookAtAll(this.#caller, submitted);
    const wrong = ended.flatMap((job) => describeFlaw(job) ?? []);
    const changed = isFast ? [] : await findChanges(this.#caller, ended);
    if (wrong.length + changed.length > 0) for (const { output } of workers) console.log(output);
    const extraJobs = (await this.#countJobs()) - jobs;
    await Promise.all(nodes.all.map((node) => this.#end(node)));
    return {
      ...{ acknowledged: ended.length, faults: this.#faults, wrong, changed, unserved, extraJobs },
      ...{ leakedConnections, handles, exitCodes: this.#exitCodes },
      repeated: ended.filter(({ seen }) => seen.record.attempt > 1).length,
      hung: this.#caller.hung,
      longestMs: this.#caller.longestMs,
      logged: countLogged(this.#outputs),
    };
  }

  /** Two endpoints have two workers, at different nodes. */
  #startWorker(index: number): KilledWorker {
    const endpoint = ENDPOINTS[index % ENDPOINTS.length] ?? '';
    return new KilledWorker(this.#world.nodes.at(index % COUNT), { id: `w${index}`, endpoint });
  }

  async #causeFaults(workers: readonly KilledWorker[], progress: () => number): Promise<void> {
    const { nodes, proxies, random, server } = this.#world;
    const pairs = proxies.map((proxy, index) => ({ node: nodes.at(index), proxy }));
    const onEnd = (output: string, code: number | null | undefined) => {
      this.#outputs.push(output);
      if (code !== undefined) this.#exitCodes.push(code);
    };
    const { paused } = this.#caller;
    const { longestPauseMs = LONGEST_PAUSE_MS } = this.#run;
    const parts = { workers, random, server, onEnd, paused, longestPauseMs };
    const world: FaultWorld = { ...parts, nodes: pairs };
    const faults = chooseFaults(this.#run.faults, random);
    for (const [number, fault] of faults.entries()) {
      // Enough for this fault and the time after it.
      this.#progress = (number + 2) / (faults.length + 1);
      const share = (this.#run.jobs * (number + random())) / (faults.length + 1);
      while (progress() < share) await sleep(5);
      this.#faults[fault] = (this.#faults[fault] ?? 0) + 1;
      console.log(`${new Date().toISOString()}: ${progress()} jobs, ${fault}`);
      await causeFault(fault, world);
    }
    this.#progress = 1;
  }

  /** Every node answers for every endpoint. */
  async #findUnserved(): Promise<string[]> {
    const unserved: string[] = [];
    for (const [index, node] of this.#world.nodes.all.entries()) {
      for (const endpoint of ENDPOINTS) {
        const until = performance.now() + SETTLE_MS;
        let status = 0;
        while (status !== 200 && performance.now() < until) {
          status = (await node.fetch(`/v2/${endpoint}/health`)).status;
        }
        if (status !== 200) unserved.push(`node ${index}, ${endpoint}: ${status}`);
      }
    }
    return unserved;
  }

  async #countLeaks(): Promise<number> {
    const sql = `select count(*) from pg_stat_activity where application_name = 'millrace'`;
    const until = performance.now() + SETTLE_MS;
    for (;;) {
      const leaked = Number(await this.#world.server.query(sql)) - CONNECTIONS;
      if (leaked <= 0) return 0;
      if (performance.now() > until) return leaked;
      await sleep(100);
    }
  }

  async #countJobs(): Promise<number> {
    const { server, store } = this.#world;
    const schemas = Array.from({ length: SHARDS }, (_, id) =>
      id === 0 ? 'public' : `public_${id}`,
    );
    const counts = schemas.map((schema) => `(select count(*) from ${schema}.job)`);
    const database = new URL(store).pathname.slice(1);
    return Number(await server.query(`select ${counts.join(' + ')}`, database));
  }

  /** Kills all nodes and starts them again. */
  async #restart(): Promise<void> {
    const { nodes } = this.#world;
    await Promise.all(nodes.all.map((node) => node.kill()));
    this.#outputs.push(...nodes.all.map(({ process }) => process.output));
    await Promise.all(nodes.all.map((node) => node.restart()));
    await Promise.all(ENDPOINTS.map((id) => persist(() => this.#caller.fetch(`/v2/${id}/health`))));
  }

  async #end({ process }: PlatformProcess): Promise<void> {
    this.#exitCodes.push(await process.end());
    this.#outputs.push(process.output);
  }
}

/** Sends each request to a node that it chooses at random. */
class AnyNode implements Caller {
  readonly hung: string[] = [];
  readonly paused = new Set<PlatformProcess>();
  longestMs = 0;
  readonly #nodes: readonly PlatformProcess[];
  readonly #random: () => number;

  constructor(nodes: readonly PlatformProcess[], random: () => number) {
    this.#nodes = nodes;
    this.#random = random;
  }

  fetch(path: string, init?: RequestInit): Promise<Response> {
    return this.#ask(path, (node, signal) => node.fetch(path, { ...init, signal }));
  }

  post(path: string, body: unknown): Promise<Response> {
    const headers = { 'content-type': 'application/json' };
    return this.fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
  }

  async #ask(
    path: string,
    ask: (node: PlatformProcess, signal: AbortSignal) => Promise<Response>,
  ): Promise<Response> {
    const index = Math.floor(this.#random() * this.#nodes.length);
    const node = this.#nodes[index];
    if (!node) throw new Error('there is no node');
    const isPaused = this.paused.has(node);
    const signal = AbortSignal.timeout(isPaused ? PAUSED_LIMIT_MS : REQUEST_LIMIT_MS);
    const startedAt = performance.now();
    try {
      return await ask(node, signal);
    } catch (error) {
      if (signal.aborted && !isPaused) this.hung.push(`${path} at node ${index}`);
      throw error;
    } finally {
      this.longestMs = Math.max(this.longestMs, Math.round(performance.now() - startedAt));
    }
  }
}

/** Each kind once in random order, and so on. */
function chooseFaults(faults: NodeRun['faults'], random: () => number): readonly NodeFault[] {
  if (typeof faults !== 'number') return faults;
  const chosen: NodeFault[] = [];
  let left: NodeFault[] = [];
  while (chosen.length < faults) {
    if (left.length === 0) left = [...ALL_FAULTS];
    chosen.push(...left.splice(Math.floor(random() * left.length), 1));
  }
  return chosen;
}

function countHandles({ process: { child } }: PlatformProcess): number {
  return readdirSync(`/proc/${child.pid}/fd`).length;
}

const WARNING = 40;

function countLogged(outputs: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const line of outputs.join('\n').split('\n')) {
    if (!line.startsWith('{')) continue;
    const { level, msg } = JSON.parse(line);
    if (level >= WARNING) counts[`${level} ${msg}`] = (counts[`${level} ${msg}`] ?? 0) + 1;
  }
  return counts;
}
