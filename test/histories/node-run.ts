// Records a history of nodes that share a Postgres server, while nodes, the server, workers and connections fail.
import { PostgresProxy } from '../support/network/postgres-proxy.ts';
import { TcpProxy } from '../support/network/tcp-proxy.ts';
import { NodeProcesses } from '../support/node-processes.ts';
import { PostgresServer } from '../support/postgres.ts';
import type { PlatformProcess } from '../support/processes.ts';
import { createRandom } from '../support/random.ts';
import { causeFault, type FaultWorld, type NodeFault } from '../support/runs/node-faults.ts';
import type { History } from './history.ts';
import { createWeather, type Load } from './platform-run.ts';
import { record } from './run.ts';
import { addUsers, OWN_ENDPOINTS, PLATFORM_ARGS, startWorkers } from './stand.ts';

export interface NodeLoad extends Load {
  nodes: number;
  faults: readonly NodeFault[];
}

const LONGEST_PAUSE_MS = 15_000;
/** A request waits 12 s for the owner of its endpoint. */
const REQUEST_LIMIT_MS = 20_000;

export async function recordNodes({ faults, nodes: count, ...load }: NodeLoad): Promise<History> {
  await using ends = new AsyncDisposableStack();
  const random = createRandom(load.seed + 1);
  const server = await PostgresServer.start({ settings: { fsync: 'on', full_page_writes: 'on' } });
  ends.defer(() => server.stop());
  const store = await server.createDatabase();
  const proxies = await Promise.all(
    Array.from({ length: count }, () => PostgresProxy.start(server.port)),
  );
  for (const proxy of proxies) ends.defer(() => proxy.close());
  const nodes = await NodeProcesses.start({
    store: (index) => proxies[index]?.redirect(store) ?? '',
    ...{ count, shards: 2 * count, endpoints: OWN_ENDPOINTS, engine: 'process' },
    args: [...PLATFORM_ARGS, ...(load.args ?? [])],
  });
  ends.defer(() => nodes.close());
  const networks = await Promise.all(nodes.all.map(({ url }) => TcpProxy.start(url)));
  for (const network of networks) {
    network.weather = createWeather(random);
    ends.defer(() => network.close());
  }
  const users = await addUsers(nodes.at(0), load.limitKey);
  const urls = networks.map(({ url }) => url);
  const workers = startWorkers(ends, users, { urls, folder: nodes.at(0).folder });
  const paused = new Set<PlatformProcess>();
  const world: FaultWorld = {
    ...{ server, random, paused, workers: [], longestPauseMs: LONGEST_PAUSE_MS, onEnd: () => {} },
    nodes: nodes.all.flatMap((node, index) =>
      proxies.slice(index, index + 1).map((proxy) => ({ node, proxy })),
    ),
  };
  const strikes = faults.map((name) => [name, () => causeFault(name, world)] as const);
  return await record({
    ...{ ...load, users, requestLimitMs: REQUEST_LIMIT_MS },
    // A load balancer would leave out paused nodes, too.
    urls: () => urls.filter((_, index) => !paused.has(nodes.at(index))),
    faults: [Object.fromEntries(strikes), workers.faults(random)],
    async heal() {
      for (const network of networks) network.weather = undefined;
      await Promise.all(nodes.all.map((node) => node.kill()));
      await Promise.all(nodes.all.map((node) => node.restart()));
    },
  });
}
