// Watches the simulated nodes from outside, with the truth of the database: which node serves what, and how long nobody
// does.
import type { JobKey, StoredJob, UnusedPayload } from '../../../src/store/store.ts';
import { isTerminal } from '../../../src/wire/job/job.ts';
import type { MemoryTables } from '../memory-tables.ts';
import type { VirtualTime } from '../virtual-time.ts';
import { nameSchema } from './database.ts';
import type { SimulatedNode } from './simulated-node.ts';
import type { SimulatedPostgres } from './simulated-postgres.ts';

const STEP_MS = 500;
/** The takeover time that docs/scaling-out.md promises, ms. */
export const TAKEOVER_MS = 12_000;

export interface ServiceMonitorOptions {
  clock: VirtualTime;
  nodes: readonly SimulatedNode[];
  postgres: SimulatedPostgres;
  endpointIds: readonly string[];
  complain: (fault: string) => void;
  signal: AbortSignal;
}

export class ServiceMonitor {
  readonly #options: ServiceMonitorOptions;
  /** Since when nobody serves an endpoint. */
  readonly #unserved = new Map<string, number>();
  #lastFault = Number.NEGATIVE_INFINITY;

  constructor(options: ServiceMonitorOptions) {
    this.#options = options;
  }

  start(): void {
    const { clock, signal } = this.#options;
    const step = () => {
      if (signal.aborted) return;
      for (const id of this.#options.endpointIds) this.#look(id);
      clock.after(STEP_MS, step);
    };
    step();
  }

  /** Something was broken until `at`: the bound counts from then. Default: now. */
  noteFault(at = this.#options.clock.now()): void {
    this.#lastFault = Math.max(this.#lastFault, at);
  }

  /** A node is about to serve a request for the endpoint. */
  checkServing({ id }: SimulatedNode, endpointId: string): void {
    const { clock, complain, postgres } = this.#options;
    const { cluster } = postgres;
    const shard = cluster.shards[findShard(endpointId)];
    const until = cluster.nodes.get(id)?.until ?? 0;
    const name = `${clock.now()}: ${id} serves ${endpointId}`;
    if (until <= clock.now()) complain(`${name}, and its lease has ended`);
    if (shard && shard.owner !== null && shard.owner !== id && cluster.isLive(shard.owner)) {
      const sinceMs = clock.now() - shard.claimedAt;
      if (sinceMs > TAKEOVER_MS)
        complain(`${name}, which ${shard.owner} has owned for ${sinceMs} ms`);
    }
  }

  /** A node is about to acknowledge the job. */
  checkStored({ id }: SimulatedNode, key: JobKey): void {
    if (this.findStored(key)) return;
    this.#options.complain(`${id} acknowledges job ${key.id} before its commit`);
  }

  /** Payloads that no job of the endpoint's shard has. */
  listUnused(endpointId: string): UnusedPayload[] {
    const tables = this.#tablesOf(endpointId);
    const step = tables.readCommitted(() => tables.unusedPayloads(10).next());
    return step.done ? step.value : [];
  }

  /** The rows of jobs that have not ended, as committed: also of those whose client got no answer. */
  listLive(endpointId: string): StoredJob[] {
    const tables = this.#tablesOf(endpointId);
    const listing = { endpointId, status: undefined, before: undefined, limit: 1_000 };
    const step = tables.readCommitted(() => tables.jobs(listing).next());
    return step.done ? step.value.filter(({ status }) => !isTerminal(status)) : [];
  }

  #tablesOf(endpointId: string): MemoryTables {
    return this.#options.postgres.schema(nameSchema(findShard(endpointId))).tables;
  }

  /** The row of a job, as committed. */
  findStored(key: JobKey): StoredJob | undefined {
    const tables = this.#tablesOf(key.endpointId);
    const step = tables.readCommitted(() => tables.job(key).next());
    return step.done ? step.value : undefined;
  }

  #look(endpointId: string): void {
    const { clock, complain, nodes } = this.#options;
    const now = clock.now();
    const running = nodes.flatMap(({ parts, process }) =>
      parts && process.isRunning ? [parts] : [],
    );
    // Nobody can take over from nobody.
    if (running.length === 0) this.noteFault();
    const isServed = running.some(({ placement }) => placement.find(endpointId).kind === 'here');
    if (isServed) {
      this.#unserved.delete(endpointId);
      return;
    }
    const since = this.#unserved.get(endpointId) ?? now;
    this.#unserved.set(endpointId, since);
    const waitedMs = now - Math.max(since, this.#lastFault);
    if (waitedMs <= TAKEOVER_MS) return;
    complain(`${now}: nobody has served ${endpointId} for ${waitedMs} ms`);
    this.#unserved.set(endpointId, now);
  }
}

function findShard(endpointId: string): number {
  return Number(endpointId.slice(1));
}
