// A simulated world with three nodes on one database: the real queues and memberships, real workers, and clients that
// call any node. The seed determines everything.
import type { LiveEndpoint } from '../../../src/control/endpoints/endpoint-records.ts';
import { OWNER } from '../../../src/store/store.ts';
import type { WorkerLink } from '../../../src/wire/link/worker-link.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { CALM, type Weather } from '../flaky-link.ts';
import { Ledger } from '../ledger.ts';
import { SimulatedWorker } from '../simulated-worker.ts';
import { VirtualTime } from '../virtual-time.ts';
import { type CommitFate, TARGET } from './database.ts';
import { type Asking, CallFailedError, Entrance } from './entrance.ts';
import { JOB_LIMIT_MS, NodeClients } from './node-clients.ts';
import { NodeEvents } from './node-events.ts';
import { ServiceMonitor } from './service-monitor.ts';
import { SimulatedNode } from './simulated-node.ts';
import { SimulatedPostgres } from './simulated-postgres.ts';

const NODES = 3;
const SHARDS = 3;
/** How far the clock of a node may be from that of another. */
const CLOCK_TOLERANCE_MS = 3_000;
const MAX_RESTART_MS = 4_000;
/** So few that the queue has to page jobs in and drop them all the time. */
const LIVE = { windowJobs: 3, readyJobs: 6, endedJobs: 2 };

export class NodesWorld {
  readonly clock = new VirtualTime();
  readonly random: () => number;
  readonly faults: string[] = [];
  readonly events = new NodeEvents();
  readonly nodes: SimulatedNode[] = [];
  readonly workers: { endpointId: string; worker: SimulatedWorker }[] = [];
  readonly ledgers: ReadonlyMap<string, Ledger>;
  readonly postgres: SimulatedPostgres;
  readonly monitor: ServiceMonitor;
  readonly clients: NodeClients;
  weather: Weather = CALM;
  /** Share of lost messages. */
  lost = 0;
  chooseFate: () => CommitFate = () => 'done';
  /** Share of transactions that fail before their commit. */
  failedWrites = 0;
  readonly #endpoints: readonly LiveEndpoint[];
  readonly #entrance: Entrance;
  readonly #over = new AbortController();
  readonly #tables: { smallBytes: number; rowsAtOnce: number };
  #started = 0;
  #workerCount = 0;
  /** The node that has opened a shard last. */
  readonly #openers = new Map<number, SimulatedNode>();

  constructor(random: () => number) {
    this.random = random;
    const { clock } = this;
    this.#tables = { smallBytes: 64, rowsAtOnce: 1 + 2 * Math.floor(random() * 2) };
    this.#endpoints = Array.from({ length: SHARDS }, (_, shard) => ({
      ...{ id: `e${shard}`, userId: OWNER, deployment: null, shard, createdAt: clock.now() },
      settings: endpointSettings.parse({ maxAttempts: 3 }),
    }));
    const ids = this.#endpoints.map(({ id }) => id);
    const shared = { toleranceMs: CLOCK_TOLERANCE_MS, ends: new Map() };
    this.ledgers = new Map(ids.map((id) => [id, new Ledger(clock, shared)]));
    const complain = (fault: string) => this.faults.push(fault);
    this.postgres = new SimulatedPostgres({
      ...{ time: clock, random, shards: SHARDS, tables: this.#tables, complain },
      chooseFate: () => this.chooseFate(),
      failsWrite: () => this.#failsWrite(),
      onFenced: () => this.events.count('fenced'),
    });
    this.#declareEndpoints();
    this.monitor = new ServiceMonitor({
      ...{ clock, nodes: this.nodes, postgres: this.postgres, endpointIds: ids, complain },
      signal: this.#over.signal,
    });
    this.#entrance = new Entrance({
      ...{ time: clock, random, lost: () => this.lost },
      findNode: (url) => this.nodes.find((node) => node.url === url && !node.process.isDead),
      onServe: (node, endpointId) => this.monitor.checkServing(node, endpointId),
      count: (event) => this.events.count(event),
    });
    this.clients = new NodeClients({
      ...{ clock, random, entrance: this.#entrance, monitor: this.monitor, faults: this.faults },
      ...{ signal: this.signal, endpointIds: ids, ledgerOf: (id) => this.#ledger(id) },
      listNodes: () => this.#listNodes(),
    });
    for (let place = 0; place < NODES; place++) this.nodes.push(this.#createNode(place));
  }

  /** Aborted when the world is closed. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  get endpointIds(): string[] {
    return this.#endpoints.map(({ id }) => id);
  }

  start(workers: number): void {
    for (const endpointId of this.endpointIds) {
      for (let n = 0; n < workers; n++) this.addWorker(endpointId);
    }
    this.monitor.start();
  }

  addWorker(endpointId: string): void {
    const worker = this.#createWorker(endpointId);
    this.workers.push({ endpointId, worker });
  }

  /** Starts the node of this place again, when its process has ended. */
  restartLater(place: number): void {
    const downMs = Math.floor(this.random() * MAX_RESTART_MS);
    this.clock.after(downMs, () => {
      if (this.signal.aborted || !this.nodes[place]?.process.isDead) return;
      this.nodes[place] = this.#createNode(place);
    });
  }

  /** From now on nothing disturbs the world. */
  calmDown(): void {
    this.weather = CALM;
    this.lost = 0;
    this.clients.calmDown();
    this.chooseFate = () => 'done';
    this.failedWrites = 0;
    for (const connection of [...this.postgres.connections]) connection.calmDown();
    for (const { network, process } of this.nodes) {
      network.latencyMs = 1;
      network.isRefused = false;
      process.resume();
    }
    this.monitor.noteFault();
  }

  close(): void {
    this.#over.abort();
    for (const { worker } of this.workers) worker.close();
    for (const { process } of this.nodes) process.kill();
  }

  #ledger(endpointId: string): Ledger {
    const ledger = this.ledgers.get(endpointId);
    if (!ledger) throw new Error(`endpoint ${endpointId} has no ledger`);
    return ledger;
  }

  #choose<T>(from: readonly T[]): T {
    const chosen = from[Math.floor(this.random() * from.length)];
    if (chosen === undefined) throw new Error('nothing to choose from');
    return chosen;
  }

  /** A load balancer calls nodes that have started. */
  #listNodes(): readonly SimulatedNode[] {
    const started = this.nodes.filter(({ parts, process }) => parts && !process.isDead);
    return started.length > 0 ? started : this.nodes;
  }

  #declareEndpoints(): void {
    const { tables } = this.postgres.schema(TARGET.schema);
    for (const endpoint of this.#endpoints) tables.putEndpoint(endpoint).next();
    tables.commit();
  }

  #createNode(place: number): SimulatedNode {
    const { clock: time, postgres, random } = this;
    const url = `http://node-${place}`;
    const { wallOffsetMs = 0 } = this.nodes[place] ?? {};
    const node: SimulatedNode = new SimulatedNode({
      ...{ id: `node_${++this.#started}`, url, time, random, postgres, live: LIVE },
      tables: this.#tables,
      endpoints: this.#endpoints,
      settings: {
        retentionMs: { run: JOB_LIMIT_MS, runsync: JOB_LIMIT_MS },
        payloadPartBytes: 64,
      },
      onChange: (before, after) => {
        const endpointId = (after ?? before)?.endpointId;
        if (endpointId !== undefined) this.#ledger(endpointId).note(before, after);
      },
      onOpen: (shard) => this.#noteOpen(shard, node),
      onLost: () => this.events.count('lost'),
      callNode: async (from, toUrl) => {
        const to = this.nodes.find((each) => each.url === toUrl);
        if (!to) return;
        const { signal } = new AbortController();
        await this.#entrance.send({ from, to, signal }, () => to.reload());
      },
      callPeer: (from, { shard, url }, act) => {
        const to = this.nodes.find((each) => each.url === url);
        const { signal } = new AbortController();
        if (!to) throw new CallFailedError('there is no such node');
        return this.#entrance.send({ from, to, signal }, async () => {
          const service = to.parts?.queues.serviceOf(shard);
          if (!service) throw new CallFailedError('the node does not serve the shard');
          return act(service);
        });
      },
    });
    node.wallOffsetMs = wallOffsetMs;
    node.process.onDeath(() => {
      if (!this.signal.aborted) this.restartLater(place);
    });
    return node;
  }

  #failsWrite(): boolean {
    const fails = this.random() < this.failedWrites;
    if (!fails) return false;
    this.events.count('write_failed');
    this.monitor.noteFault();
    return true;
  }

  #noteOpen(shard: number, node: SimulatedNode): void {
    const before = this.#openers.get(shard);
    this.#openers.set(shard, node);
    this.#ledger(`e${shard}`).platformRestarted();
    this.events.count('opened');
    if (!before || before === node || before.isLeaving) return;
    if (before.process.isDead) this.events.count('taken_over');
    else if (!before.process.isRunning) this.events.count('taken_from_paused');
  }

  #createWorker(endpointId: string): SimulatedWorker {
    const { clock, random } = this;
    const ledger = this.#ledger(endpointId);
    const link = this.#createLink(endpointId);
    return new SimulatedWorker({
      ...{ id: `w${this.#workerCount++}`, gpu: undefined },
      ...{ clock, random, weather: () => this.weather, platform: () => link },
      onReply: (report, reply) => ledger.noteReply(report, reply),
      onDeath: (left) => ledger.noteLeft([...left.values()]),
      hasDisk: random() < 0.6,
      isSupervised: random() < 0.6,
    });
  }

  /** Each call goes to any node. */
  #createLink(endpointId: string): WorkerLink {
    const ledger = this.#ledger(endpointId);
    const ask = <T>(
      run: (link: WorkerLink, asking: Asking) => Promise<T>,
      signal?: AbortSignal,
    ): Promise<T> =>
      this.#entrance.ask(this.#choose(this.#listNodes()), {
        ...{ endpointId, isWorker: true, isRepeatable: true, ...(signal && { signal }) },
        run: (queues, asking) => run(ledger.watch(queues.link(endpointId)), asking),
      });
    return {
      hello: (hello) => ask((link) => link.hello(hello)),
      take: (request, signal) => ask((link, asking) => link.take(request, asking.signal), signal),
      renew: (request, signal) => ask((link, asking) => link.renew(request, asking.signal), signal),
      report: (request) => ask((link) => link.report(request)),
      bye: (bye) => ask((link) => link.bye(bye)),
    };
  }
}
