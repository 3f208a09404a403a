// The faults of a run with several nodes: of their processes, of Postgres, of the connections between them, and of the
// workers.
import { setTimeout as sleep } from 'node:timers/promises';
import type { CommitFault, PostgresProxy } from '../network/postgres-proxy.ts';
import type { PostgresServer } from '../postgres.ts';
import type { PlatformProcess } from '../processes.ts';
import type { KilledWorker } from '../workers/killed-worker.ts';

export interface FaultyNode {
  node: PlatformProcess;
  /** Between the node and Postgres. */
  proxy: PostgresProxy;
}

export interface FaultWorld {
  nodes: readonly FaultyNode[];
  server: PostgresServer;
  workers: readonly KilledWorker[];
  random: () => number;
  /** Longest pause of a node, ms. The shortest is longer than a lease and a takeover from it. */
  longestPauseMs: number;
  /** Nodes that answer nothing now. Clients do not wait for them for long, as if behind a load balancer. */
  paused: Set<PlatformProcess>;
  /** Called with the output of each node process that has ended, and its exit code if it was asked to end. */
  onEnd: (output: string, code: number | null | undefined) => void;
}

export type NodeFault = keyof typeof FAULTS;

const SHORTEST_PAUSE_MS = 12_000;
/** A commit comes soon as long as there are jobs. */
const COMMIT_WAIT_MS = 5_000;

const FAULTS = {
  'node killed': async (world: FaultWorld) => {
    const { node } = choose(world.nodes, world.random);
    await node.process.end('SIGKILL');
    world.onEnd(node.process.output, undefined);
    await node.restart();
  },
  'node stopped': async (world: FaultWorld) => {
    const { node } = choose(world.nodes, world.random);
    const code = await node.process.end('SIGTERM');
    world.onEnd(node.process.output, code);
    await node.restart();
  },
  'node paused': async (world: FaultWorld) => {
    const { node } = choose(world.nodes, world.random);
    node.process.child.kill('SIGSTOP');
    world.paused.add(node);
    await sleep(between(world.random, SHORTEST_PAUSE_MS, world.longestPauseMs));
    node.process.child.kill('SIGCONT');
    world.paused.delete(node);
  },
  'Postgres crashed': async ({ random, server }: FaultWorld) => {
    await (random() < 0.5 ? server.crash() : server.kill());
    await sleep(between(random, 0, 3_000));
    await server.resume();
  },
  'connections cut': async ({ nodes, random }: FaultWorld) => {
    choose(nodes, random).proxy.cut();
  },
  'connection cut before commit': (world: FaultWorld) => breakCommit(world, 'before'),
  'connection cut after commit': (world: FaultWorld) => breakCommit(world, 'after'),
  'commit unanswered': async (world: FaultWorld) => {
    const proxy = await breakCommit(world, 'unanswered');
    await sleep(between(world.random, 5_000, 15_000));
    proxy.thaw();
  },
  'connections frozen': async ({ nodes, random }: FaultWorld) => {
    const { proxy } = choose(nodes, random);
    proxy.freeze();
    await sleep(between(random, 5_000, 15_000));
    proxy.thaw();
  },
  'Postgres unreachable': async ({ nodes, random }: FaultWorld) => {
    const { proxy } = choose(nodes, random);
    proxy.isClosed = true;
    proxy.cut();
    await sleep(between(random, 3_000, 12_000));
    proxy.isClosed = false;
  },
  'worker process killed': async ({ random, workers }: FaultWorld) => {
    await choose(workers, random).endProcess('SIGKILL');
  },
  'supervisor killed': async ({ random, workers }: FaultWorld) => {
    await choose(workers, random).endSupervisor('SIGKILL');
  },
};

export const ALL_FAULTS = Object.keys(FAULTS).filter((name) => name in FAULTS) as NodeFault[];

/** Resolves when the fault is over. What it causes may take longer. */
export async function causeFault(name: NodeFault, world: FaultWorld): Promise<void> {
  await FAULTS[name](world);
}

/** Breaks a connection at the next commit of a node. */
async function breakCommit(
  { nodes, random }: FaultWorld,
  fault: CommitFault,
): Promise<PostgresProxy> {
  const { proxy } = choose(nodes, random);
  const { struck } = proxy;
  proxy.fault = fault;
  for (let waited = 0; proxy.struck === struck && waited < COMMIT_WAIT_MS; waited += 10) {
    await sleep(10);
  }
  proxy.fault = undefined;
  return proxy;
}

function choose<T>(items: readonly T[], random: () => number): T {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new Error('nothing to choose from');
  return item;
}

function between(random: () => number, least: number, most: number): number {
  return least + random() * (most - least);
}
