// The seam to the software that runs containers: its verbs, and its view of a container. It knows
// nothing about the life of a pod; control/ decides the next step from what an engine shows.
import { z } from 'zod';
import { limitText } from '../base/text/printable.ts';
import { ShellWordsError, splitWords } from '../base/text/shell-words.ts';
import {
  type KubernetesLimits,
  type PodKubernetes,
  podKubernetes,
} from '../wire/engine/kubernetes.ts';

/**
 * Input of a new container. The engine stores ID, generation and labels with it: they are the
 * record.
 */
export interface ContainerSpec {
  /** ID of the pod; each pod has one container. */
  id: string;
  /** Number of the pod's container; a new one has a new disk. */
  generation: number;
  labels: Readonly<Record<string, string>>;
  image: string;
  /** Arguments of the image's entry point; split like in a shell, without expansion. */
  args: string;
  /** Process engine: the worker's handler module. */
  handler: string | null;
  /** Process engine: run this program's worker, which fetches its handler itself. Default: no. */
  runsVersion?: true;
  /** The whole environment; nothing is inherited from the platform. */
  env: Readonly<Record<string, string>>;
  ports: readonly ContainerPort[];
  diskGb: number;
  registry: RegistryLogin | null;
  mounts: readonly ContainerMount[];
  /** Only for an engine with `stateVolumes`. Default: none. */
  stateVolume?: StateVolume;
  /** UUIDs of the allotted GPUs. */
  gpus: readonly string[];
  /** Null: no own limit. */
  limits: { vcpus: number; memoryGb: number } | null;
  /** Name of the network shared with other pods of its user; null: none. */
  network: string | null;
  /** Only for an engine whose capabilities allow each part. Default: the operator's settings alone. */
  kubernetes?: PodKubernetes;
}

export interface ContainerPort {
  private: number;
  protocol: 'http' | 'tcp' | 'udp';
}

export interface RegistryLogin {
  server: string;
  username: string;
  password: string;
}

export interface ContainerMount {
  /** `persistent`: the pod's own volume, removed with it. `network`: existed before. */
  kind: 'persistent' | 'network';
  /** Name of the volume; for a network volume, a folder's path if the operator named one. */
  source: string;
  path: string;
  /**
   * GB, of a persistent volume and of a network volume of the platform: the engine makes the volume, or grows it if it can.
   * Default: the volume exists.
   */
  sizeGb?: number;
}

/** Checks a spec that was written as JSON. */
export const containerSpec: z.ZodType<ContainerSpec> = z.object({
  id: z.string(),
  generation: z.int(),
  labels: z.record(z.string(), z.string()),
  image: z.string(),
  args: z.string(),
  handler: z.string().nullable(),
  runsVersion: z.literal(true).exactOptional(),
  env: z.record(z.string(), z.string()),
  ports: z.array(z.object({ private: z.int(), protocol: z.enum(['http', 'tcp', 'udp']) })),
  diskGb: z.number(),
  registry: z.object({ server: z.string(), username: z.string(), password: z.string() }).nullable(),
  mounts: z.array(
    z.object({
      kind: z.enum(['persistent', 'network']),
      source: z.string(),
      path: z.string(),
      sizeGb: z.number().exactOptional(),
    }),
  ),
  stateVolume: z
    .object({ endpointId: z.string(), slot: z.number(), path: z.string() })
    .exactOptional(),
  gpus: z.array(z.string()),
  limits: z.object({ vcpus: z.number(), memoryGb: z.number() }).nullable(),
  network: z.string().nullable(),
  kubernetes: podKubernetes.exactOptional(),
});

/** Network volumes that users have created. The engine makes one with the first container that mounts it. */
export interface NetworkVolumes {
  /**
   * Removes the volume of this source, with its content. Does nothing if it does not exist. @throws
   * EngineError, also while a container uses it
   */
  remove(source: string): Promise<void>;
  /**
   * Gives the volume more space where the engine enforces its size. Does nothing if it does not exist yet. Default: it
   * grows with the next container that mounts it. @throws EngineError
   */
  grow?(source: string, sizeGb: number): Promise<void>;
  /**
   * Sources of the volumes that exist, also of other platforms. Default: each volume exists once, so that none is left on
   * another machine. @throws EngineError
   */
  list?(): Promise<string[]>;
}

/** A volume that outlives its containers. At most one container may have it at a time. */
export interface StateVolume {
  /** Endpoint that the volume belongs to. */
  endpointId: string;
  /** Which of the endpoint's volumes this is, from 0. */
  slot: number;
  path: string;
}

/** Volumes of endpoints. The platform cannot read their content. */
export interface StateVolumes {
  /** IDs of the endpoints that have volumes. @throws EngineError */
  listEndpoints(): Promise<string[]>;
  /**
   * Removes all volumes of the endpoint. @throws EngineError, also while a container uses one of
   * them
   */
  remove(endpointId: string): Promise<void>;
}

/** A container at one moment; null for facts that the engine cannot know. Times are Unix ms. */
export interface Container {
  id: string;
  generation: number;
  labels: Readonly<Record<string, string>>;
  /** `starting`: an engine with a scheduler was told to start it, and it does not run yet. */
  state: 'created' | 'starting' | 'running' | 'exited';
  /** Only of a `starting` one: why it does not run yet. Default: nothing is known. */
  waiting?: ContainerWait;
  /**
   * Why it is going to end, or has ended, although nobody stopped it and it did nothing wrong: its machine is drained or
   * lost. Default: nothing is known.
   */
  leaving?: string;
  /** `none`: the image has no health check. */
  health: 'none' | 'starting' | 'healthy' | 'unhealthy';
  /** Exit code of an exited container; 128 + n for signal n. */
  exitCode: number | null;
  outOfMemory: boolean;
  /** Why it ended, if neither exit code nor memory tell; for people. Default: they do. */
  endReason?: string;
  /** Its disk has a fixed size: a larger one needs a new container. */
  hasDiskLimit: boolean;
  startedAt: number | null;
  /** Null also for a run that was killed while no engine ran. */
  endedAt: number | null;
  /** Empty unless it runs. `ip` and `public`: its address from this machine. */
  ports: readonly PublicPort[];
  /** UUIDs of the GPUs that its last start got; those of its spec before the first one. */
  gpus: readonly string[];
  /** Each start can have other GPUs, and keeps the disk. Default: the GPUs of its spec, in every start. */
  gpusAtStart?: true;
  /** Address in the network of its spec. */
  ip: string | null;
}

/** What a container waits for that was told to start. */
export interface ContainerWait {
  /** `capacity`: no machine has the capacity or the GPUs. `image`: its image cannot be pulled. */
  cause: 'capacity' | 'image' | 'other';
  /** For people. */
  message: string;
  /** Waiting longer does not help: refuse the start. */
  isFinal: boolean;
}

export interface PublicPort {
  private: number;
  public: number | null;
  type: ContainerPort['protocol'];
  ip: string | null;
}

/** Current use as a share of the limit, 0 to 100. */
export interface ContainerStats {
  cpu: number;
  memory: number;
  gpus: readonly { util: number; memoryUtil: number }[];
}

/** A part of a limit as percent, for `ContainerStats`. */
export function toShare(part: number): number {
  return Math.min(100, Math.max(0, part * 100));
}

/** How containers reach the machine that their engine runs on. */
export interface ContainerReach {
  /** Its address in the engine's default network; null: unknown. */
  gateway: string | null;
  /** What containers get to know as `host.docker.internal`. */
  hostName: 'gateway' | 'loopback' | 'none';
}

/**
 * What an engine can do for a pod. The platform refuses a request that needs more, with the reason. Each engine
 * declares its own; capabilities do not change while an engine is open.
 */
export interface EngineCapabilities {
  /** `uuid`: the platform chooses the devices. `type`: the engine does, and the platform only counts them. */
  gpus: 'uuid' | 'type';
  /** A stopped pod starts again with any GPUs of its type. Otherwise it needs those of its first start. */
  gpusAtStart: boolean;
  disk: {
    /** A stopped container keeps its disk. Otherwise each start has a new one. */
    keptOverStop: boolean;
    /** Whether `diskGb` is a limit: always, never, or if the storage of the machine can. */
    limit: 'always' | 'some' | 'never';
  };
  /** Which limits hold for a pod with `limits`. */
  limits: { memory: boolean; cpu: boolean; processes: boolean };
  /** Pods of one user may share a network. */
  globalNetworking: boolean;
  ports: {
    protocols: readonly ContainerPort['protocol'][];
    /** From where ports can be reached: the machine of the engine, or only its cluster. */
    reach: 'machine' | 'cluster';
  };
  mounts: {
    persistent: boolean;
    /** Whether the size of a volume of the platform is a limit: always, never, or if its storage can. */
    sizeLimit: 'always' | 'some' | 'never';
    /** What the source of a network mount may be: a folder of the machine, a name that the engine knows. */
    network: readonly ('folder' | 'name')[];
  };
  /** Pulls images, with logins of registries. */
  registries: boolean;
  /** Runs the health checks of images. */
  healthChecks: boolean;
  /** What `kubernetes` of a pod may contain; null: the engine has no such settings. */
  kubernetes: KubernetesLimits | null;
}

/**
 * All verbs may be repeated and may be interrupted at any point: the caller inspects the state
 * afterwards. Answers such as "not modified" or "no such container" are not errors: only the state
 * counts.
 */
export interface Engine {
  readonly kind: 'process' | 'docker' | 'kubernetes';
  readonly capabilities: EngineCapabilities;
  /** Undefined: workers keep their state in folders of the platform. */
  readonly stateVolumes?: StateVolumes;
  /** Undefined: the engine has only network volumes that the operator has declared. */
  readonly networkVolumes?: NetworkVolumes;
  /**
   * Creates the container and its disk without starting it; pulls the image if necessary. An
   * existing container of the same ID and generation stays unchanged; one of another generation
   * must be removed first. `onPull` is called if the image must be pulled; not over nodes.
   * @throws EngineError
   */
  create(spec: ContainerSpec, onPull?: () => void): Promise<void>;
  /**
   * Starts it, with its existing disk if the engine keeps disks. Does nothing if it runs or starts. A missing command
   * is `refused`, or shows as exit code 127 (126: not executable). `gpus`: UUIDs of the GPUs of this run, if the
   * container has `gpusAtStart`; other engines ignore them. Default: those of its spec. @throws EngineError
   */
  start(id: string, gpus?: readonly string[]): Promise<void>;
  /**
   * Sends SIGTERM to its first process, and SIGKILL to all after `graceMs`. Resolves when it has
   * exited; its disk stays. Does nothing if it does not run or does not exist. @throws EngineError
   */
  stop(id: string, graceMs: number): Promise<void>;
  /**
   * Removes it and its disk at once; on request also its own volumes, even if the container is
   * already gone. Does nothing if nothing exists. @throws EngineError
   */
  remove(id: string, volumes: 'keep' | 'remove'): Promise<void>;
  /** Undefined if it does not exist. @throws EngineError */
  inspect(id: string): Promise<Container | undefined>;
  /** All containers created by a platform of this name. @throws EngineError */
  list(): Promise<Container[]>;
  /** Undefined if it does not run. @throws EngineError */
  stats(id: string): Promise<ContainerStats | undefined>;
  /**
   * The end of its output, at most `maxBytes`, both streams in order. Empty if it does not exist.
   * @throws EngineError
   */
  readLog(id: string, maxBytes: number): Promise<Uint8Array>;
  /**
   * Calls the listener with the ID of each container that may have changed: only a hint to inspect
   * it. @returns the function that stops it
   */
  watch(onChange: (id: string) => void): () => void;
  /** Undefined: pods are processes of this machine. @throws EngineError */
  findReach?(): Promise<ContainerReach>;
  /** Closes the connection; containers keep running. */
  close(): Promise<void>;
}

/**
 * Maximum length of an engine's message about a container. Records of pods keep it, and it may quote what others wrote: the error of a
 * registry quotes its answer.
 */
export const MAX_ENGINE_TEXT_CHARS = 2_000;

/** `refused`: a retry does not help (no such image, an impossible spec). `unavailable`: it may. */
export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly code: 'refused' | 'unavailable';

  constructor(code: 'refused' | 'unavailable', message: string, options?: { cause?: unknown }) {
    super(limitText(message, MAX_ENGINE_TEXT_CHARS), options);
    this.code = code;
  }
}

/** @throws EngineError `refused` */
export function splitArgs(args: string): string[] {
  try {
    return splitWords(args);
  } catch (error) {
    throw error instanceof ShellWordsError ? new EngineError('refused', error.message) : error;
  }
}
