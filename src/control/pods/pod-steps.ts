// Carries out one step for a pod and stores the result: calls the engine, a few calls at a time, with the container
// that the pod describes. pod-lifecycle.ts decides the step, reconciler.ts the time.
import { hash } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import {
  type Container,
  type ContainerMount,
  type ContainerPort,
  type ContainerSpec,
  type Engine,
  EngineError,
  type StateVolume,
} from '../../engine/engine.ts';
import type { LivePods } from './live-pods.ts';
import {
  giveUp,
  noteDelay,
  notePull,
  type PodStep,
  settleRemoval,
  type Unreachable,
} from './pod-lifecycle.ts';
import type { BilledChange, LastSight, PodMeter } from './pod-meter.ts';
import type { PodCatalog } from './pod-spec.ts';
import type { PodState } from './pod-state.ts';

/**
 * Concurrent calls of the engine; calls that may take minutes have limits of their own, so that
 * they do not block others.
 */
const MAX_CALLS = 8;
/** Concurrent creations, which may pull an image. */
const MAX_CREATIONS = 4;
/** Concurrent stops, which mostly wait. */
const MAX_STOPS = 64;
/**
 * Time between SIGTERM and SIGKILL, ms. A worker finishes its jobs first and has longer limits for
 * that.
 */
const POD_GRACE_MS = 10_000;
const WORKER_GRACE_MS = 45_000;
/** The jobs of a deleted endpoint are gone: its workers have nothing to finish. */
const DELETED_GRACE_MS = 2_000;

export interface PodStepsOptions {
  pods: LivePods;
  engine: Engine;
  catalog: PodCatalog;
  meter: PodMeter;
  clock: Clock;
  log: Log;
  /** Why nothing can be known of a pod's container now. Default: every container can be inspected. */
  findUnreachable?: (pod: PodState) => Unreachable | undefined;
  /** Default: every pod's endpoint exists. */
  hasEndpoint?: (endpointId: string) => boolean;
  /**
   * Called right before the container is created: variables that are not stored, such as a worker's
   * key. They override the pod's own. Default: none.
   */
  environmentOf?: (pod: PodState) => Promise<Readonly<Record<string, string>>>;
  /** Called right before the container is created. Default: no state volumes. */
  stateVolumeOf?: (pod: PodState) => Promise<StateVolume | undefined>;
}

/** A change of a pod because of an observation of its container. */
interface SeenChange {
  decide: (pod: PodState) => PodState;
  seen: Container | undefined;
  sight: LastSight;
}

/** Steps that call the engine. */
type EngineStep = Exclude<PodStep, { kind: 'none' | 'wait' | 'allot' }>;

export class PodSteps {
  readonly #options: PodStepsOptions;
  readonly #calls = new CallLimit(MAX_CALLS);
  readonly #creations = new CallLimit(MAX_CREATIONS);
  readonly #stops = new CallLimit(MAX_STOPS);
  #isClosed = false;

  constructor(options: PodStepsOptions) {
    this.#options = options;
  }

  /** Starts no more calls. */
  close(): void {
    this.#isClosed = true;
  }

  /** Makes a call of the engine when a slot is free. @throws Error after `close` */
  call<T>(verb: (engine: Engine) => Promise<T>): Promise<T> {
    return this.#calls.run(() => this.#begin(verb));
  }

  /** @returns whether another step may follow. @throws EngineError */
  async take(step: Exclude<PodStep, { kind: 'wait' }>, pod: PodState): Promise<boolean> {
    if (step.kind === 'none') return false;
    if (step.kind === 'allot') return this.#allot(pod, step.among);
    this.#options.log.debug({ pod: pod.id, step }, 'pod step');
    try {
      await this.#act(step, pod);
    } catch (error) {
      if (!isRefused(error, step)) throw error;
      await this.#giveUp(step, pod, error.message);
    }
    return true;
  }

  /** Changes the record and logs a change of its status. */
  write(id: string, decide: (pod: PodState) => PodState): Promise<PodState | undefined> {
    return this.#write(id, (pod) => ({ pod: decide(pod), intervals: [] }));
  }

  /** Like `write`, after its container was observed: bills what was seen. */
  async writeSeen(id: string, { decide, seen, sight }: SeenChange): Promise<PodState | undefined> {
    const { meter } = this.#options;
    const pod = await this.#write(id, (known) => meter.measure(decide(known), seen, sight));
    meter.note(id, seen, sight);
    return pod;
  }

  /** Like `write`, for a pod whose container cannot be inspected: a removed one is not billed any further. */
  writeUnseen(id: string, decide: (pod: PodState) => PodState): Promise<PodState | undefined> {
    const { meter } = this.#options;
    return this.#write(id, (known) => {
      const pod = decide(known);
      return pod.removed ? meter.measure(pod, undefined, meter.begin()) : { pod, intervals: [] };
    });
  }

  async #write(id: string, decide: (pod: PodState) => BilledChange): Promise<PodState | undefined> {
    const { log, pods } = this.#options;
    const before = pods.get(id);
    const pod = await pods.changeBilled(id, decide);
    if (pod && before && pod.status !== before.status) {
      const { reason, status } = pod;
      log.info({ pod: id, from: before.status, status, reason }, `pod is ${status}`);
    }
    return pod;
  }

  async #act(step: EngineStep, pod: PodState): Promise<void> {
    const { id } = pod;
    switch (step.kind) {
      case 'create':
        return this.#creations.run(() => this.#begin((engine) => this.#create(engine, pod)));
      case 'start':
        return this.call((engine) => engine.start(id, pod.gpus));
      case 'stop':
        return this.#stops.run(() => this.#begin((engine) => engine.stop(id, this.#graceOf(pod))));
      case 'remove':
        await this.call((engine) => engine.remove(id, step.volumes));
        if (step.volumes === 'remove') await this.#settleRemoval(id);
    }
  }

  async #begin<T>(verb: (engine: Engine) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new Error('pod reconciler stopped');
    return verb(this.#options.engine);
  }

  #graceOf({ endpointId }: PodState): number {
    if (endpointId === null) return POD_GRACE_MS;
    const { hasEndpoint = () => true } = this.#options;
    return hasEndpoint(endpointId) ? WORKER_GRACE_MS : DELETED_GRACE_MS;
  }

  async #create(engine: Engine, pod: PodState): Promise<void> {
    const { catalog, environmentOf, stateVolumeOf } = this.#options;
    const stateVolume = await stateVolumeOf?.(pod);
    const environment = (await environmentOf?.(pod)) ?? {};
    const spec = createContainerSpec({ pod, catalog, environment, stateVolume });
    await engine.create(spec, () => void this.#notePull(pod));
  }

  /** Never rejects: the note only explains the wait. */
  async #notePull({ generation, id }: PodState): Promise<void> {
    const note = (pod: PodState) =>
      pod.generation === generation ? notePull(pod, pod.spec.image) : pod;
    await this.write(id, note).catch((error: unknown) => {
      this.#options.log.debug({ pod: id, err: error }, 'noting the pull of an image failed');
    });
  }

  async #settleRemoval(id: string): Promise<void> {
    const sight = this.#options.meter.begin();
    const seen = await this.call((engine) => engine.inspect(id));
    if (!seen) await this.writeSeen(id, { decide: settleRemoval, seen, sight });
  }

  async #giveUp({ kind }: EngineStep, { generation, id }: PodState, reason: string): Promise<void> {
    // If the container is gone, it can be created again.
    if (kind === 'start' && !(await this.call((engine) => engine.inspect(id)))) return;
    const now = this.#options.clock.now();
    await this.write(id, (pod) => (pod.generation === generation ? giveUp(pod, reason, now) : pod));
  }

  async #allot({ id, spec }: PodState, among: readonly string[] | null): Promise<boolean> {
    if (await this.#options.pods.allotGpus(id)) return true;
    const which = among
      ? 'the ones its container and disk were created with'
      : `${spec.gpu?.count} of ${spec.gpu?.id}`;
    await this.write(id, (pod) => noteDelay(pod, `it waits for GPUs: ${which} are not free`));
    return false;
  }
}

/** Only a start can be refused permanently: an end must be retried. */
function isRefused(error: unknown, { kind }: EngineStep): error is EngineError {
  const begins = kind === 'create' || kind === 'start';
  return begins && error instanceof EngineError && error.code === 'refused';
}

/** Name of a pod's own volume; a pod has at most one. */
const OWN_VOLUME = 'persistent';
/** The URL at which a container's worker calls the platform: an engine does not show the environment. */
const URL_LABEL = 'millrace.url';

/** Undefined: the container is not a worker. */
export function findPlatformUrl({ labels }: Pick<Container, 'labels'>): string | undefined {
  return labels[URL_LABEL];
}

interface ContainerSpecSource {
  pod: PodState;
  catalog: PodCatalog;
  /** Variables that are not stored; they override the pod's own. */
  environment: Readonly<Record<string, string>>;
  /** Default: none. */
  stateVolume?: StateVolume | undefined;
}

/**
 * @throws EngineError `refused` if something that it needs is no longer in the catalog, `unavailable` if its secrets cannot
 * be decrypted
 */
function createContainerSpec({
  catalog,
  environment,
  pod,
  stateVolume,
}: ContainerSpecSource): ContainerSpec {
  const { endpointId, generation, gpus, id, spec, userId } = pod;
  const { args, cpu, disk, env, handler, image, kubernetes, ports, version } = spec;
  if (spec.unopened) {
    const detail = `the variables of the pod cannot be decrypted: ${spec.unopened.why}`;
    throw new EngineError('unavailable', detail);
  }
  const url = environment['MILLRACE_URL'];
  return {
    id,
    generation,
    image,
    args,
    handler,
    gpus,
    ...(version !== undefined && { runsVersion: true }),
    labels: {
      'millrace.user': userId,
      ...(endpointId === null ? {} : { 'millrace.endpoint': endpointId }),
      ...(url !== undefined && { [URL_LABEL]: url }),
    },
    env: { ...env, ...environment },
    ports: ports.map(readPort),
    diskGb: disk,
    registry: findRegistry(pod, catalog),
    mounts: listMounts(pod, catalog),
    ...(stateVolume && { stateVolume }),
    limits: cpu ? { vcpus: cpu.vcpuCount, memoryGb: cpu.memory } : null,
    network: spec.globalNetworking ? nameNetwork(userId) : null,
    ...(kubernetes && { kubernetes }),
  };
}

/** `<port>/<protocol>`, validated by the schema. */
function readPort(port: string): ContainerPort {
  const [number = '', name] = port.split('/');
  const protocol = name === 'http' || name === 'udp' ? name : 'tcp';
  return { private: Number(number), protocol };
}

/** Engines allow fewer characters in a name than the API. */
function nameNetwork(userId: string): string {
  return `user-${hash('sha256', userId, 'hex').slice(0, 16)}`;
}

function findRegistry({ spec, userId }: PodState, catalog: PodCatalog): ContainerSpec['registry'] {
  if (spec.registry === null) return null;
  const login = catalog.registry(userId, spec.registry);
  if (login) return login;
  throw new EngineError('refused', `the registry ${spec.registry} does not exist any more`);
}

function listMounts({ spec, userId }: PodState, catalog: PodCatalog): ContainerMount[] {
  const { network = [], persistent } = spec.mounts;
  const own: ContainerMount[] = persistent
    ? [{ kind: 'persistent', source: OWN_VOLUME, path: persistent.path, sizeGb: persistent.size }]
    : [];
  const shared = network.map(({ path, volumeId }): ContainerMount => {
    const volume = catalog.volume(userId, volumeId);
    if (volume) {
      const { sizeGb, source } = volume;
      return { kind: 'network', source, path, ...(sizeGb !== undefined && { sizeGb }) };
    }
    throw new EngineError('refused', `the network volume ${volumeId} does not exist any more`);
  });
  return [...own, ...shared];
}

/** Limits the number of concurrent calls; further calls wait in order of arrival. */
export class CallLimit {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await call();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }
}
