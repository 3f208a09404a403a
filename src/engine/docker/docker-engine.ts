// The engine for Docker and compatible engines. Each verb makes one request and then inspects the
// result; no answer of the engine is relied on.
import { type Clock, sleep, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ChangeFeed, readLogTail } from '../answers.ts';
import { type Containment, DEFAULT_CONTAINMENT } from '../containment.ts';
import {
  type Container,
  type ContainerReach,
  type ContainerSpec,
  type ContainerStats,
  type Engine,
  type EngineCapabilities,
  EngineError,
  type NetworkVolumes,
  type StateVolumes,
  splitArgs,
} from '../engine.ts';
import { ContainerCreator, checkVendor } from './container-creator.ts';
import {
  type InspectedContainer,
  inspectAnswer,
  measureUsage,
  readSample,
  statsAnswer,
  type UsageSample,
  viewContainer,
  watchEvents,
} from './container-view.ts';
import {
  type DockerCall,
  DockerClient,
  DockerError,
  Images,
  isNameTaken,
  isNetworkAmbiguous,
  joinPieces,
  judgeRefusal,
} from './docker-client.ts';
import { DockerVolumes } from './docker-volumes.ts';
import { filterBy, nameContainer, PLATFORM_LABEL, POD_LABEL } from './labels.ts';
import { Networks, readReach } from './networks.ts';

/** What every Docker-compatible engine can do for a pod, with the restrictions that the platform sets by default. */
export const DOCKER_CAPABILITIES: EngineCapabilities = {
  gpus: 'uuid',
  // Devices are a part of the container, and its disk is too.
  gpusAtStart: false,
  disk: { keptOverStop: true, limit: 'some' },
  limits: { memory: true, cpu: true, processes: true },
  globalNetworking: true,
  ports: { protocols: ['http', 'tcp', 'udp'], reach: 'machine' },
  mounts: { persistent: true, network: ['folder', 'name'], sizeLimit: 'some' },
  registries: true,
  healthChecks: true,
  kubernetes: null,
};

/** The effect of a request may become visible a little later. */
const SETTLE_MS = 10_000;
const RECHECK_MS = 50;
/** Time of a stop beyond its grace period. */
const STOP_LIMIT_MS = 30_000;
/** Parallel inspections: with hundreds at once, an engine answers none. */
const INSPECTS_AT_ONCE = 8;

export interface DockerEngineOptions {
  /**
   * Part of the labels and names of everything it creates: containers of other platforms stay
   * untouched.
   */
  platform: string;
  /** `unix:///path` or `tcp://host:port`. Default: Docker's socket on Linux. */
  host?: string;
  log: Log;
  /** What containers may do. Default: only what most images need. */
  containment?: Containment;
  /** Number of GPUs of the engine's machine, for sharing its memory. Default: unknown. */
  machineGpus?: number;
  /** Address of the engine's machine on which ports are published. Default: 127.0.0.1. */
  publishHost?: string;
  /** Measures the GPUs with these UUIDs, in their order. Default: not measured. */
  measureGpus?: (uuids: readonly string[]) => Promise<ContainerStats['gpus']>;
  /**
   * Limit of a call, ms; stops add their grace period, pulls have no such limit. Default: 30,000.
   */
  callLimitMs?: number;
  clock?: Clock;
}

export class DockerEngine implements Engine {
  readonly kind = 'docker';
  readonly capabilities: EngineCapabilities;
  readonly stateVolumes: StateVolumes = {
    listEndpoints: () => attempt(() => this.#volumes.ofEndpoints.listEndpoints()),
    remove: (endpointId) => attempt(() => this.#volumes.ofEndpoints.remove(endpointId)),
  };
  readonly networkVolumes: NetworkVolumes = {
    remove: (source) => attempt(() => this.#volumes.removeNetwork(source)),
    list: () => attempt(() => this.#volumes.listNetwork()),
    grow: (source, sizeGb) => attempt(() => this.#volumes.growNetwork(source, sizeGb)),
  };
  readonly #options: DockerEngineOptions;
  readonly #clock: Clock;
  readonly #client: DockerClient;
  readonly #images: Images;
  readonly #networks: Networks;
  readonly #volumes: DockerVolumes;
  readonly #changes: ChangeFeed;
  readonly #creator: ContainerCreator;
  /** By the engine's name of the container; of the run that began at that time. */
  readonly #samples = new Map<string, UsageSample & { startedAt: number }>();

  /** @throws Error if `host` is not an engine's address */
  constructor(options: DockerEngineOptions) {
    const { callLimitMs, clock = systemClock, host, log, platform } = options;
    const { pids } = options.containment ?? DEFAULT_CONTAINMENT;
    const { limits, mounts } = DOCKER_CAPABILITIES;
    this.#options = options;
    this.#clock = clock;
    this.#client = new DockerClient(host, callLimitMs);
    const client = this.#client;
    // The platform limits folders only on its own machine.
    const sizeLimit = client.isLocal ? mounts.sizeLimit : 'never';
    this.capabilities = {
      ...DOCKER_CAPABILITIES,
      limits: { ...limits, processes: pids > 0 },
      mounts: { ...mounts, sizeLimit },
    };
    this.#images = new Images({ client, log });
    this.#networks = new Networks({ client, platform });
    this.#volumes = new DockerVolumes({ client, platform, log });
    this.#creator = new ContainerCreator({ ...options, client });
    const listIds = async () => (await this.list()).map(({ id }) => id);
    this.#changes = new ChangeFeed({
      read: (stream) => watchEvents({ client, platform, listIds }, stream),
      onFailure: (err) => log.debug({ err }, 'reading engine events failed, retrying'),
      clock,
    });
  }

  create(spec: ContainerSpec, onPull?: () => void): Promise<void> {
    return begin(async () => {
      splitArgs(spec.args);
      checkVendor(spec.gpus);
      const known = await this.#inspect(spec.id);
      if (!known) await this.#make(spec, onPull);
      const made = known ?? (await this.#inspect(spec.id));
      if (!made) throw new EngineError('unavailable', `container of ${spec.id} not found`);
      const { generation } = made.container;
      if (generation !== spec.generation) {
        const there = `generation ${generation} of ${spec.id} is still there`;
        throw new EngineError('unavailable', there);
      }
      if (made.hasItsGpus) return;
      await this.remove(spec.id, 'keep');
      throw new EngineError('refused', 'the engine created the container without its GPUs');
    });
  }

  start(id: string): Promise<void> {
    return begin(async () => {
      const before = await this.#inspect(id);
      if (!before) throw new EngineError('unavailable', `container of ${id} not found`);
      if (before.container.state === 'running') return;
      const failure = await this.#startInNetwork(id, before);
      const after = await this.#inspect(id);
      if (!failure || after?.container.state === 'running') return;
      if (after && after.container.startedAt !== before.container.startedAt) return;
      throw judgeRefusal(failure, after?.lastCode ?? null);
    });
  }

  stop(id: string, graceMs: number): Promise<void> {
    return attempt(async () => {
      if ((await this.#inspect(id))?.container.state !== 'running') return;
      // Engines count in whole seconds.
      const t = Math.ceil(graceMs / 1_000);
      const failure = await this.#act(id, '/stop', { t }, graceMs + STOP_LIMIT_MS);
      await this.#until(id, failure, (seen) => seen?.container.state !== 'running');
    });
  }

  remove(id: string, volumes: 'keep' | 'remove'): Promise<void> {
    return attempt(async () => {
      const seen = await this.#inspect(id);
      if (seen) {
        // Some engines would wait for a graceful exit.
        await this.#act(id, '/kill');
        const query = { force: true, v: true };
        const failure = await this.#client.act({ method: 'DELETE', path: this.#path(id), query });
        await this.#until(id, failure, (left) => left === undefined);
        this.#samples.delete(seen.key);
      }
      if (volumes === 'remove') await this.#volumes.remove(id);
      await this.#networks.sweep();
    });
  }

  inspect(id: string): Promise<Container | undefined> {
    return attempt(async () => (await this.#inspect(id))?.container);
  }

  list(): Promise<Container[]> {
    return attempt(async () => {
      const query = filterBy({ [PLATFORM_LABEL]: this.#options.platform });
      const found = await this.#client.listContainers(query);
      const ids = found.map((labels) => labels[POD_LABEL] ?? '');
      const containers: Container[] = [];
      for (let at = 0; at < ids.length; at += INSPECTS_AT_ONCE) {
        const some = ids.slice(at, at + INSPECTS_AT_ONCE);
        const seen = await Promise.all(some.map((id) => this.#inspect(id)));
        containers.push(...seen.flatMap((each) => each?.container ?? []));
      }
      return containers;
    });
  }

  stats(id: string): Promise<ContainerStats | undefined> {
    return attempt(async () => {
      const seen = await this.#inspect(id);
      if (seen?.container.state !== 'running') return undefined;
      const query = { stream: false, 'one-shot': true };
      const found = await this.#client.find({ path: this.#path(id, '/stats'), query });
      const answer = statsAnswer.safeParse(found).data;
      // The container has exited meanwhile.
      if (answer?.memory_stats.usage === undefined) return undefined;
      const usage = measureUsage(
        answer,
        this.#exchangeSample(seen, readSample(answer)),
        seen.vcpus,
      );
      return { ...usage, gpus: (await this.#options.measureGpus?.(seen.container.gpus)) ?? [] };
    });
  }

  findReach(): Promise<ContainerReach> {
    return attempt(async () => {
      const [info, version, bridge] = await Promise.all([
        this.#client.ask({ path: '/info' }),
        this.#client.ask({ path: '/version' }),
        this.#client.find({ path: '/networks/bridge' }),
      ]);
      return readReach({ info, version, bridge });
    });
  }

  readLog(id: string, maxBytes: number): Promise<Uint8Array> {
    const open = async (tail: number) => {
      const query = { stdout: true, stderr: true, tail };
      const answer = await this.#client.findStream({ path: this.#path(id, '/logs'), query });
      return answer && joinPieces(answer);
    };
    return attempt(() => readLogTail(open, maxBytes));
  }

  watch(onChange: (id: string) => void): () => void {
    return this.#changes.listen(onChange);
  }

  async close(): Promise<void> {
    this.#changes.close();
    await this.#client.close();
  }

  async #inspect(id: string): Promise<InspectedContainer | undefined> {
    const answer = await this.#client.find({ path: this.#path(id, '/json') });
    if (answer === undefined) return undefined;
    return viewContainer(inspectAnswer.parse(answer), this.#options.platform);
  }

  /** Inspects repeatedly, because the effect of a request is not visible at once. */
  async #until(
    id: string,
    failure: DockerError | undefined,
    isWanted: (seen: InspectedContainer | undefined) => boolean,
  ): Promise<void> {
    const giveUpAt = this.#clock.now() + SETTLE_MS;
    while (!isWanted(await this.#inspect(id))) {
      if (this.#clock.now() < giveUpAt) await sleep(this.#clock, RECHECK_MS);
      else
        throw failure ?? new EngineError('unavailable', `the container of ${id} does not settle`);
    }
  }

  /** The sample of the last measurement of the same run, or of its start. */
  #exchangeSample({ container, key }: InspectedContainer, sample: UsageSample): UsageSample {
    const startedAt = container.startedAt ?? sample.at;
    const known = this.#samples.get(key);
    this.#samples.set(key, { ...sample, startedAt });
    return known?.startedAt === startedAt ? known : { at: startedAt, cpuNs: 0 };
  }

  /**
   * A platform that died may have sent a request that makes a second network of the same name
   * after the list of networks was read.
   */
  async #startInNetwork(id: string, before: InspectedContainer): Promise<DockerError | undefined> {
    const giveUpAt = this.#clock.now() + SETTLE_MS;
    for (;;) {
      const networkId = await this.#networks.provide(before.network);
      if (before.networkId !== null && before.networkId !== networkId) {
        await this.#networks.rejoin(before, networkId);
      }
      const failure = await this.#act(id, '/start');
      const isTwin = failure && isNetworkAmbiguous(failure) && this.#clock.now() < giveUpAt;
      if (!isTwin) return failure;
      await sleep(this.#clock, RECHECK_MS);
    }
  }

  async #make(spec: ContainerSpec, onPull?: () => void): Promise<void> {
    const gpuTerms = await this.#creator.describeGpuTerms(spec);
    await this.#images.provide(spec.image, spec.registry, onPull);
    await this.#volumes.provide(spec);
    const giveUpAt = this.#clock.now() + SETTLE_MS;
    for (;;) {
      await this.#networks.provide(spec.network);
      const failure = await this.#creator.create(spec, gpuTerms);
      // If two calls create it at once, the other one was first.
      if (!failure || (await this.#inspect(spec.id))) return;
      const mayPass = isNameTaken(failure) || isNetworkAmbiguous(failure);
      if (!mayPass || this.#clock.now() >= giveUpAt) throw failure;
      await sleep(this.#clock, RECHECK_MS);
    }
  }

  #act(
    id: string,
    verb: string,
    query: DockerCall['query'] = {},
    limitMs?: number,
  ): Promise<DockerError | undefined> {
    return this.#client.act({ method: 'POST', path: this.#path(id, verb), query }, limitMs);
  }

  #path(id: string, what = ''): string {
    const name = nameContainer(this.#options.platform, id);
    return `/containers/${encodeURIComponent(name)}${what}`;
  }
}

/** A start that cannot succeed is `refused`. */
function begin(verb: () => Promise<void>): Promise<void> {
  return attempt(() =>
    verb().catch((error: unknown) => {
      throw error instanceof DockerError ? judgeRefusal(error, null) : error;
    }),
  );
}

/** An unclassified error may be temporary. */
async function attempt<T>(verb: () => Promise<T>): Promise<T> {
  try {
    return await verb();
  } catch (error) {
    if (error instanceof EngineError) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new EngineError('unavailable', message, { cause: error });
  }
}
