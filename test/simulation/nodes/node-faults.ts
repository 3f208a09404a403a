// The faults of a world with nodes: one of them happens to a node, a connection or the database.

import type { CommitFate } from './database.ts';
import type { NodeEvent } from './node-events.ts';
import type { NodesWorld } from './nodes-world.ts';
import type { SimulatedNode } from './simulated-node.ts';

const HOUR_MS = 3_600_000;
const MAX_PAUSE_MS = 25_000;
const MAX_STALL_MS = 15_000;
const MAX_COMMIT_MS = 6_000;
const MAX_DOWN_MS = 4_000;
/** Messages of a commit, about. */
const MAX_MESSAGES = 8;

type Fault = (world: NodesWorld, node: SimulatedNode) => void;

/** Each with the event that is counted. */
const FAULTS: readonly (readonly [NodeEvent, Fault])[] = [
  ['killed', (_world, node) => node.process.kill()],
  ['vanished', vanish],
  ['paused', pause],
  ['left', (_world, node) => node.leave()],
  ['clock_set', setClock],
  ['connection_cut', cutConnection],
  ['connection_lost', loseConnection],
  ['network_stalled', stallNetwork],
  ['network_slow', slowNetwork],
  ['network_refused', refuseConnections],
  ['database_restarted', restartDatabase],
  ['session_ended', endSession],
  ['lock_lost', loseLocks],
];

export function breakSomething(world: NodesWorld): void {
  const [name, act] = FAULTS[below(world, FAULTS.length)] ?? FAULTS[0] ?? [];
  const running = world.nodes.filter(({ parts, process }) => parts && process.isRunning);
  const node = running[below(world, running.length)];
  if (!node || !act || name === undefined) return;
  world.events.count(name);
  world.monitor.noteFault();
  act(world, node);
}

/** The fate of each commit in a storm. */
export function chooseStormFate(world: NodesWorld): CommitFate {
  const dice = world.random();
  if (dice > 0.08) return 'done';
  world.monitor.noteFault();
  const count = (fate: CommitFate, name: NodeEvent) => {
    world.events.count(name);
    return fate;
  };
  if (dice < 0.02) return count('full', 'commit_failed');
  if (dice < 0.04) return count('unheard', 'commit_unheard');
  if (dice < 0.06) return count('lost', 'commit_lost');
  return count(1 + below(world, MAX_COMMIT_MS), 'commit_slow');
}

function below({ random }: NodesWorld, limit: number): number {
  return Math.floor(random() * limit);
}

/** The machine is gone: the server does not learn that its connections have ended. */
function vanish(world: NodesWorld, { process }: SimulatedNode): void {
  for (const connection of [...world.postgres.connections]) {
    if (connection.process === process) connection.vanish();
  }
  process.kill();
}

function pause(world: NodesWorld, { process }: SimulatedNode): void {
  process.pause();
  world.clock.after(1_000 + below(world, MAX_PAUSE_MS), () => {
    world.monitor.noteFault();
    process.resume();
  });
}

function setClock(world: NodesWorld, node: SimulatedNode): void {
  node.wallOffsetMs = below(world, 2 * HOUR_MS) - HOUR_MS;
}

function cutConnection(world: NodesWorld): void {
  const connections = [...world.postgres.connections];
  connections[below(world, connections.length)]?.cutAfter(below(world, MAX_MESSAGES));
}

/** Half open: neither side learns of it at once. */
function loseConnection(world: NodesWorld): void {
  const connections = [...world.postgres.connections];
  connections[below(world, connections.length)]?.vanish();
}

function stallNetwork(world: NodesWorld, { network }: SimulatedNode): void {
  network.stalledUntil = world.clock.now() + below(world, MAX_STALL_MS);
  world.monitor.noteFault(network.stalledUntil);
}

function slowNetwork(world: NodesWorld, { network }: SimulatedNode): void {
  network.latencyMs = 100 + below(world, 1_500);
  const slowMs = below(world, MAX_STALL_MS);
  world.monitor.noteFault(world.clock.now() + slowMs);
  world.clock.after(slowMs, () => {
    network.latencyMs = 1;
  });
}

function refuseConnections(world: NodesWorld, { network, process }: SimulatedNode): void {
  network.isRefused = true;
  for (const connection of [...world.postgres.connections]) {
    if (connection.process === process) connection.cut();
  }
  const refusedMs = below(world, MAX_STALL_MS);
  world.monitor.noteFault(world.clock.now() + refusedMs);
  world.clock.after(refusedMs, () => {
    network.isRefused = false;
  });
}

function restartDatabase(world: NodesWorld): void {
  const downMs = 200 + below(world, MAX_DOWN_MS);
  world.postgres.restart(downMs);
  world.monitor.noteFault(world.clock.now() + downMs);
}

function endSession(world: NodesWorld): void {
  const backends = [...world.postgres.sessions.values()];
  backends[below(world, backends.length)]?.terminate();
}

/** Most nodes freeze then: another one takes over, and finds no session that it could end. */
function loseLocks(world: NodesWorld, node: SimulatedNode): void {
  for (const { backend, process } of world.postgres.connections) {
    if (process === node.process) backend.loseLocks();
  }
  if (world.random() < 0.7) pause(world, node);
}
