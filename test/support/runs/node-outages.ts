// Kills and pauses nodes at random, mostly the one that leads.
import { setTimeout as sleep } from 'node:timers/promises';
import { nodeList } from '../../../src/wire/resources/nodes.ts';
import type { NodeProcesses } from '../node-processes.ts';
import type { PlatformProcess } from '../processes.ts';
import type { AnyAnswer } from './any-answer.ts';

/** A node did not answer. */
export interface Outage {
  folder: string;
  kind: 'killed' | 'paused';
  hasLed: boolean;
  /** Unix ms. */
  from: number;
  to: number;
}

export interface OutagesOptions {
  nodes: NodeProcesses;
  caller: AnyAnswer;
  random: () => number;
  /** The last one begins at most so late, ms. */
  forMs: number;
}

const LEADER_SHARE = 0.7;
const KILLED_SHARE = 0.65;
const LONGEST_DOWN_MS = 12_000;
/** Longer than a lease and a takeover. */
const [SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS] = [12_000, 20_000];
const LONGEST_CALM_MS = 6_000;

export async function causeOutages(options: OutagesOptions): Promise<Outage[]> {
  const { caller, forMs, nodes, random } = options;
  const outages: Outage[] = [];
  const end = Date.now() + forMs;
  while (Date.now() < end) {
    const leader = await findLeader(nodes, caller);
    const node = random() < LEADER_SHARE ? leader : nodes.at(Math.floor(random() * 3));
    const kind = random() < KILLED_SHARE ? 'killed' : 'paused';
    const from = Date.now();
    if (kind === 'killed') {
      await node.kill();
      await sleep(random() < 0.5 ? 0 : random() * LONGEST_DOWN_MS);
      await node.restart();
    } else {
      node.process.child.kill('SIGSTOP');
      await sleep(SHORTEST_PAUSE_MS + random() * (LONGEST_PAUSE_MS - SHORTEST_PAUSE_MS));
      node.process.child.kill('SIGCONT');
    }
    const { folder } = node;
    outages.push({ folder, kind, hasLed: node === leader, from, to: Date.now() });
    await sleep(random() * LONGEST_CALM_MS);
  }
  return outages;
}

async function findLeader(nodes: NodeProcesses, caller: AnyAnswer): Promise<PlatformProcess> {
  for (;;) {
    const { body } = await caller.insist({ path: '/v1/nodes' });
    const leader = nodeList.parse(body).nodes.find(({ isLeader }) => isLeader);
    const index = nodes.urls.indexOf(leader?.url ?? '');
    if (index >= 0) return nodes.at(index);
    await sleep(100);
  }
}
