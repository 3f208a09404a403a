// An engine whose containers are entries in a map; their arguments and the test decide what they
// do. The host outlives its engines, as a machine outlives its platform.
import { type Clock, sleep } from '../../../src/base/clock.ts';
import { DOCKER_CAPABILITIES } from '../../../src/engine/docker/docker-engine.ts';
import {
  type Container,
  type ContainerSpec,
  type ContainerStats,
  type Engine,
  type EngineCapabilities,
  EngineError,
} from '../../../src/engine/engine.ts';

const PROCESS_CAPABILITIES: EngineCapabilities = {
  ...DOCKER_CAPABILITIES,
  disk: { keptOverStop: true, limit: 'never' },
  globalNetworking: false,
  gpusAtStart: true,
};

interface Entry {
  spec: ContainerSpec;
  seen: Container;
  /** Files on its disk, one for each run. */
  runsOnDisk: number;
}

/** Times are of the monotonic clock, ms. */
export interface HostRun {
  id: string;
  gpus: number;
  startedAt: number;
  endedAt: number | null;
}

export class MemoryHost {
  readonly containers = new Map<string, Entry>();
  /** Pods with a volume of their own. */
  readonly volumes = new Set<string>();
  /** Error that every verb throws while it is set. */
  trouble: Error | undefined;
  /** Removed containers stay for now, without a notification. */
  isSlow = false;
  /** Containers have disks of a fixed size, as on Docker with quotas. */
  limitsDisks = true;
  /** Containers start with any GPUs, as processes do. */
  gpusAtStart = false;
  /** Containers ignore stops. */
  isStubborn = false;
  /** Whether a machine has capacity for the container; otherwise its start waits. */
  hasRoom: (spec: ContainerSpec) => boolean = () => true;
  /** How long a new image is pulled, ms; 0: it is there. */
  pullMs = 0;
  /** Grace period of each container's last stop. */
  readonly graces = new Map<string, number>();
  readonly #clock: Clock & { monotonic?: () => number };
  readonly #watchers = new Set<(id: string) => void>();
  /** Every run of a container, the oldest first. */
  readonly runs: HostRun[] = [];
  #lastStart = 0;

  constructor(clock: Clock & { monotonic?: () => number }) {
    this.#clock = clock;
  }

  wait(ms: number): Promise<unknown> {
    return sleep(this.#clock, ms);
  }

  get(id: string): Entry {
    const entry = this.containers.get(id);
    if (!entry) throw new Error(`container ${id} not found`);
    return entry;
  }

  /** The container exits by itself. */
  end(id: string, exitCode: number): void {
    const { seen } = this.get(id);
    if (seen.state !== 'running' && seen.state !== 'starting') return;
    this.#endRun(id);
    this.change(id, { state: 'exited', exitCode, endedAt: this.#clock.now(), ports: [] });
  }

  #endRun(id: string): void {
    const run = this.runs.findLast((each) => each.id === id && each.endedAt === null);
    if (run) run.endedAt = this.#elapsed();
  }

  #elapsed(): number {
    return this.#clock.monotonic?.() ?? this.#clock.now();
  }

  change(id: string, fields: Partial<Container>): void {
    const entry = this.get(id);
    entry.seen = { ...entry.seen, ...fields };
    this.#notify(id);
  }

  watch(onChange: (id: string) => void): () => void {
    this.#watchers.add(onChange);
    return () => this.#watchers.delete(onChange);
  }

  create(spec: ContainerSpec): void {
    const known = this.containers.get(spec.id);
    if (known?.seen.generation === spec.generation) return;
    if (known) throw new EngineError('unavailable', `${spec.id} is there in another generation`);
    if (spec.image === 'missing') throw new EngineError('refused', 'there is no image "missing"');
    if (spec.mounts.some(({ kind }) => kind === 'persistent')) this.volumes.add(spec.id);
    const { generation, gpus, id, labels } = spec;
    const hasDiskLimit = this.limitsDisks;
    const never = {
      hasDiskLimit,
      exitCode: null,
      outOfMemory: false,
      startedAt: null,
      endedAt: null,
    };
    this.containers.set(id, {
      spec,
      seen: {
        id,
        generation,
        labels,
        state: 'created',
        health: 'none',
        ...never,
        ports: [],
        gpus,
        ...(this.gpusAtStart && { gpusAtStart: true }),
        ip: null,
      },
      runsOnDisk: 0,
    });
    this.#notify(id);
  }

  /** `exit <code>`: the container exits at once; `check`: it has a health check that the test answers. */
  start(id: string, given?: readonly string[]): void {
    const entry = this.containers.get(id);
    if (!entry) throw new EngineError('refused', `container ${id} not found`);
    if (entry.seen.state === 'running') return;
    const { args, network, ports } = entry.spec;
    if (args === 'unstartable') throw new EngineError('refused', 'there is no such command');
    if (!this.hasRoom(entry.spec)) {
      const message = 'the cluster has no capacity for it: 0/1 nodes are available';
      this.change(id, {
        state: 'starting',
        waiting: { cause: 'capacity', message, isFinal: false },
      });
      return;
    }
    entry.runsOnDisk++;
    // Each run has another start time, as on a real machine.
    this.#lastStart = Math.max(this.#lastStart + 1, this.#clock.now());
    const ahead = this.#lastStart - this.#clock.now();
    const gpus = (this.gpusAtStart && given) || entry.spec.gpus;
    this.runs.push({ id, gpus: gpus.length, startedAt: this.#elapsed() + ahead, endedAt: null });
    this.change(id, {
      ...{ state: 'running', exitCode: null, endedAt: null, startedAt: this.#lastStart },
      gpus,
      health: args === 'check' ? 'starting' : 'none',
      ports: ports.map(({ private: port, protocol }) => ({
        ...{ private: port, public: port + 30_000, type: protocol, ip: '127.0.0.1' },
      })),
      ip: network === null ? null : '10.0.0.7',
    });
    const [, code] = /^exit (\d+)$/.exec(args) ?? [];
    if (code !== undefined) this.end(id, Number(code));
  }

  remove(id: string, volumes: 'keep' | 'remove'): void {
    if (this.isSlow) return;
    if (volumes === 'remove') this.volumes.delete(id);
    this.#endRun(id);
    if (this.containers.delete(id)) this.#notify(id);
  }

  #notify(id: string): void {
    for (const watcher of this.#watchers) watcher(id);
  }
}

export class MemoryEngine implements Engine {
  readonly kind: Engine['kind'];
  readonly host: MemoryHost;

  /** A test may take some away. */
  readonly capabilities: EngineCapabilities;

  constructor(host: MemoryHost, kind: Engine['kind'] = 'docker') {
    this.host = host;
    this.capabilities =
      kind === 'process' ? PROCESS_CAPABILITIES : structuredClone(DOCKER_CAPABILITIES);
    this.kind = kind;
  }

  async create(spec: ContainerSpec, onPull?: () => void): Promise<void> {
    if (this.host.pullMs > 0) {
      onPull?.();
      await this.host.wait(this.host.pullMs);
    }
    return this.#try(() => this.host.create(spec));
  }

  start(id: string, gpus?: readonly string[]): Promise<void> {
    return this.#try(() => this.host.start(id, gpus));
  }

  async stop(id: string, graceMs: number): Promise<void> {
    if (this.host.isStubborn) await new Promise(() => {});
    return this.#try(() => {
      this.host.graces.set(id, graceMs);
      if (this.host.containers.has(id)) this.host.end(id, 143);
    });
  }

  remove(id: string, volumes: 'keep' | 'remove'): Promise<void> {
    return this.#try(() => this.host.remove(id, volumes));
  }

  inspect(id: string): Promise<Container | undefined> {
    return this.#try(() => this.host.containers.get(id)?.seen);
  }

  list(): Promise<Container[]> {
    return this.#try(() => [...this.host.containers.values()].map(({ seen }) => seen));
  }

  stats(id: string): Promise<ContainerStats | undefined> {
    return this.#try(() => {
      const seen = this.host.containers.get(id)?.seen;
      if (seen?.state !== 'running') return undefined;
      return { cpu: 12.4, memory: 50, gpus: seen.gpus.map(() => ({ util: 97, memoryUtil: 20 })) };
    });
  }

  readLog(id: string, maxBytes: number): Promise<Uint8Array> {
    return this.#try(() => Buffer.from(`printed by ${id}\n`).subarray(-maxBytes));
  }

  watch(onChange: (id: string) => void): () => void {
    return this.host.watch(onChange);
  }

  async close(): Promise<void> {}

  /** Acts after the call, because a real engine takes time too. */
  async #try<T>(act: () => T): Promise<T> {
    await Promise.resolve();
    if (this.host.trouble) throw this.host.trouble;
    return act();
  }
}
