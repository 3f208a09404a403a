// Manages the workers of all endpoints: reconciles an endpoint as soon as something has changed,
// and at an interval while it has workers. workforce.ts is one pass.
import { Loop, NEVER, RETRY_MS } from '../../base/loop.ts';
import { logLevelOf } from '../../store/store.ts';
import type { KnownScaling, ScalingFacts } from '../../wire/resources/scaling.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { Pods } from '../pods/pods.ts';
import { GpuTenants } from '../tenancy/gpu-tenants.ts';
import { listFreeGpus } from './worker-starter.ts';
import { type DeployedEndpoint, Workforce, type WorkforceOptions } from './workforce.ts';

/** Interval of passes over an endpoint that has workers or needs some, ms. */
const PASS_EVERY_MS = 500;
/**
 * Least time between two passes over the same endpoint, because thousands of jobs may arrive at
 * once.
 */
const PASS_PAUSE_MS = 100;
/** The same for endpoints that take turns on a GPU at the moment: each pause would delay a waiting job. */
const TURN_PAUSE_MS = 10;
/** Twice the lease within which a worker counts as connected. */
const DEFAULT_SILENT_MS = 30_000;

export interface FleetOptions extends Omit<WorkforceOptions, 'silentMs' | 'pods' | 'tenants'> {
  endpoints: Pick<Endpoints, 'all' | 'find' | 'onChange' | 'changeDeployment'>;
  pods: WorkforceOptions['pods'] & Pick<Pods, 'live' | 'onChange'>;
  /** A ready worker that was silent for this long is dead, ms. Default 30,000. */
  silentMs?: number;
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly #loop: Loop;
  readonly #closing = new AbortController();
  readonly #closers: (() => void)[] = [];
  /** When an endpoint's next pass is due, Unix ms. */
  readonly #dueAt = new Map<string, number>();
  readonly #passedAt = new Map<string, number>();
  readonly #workforces = new Map<string, Promise<Workforce>>();
  readonly #scaling = new Map<string, ScalingFacts>();
  readonly #tenants: GpuTenants;
  /** Endpoints that wait for a GPU, and those of the workers that have it. */
  #awaited: ReadonlySet<string> = new Set();
  /** Endpoints of these workers alone. */
  #holders: ReadonlySet<string> = new Set();
  /** Endpoints by pod: a removed pod no longer knows its endpoint. */
  readonly #endpointOf = new Map<string, string>();
  #running: Promise<void> = Promise.resolve();

  constructor(options: FleetOptions) {
    this.#options = options;
    const { catalog, clock, log, pods } = options;
    this.#tenants = new GpuTenants({
      pods,
      clock,
      listFree: (types) =>
        listFreeGpus(types, { devicesOf: (id) => catalog.gpuDevices(id), pods: pods.all() }),
    });
    this.#loop = new Loop({
      clock,
      closing: this.#closing.signal,
      pass: () => this.#passOverDue(),
      onError: (error) => log.error({ err: error }, 'reconcile pass failed, retrying'),
    });
  }

  /** Takes over the existing workers. */
  start(): void {
    const { endpoints, pods } = this.#options;
    this.#closers.push(
      endpoints.onChange(({ id }) => this.#wakeNow(id)),
      pods.onChange((id, change) => {
        this.#tenants.noteChange();
        if (change === 'record') this.#notePodChange(id);
      }),
    );
    for (const { endpointId, id } of pods.all()) {
      if (endpointId === null) continue;
      this.#endpointOf.set(id, endpointId);
      this.#wakeNow(endpointId);
    }
    for (const { deployment, id } of endpoints.all()) if (deployment) this.#wakeNow(id);
    this.#running = this.#loop.run();
  }

  /** The workers keep running. */
  async close(): Promise<void> {
    this.#closing.abort();
    for (const close of this.#closers.splice(0)) close();
    await this.#running;
  }

  /** What the scaler knows of the endpoint's workers, for the reason why its jobs wait. */
  scalingOf(endpointId: string): KnownScaling {
    if (!isDeployed(this.#options.endpoints.find(endpointId))) return 'none';
    const facts = this.#scaling.get(endpointId);
    if (facts?.cause !== 'no_gpu') return facts ?? 'unknown';
    const holder = this.#tenants.holderOf(endpointId);
    return holder ? { ...facts, holder } : facts;
  }

  /** Something has changed at the endpoint; may be called for every job, and for any endpoint. */
  wake(endpointId: string): void {
    const { clock, endpoints } = this.#options;
    if (!endpoints.find(endpointId)?.deployment) return;
    const pauseMs = this.#awaited.has(endpointId) ? TURN_PAUSE_MS : PASS_PAUSE_MS;
    const soonest = (this.#passedAt.get(endpointId) ?? 0) + pauseMs;
    this.#setDue(endpointId, Math.max(clock.now(), soonest));
  }

  #wakeNow(endpointId: string): void {
    this.#setDue(endpointId, this.#options.clock.now());
  }

  #setDue(endpointId: string, at: number): void {
    if (at >= (this.#dueAt.get(endpointId) ?? NEVER)) return;
    this.#dueAt.set(endpointId, at);
    this.#loop.wake(at);
  }

  #notePodChange(id: string): void {
    const pod = this.#options.pods.live.get(id);
    if (pod && pod.endpointId !== null) this.#endpointOf.set(id, pod.endpointId);
    const endpointId = this.#endpointOf.get(id);
    if (!pod) this.#endpointOf.delete(id);
    if (endpointId !== undefined) this.wake(endpointId);
    this.#takeTurns();
  }

  /** Wakes the endpoints that give way now, that get a GPU now, or for whose workers' turn somebody waits. */
  #takeTurns(): void {
    const now = this.#options.clock.now();
    const { moves, waits } = this.#tenants.plan();
    const holders = waits.flatMap(({ holder }) => holder ?? []);
    this.#holders = new Set([...moves, ...holders].map(({ endpointId }) => endpointId));
    this.#awaited = this.#holders.union(new Set(waits.map(({ endpointId }) => endpointId)));
    for (const { endpointId } of moves) this.wake(endpointId);
    for (const { endpointId, granted } of waits) if (granted.length > 0) this.wake(endpointId);
    for (const { endpointId, until } of holders) {
      if (until !== null && until > now) this.#setDue(endpointId, until);
    }
  }

  /** Returns when the next pass is due, Unix ms. */
  async #passOverDue(): Promise<number> {
    const now = this.#options.clock.now();
    const due = [...this.#dueAt].filter(([, at]) => at <= now);
    for (const [id] of due) {
      if (this.#closing.signal.aborted) break;
      await this.#pass(id);
    }
    return Math.min(...this.#dueAt.values());
  }

  async #pass(id: string): Promise<void> {
    const { clock, endpoints, log } = this.#options;
    this.#dueAt.delete(id);
    this.#passedAt.set(id, clock.now());
    const endpoint = endpoints.find(id);
    try {
      if (!isDeployed(endpoint)) return await this.#leave(id);
      const workforce = await this.#workforceOf(id);
      const outlook = await workforce.reconcile(endpoint);
      if (workforce.facts) this.#scaling.set(id, workforce.facts);
      if (outlook === 'idle') this.#rest(id);
      this.#setDue(id, workforce.minimumChangesAt);
      // Nobody tells that a worker became idle. Those that wait need not look again so soon: there may be many.
      const everyMs = this.#holders.has(id) ? PASS_PAUSE_MS : PASS_EVERY_MS;
      if (outlook === 'busy') this.#setDue(id, clock.now() + everyMs);
      this.#takeTurns();
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      log[logLevelOf(error)]({ endpoint: id, err: error }, 'reconcile pass failed, retrying');
      this.#setDue(id, clock.now() + RETRY_MS);
    }
  }

  /** A job that arrives right after a pass must not wait for the interval. */
  #rest(id: string): void {
    this.#passedAt.delete(id);
    if (this.#dueAt.has(id)) this.#wakeNow(id);
  }

  /** The endpoint was deleted or has no workers of its own. */
  async #leave(id: string): Promise<void> {
    const { pods } = this.#options;
    this.#workforces.delete(id);
    this.#scaling.delete(id);
    this.#tenants.forget(id);
    this.#passedAt.delete(id);
    this.#options.gpuUse?.forget(id);
    await Promise.all(pods.ofEndpoint(id).map((pod) => pods.endWorker(pod.id)));
  }

  #workforceOf(id: string): Promise<Workforce> {
    const known = this.#workforces.get(id);
    if (known) return known;
    const { silentMs = DEFAULT_SILENT_MS } = this.#options;
    const opened = Workforce.open({ ...this.#options, silentMs, tenants: this.#tenants }, id);
    this.#workforces.set(id, opened);
    opened.catch(() => this.#workforces.delete(id));
    return opened;
  }
}

type AnyEndpoint = ReturnType<FleetOptions['endpoints']['find']>;

function isDeployed(endpoint: AnyEndpoint): endpoint is DeployedEndpoint {
  return endpoint !== undefined && endpoint.deployment !== null;
}
