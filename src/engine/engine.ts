// The seam to what runs containers: the verbs, and what is seen of a container. It knows nothing of a
// pod's life; what has to be done next is decided in control/, from what is seen here.

/** What a container is made from. The engine keeps id, generation and labels with it: they are the record. */
export interface ContainerSpec {
  /** The pod's: one container each. */
  id: string;
  /** Which container of the pod this is; a new one has a new disk. */
  generation: number;
  labels: Readonly<Record<string, string>>;
  image: string;
  /** For the image's entry point; split as a shell would, without expanding anything. */
  args: string;
  /** Process engine: the handler module that a worker is started for. */
  handler: string | null;
  /** All that it sees; nothing is inherited from the platform. */
  env: Readonly<Record<string, string>>;
  ports: readonly ContainerPort[];
  diskGb: number;
  registry: RegistryLogin | null;
  mounts: readonly ContainerMount[];
  /** Only for an engine with `stateVolumes`. Default: none. */
  stateVolume?: StateVolume;
  /** UUIDs of the GPUs that it is given. */
  gpus: readonly string[];
  /** Null: no limit of its own. */
  limits: { vcpus: number; memoryGb: number } | null;
  /** Name of the network that it shares with others of its user; null: none. */
  network: string | null;
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
  /** `persistent` ones are the pod's own and end with it; `network` ones were there before. */
  kind: 'persistent' | 'network';
  /** Name of the volume; of a network volume a folder's path where the operator gave one. */
  source: string;
  path: string;
}

/** A volume that outlives its containers. At most one container may have it at a time. */
export interface StateVolume {
  /** Endpoint that the volume belongs to. */
  endpointId: string;
  /** From 0: which of the endpoint's volumes this is. */
  slot: number;
  path: string;
}

/** Volumes of endpoints. The platform cannot read what is in them. */
export interface StateVolumes {
  /** IDs of the endpoints that have volumes. @throws EngineError */
  listEndpoints(): Promise<string[]>;
  /** Removes all volumes of the endpoint. @throws EngineError, also while a container has one of them */
  remove(endpointId: string): Promise<void>;
}

/** As it was seen in one look; what an engine cannot know is null. Times are Unix ms. */
export interface Container {
  id: string;
  generation: number;
  labels: Readonly<Record<string, string>>;
  state: 'created' | 'running' | 'exited';
  /** `none`: the image has no health check. */
  health: 'none' | 'starting' | 'healthy' | 'unhealthy';
  /** Of an exited one; 128 + n for signal n. */
  exitCode: number | null;
  outOfMemory: boolean;
  /** Its disk has a size: only another container has a larger one. */
  hasDiskLimit: boolean;
  startedAt: number | null;
  endedAt: number | null;
  /** Empty unless it runs. `ip` and `public`: where it is reached from this machine. */
  ports: readonly PublicPort[];
  /** UUIDs of the GPUs that it was given. */
  gpus: readonly string[];
  /** In the network of its spec. */
  ip: string | null;
}

export interface PublicPort {
  private: number;
  public: number | null;
  type: ContainerPort['protocol'];
  ip: string | null;
}

/** What it uses now, as shares of what it may use, 0 to 100. */
export interface ContainerStats {
  cpu: number;
  memory: number;
  gpus: readonly { util: number; memoryUtil: number }[];
}

/**
 * All verbs may be repeated, and may be cut off anywhere: whoever calls looks again afterwards. No verb
 * is told apart by what an engine says of "not modified" or "no such": it is the state that counts.
 */
export interface Engine {
  readonly kind: 'process' | 'docker';
  /** Undefined: workers keep their state in folders of the platform. */
  readonly stateVolumes?: StateVolumes;
  /**
   * Makes the container and its disk, and does not start it; pulls the image if it is not there. One of
   * the same id and generation is left as it is; one of another generation has to be removed before.
   * @throws EngineError
   */
  create(spec: ContainerSpec): Promise<void>;
  /**
   * Runs it, with the disk as it was. Does nothing if it runs. A command that is not there is `refused`,
   * or seen as one that ended with 127 (126: it cannot be run). @throws EngineError
   */
  start(id: string): Promise<void>;
  /**
   * SIGTERM to its first process, and SIGKILL to all after `graceMs`. Resolves when it has ended; its disk stays. Does nothing if it
   * does not run or is not there. @throws EngineError
   */
  stop(id: string, graceMs: number): Promise<void>;
  /**
   * Ends it at once, with its disk; its own volumes too if asked, also where the container went before.
   * Does nothing if there is nothing. @throws EngineError
   */
  remove(id: string, volumes: 'keep' | 'remove'): Promise<void>;
  /** Undefined if it is not there. @throws EngineError */
  inspect(id: string): Promise<Container | undefined>;
  /** Every container that a platform of this name made. @throws EngineError */
  list(): Promise<Container[]>;
  /** Undefined if it does not run. @throws EngineError */
  stats(id: string): Promise<ContainerStats | undefined>;
  /**
   * The end of what it printed, at most `maxBytes`; of both outputs, as they came. Empty if it is not
   * there. @throws EngineError
   */
  readLog(id: string, maxBytes: number): Promise<Uint8Array>;
  /** Calls with the id of each container that may have changed: a hint to look, no more. Returns its end. */
  watch(onChange: (id: string) => void): () => void;
  /** What it runs goes on running. */
  close(): Promise<void>;
}

/** `refused`: asking again does not help (no such image, a spec that cannot be). `unavailable`: it may. */
export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly code: 'refused' | 'unavailable';

  constructor(code: 'refused' | 'unavailable', message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}
