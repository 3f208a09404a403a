// Carries out the leader's commands on this machine: calls the engine, and keeps the folders of workers. As soon as this
// node knows of a new leader, it refuses the earlier one. Also the messages of these commands, and of what the leader asks
// the nodes about their machines and workers.

import { z } from 'zod';
import {
  type Container,
  type ContainerSpec,
  type ContainerStats,
  containerSpec,
  type Engine,
  EngineError,
} from '../../engine/engine.ts';
import { shownStartParts } from '../../wire/job/job-records.ts';
import { PARK_WAYS, PARK_WISHES, PARKING_STATES, STARTED } from '../../wire/link/worker-link.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { FolderUse, WorkerFolders } from '../compute/worker-folders.ts';

export interface MachineAgentOptions {
  engine: Engine;
  /** For an engine without state volumes. */
  workerFolders: WorkerFolders | undefined;
  /** Epoch of shard 0, as this node knows it. */
  readTerm: () => number;
  /** Asks the leader for the endpoints and worker pods that exist. */
  readUse: () => Promise<FolderUse>;
}

export class MachineAgent {
  readonly #options: MachineAgentOptions;
  /** The newest term in which a leader has called. */
  #term = 0;
  /** The last change of each container: a new leader repeats what an earlier one has begun. */
  readonly #changing = new Map<string, Promise<unknown>>();

  constructor(options: MachineAgentOptions) {
    this.#options = options;
  }

  /** @throws ProblemError `unavailable` if another node leads */
  async answer({ act, term }: MachineBody): Promise<MachineAnswer> {
    this.#admit(term);
    try {
      return { value: (await this.#act(act)) ?? null };
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      return { failed: { code: error.code, message: error.message } };
    }
  }

  /**
   * Where the pod's port is on this machine: only ports of containers can be reached, not others of this machine.
   * Undefined if the container does not have it now.
   */
  async findPort(podId: string, port: number): Promise<{ host: string; port: number } | undefined> {
    const container = await this.#options.engine.inspect(podId);
    const own = container?.ports.find((each) => each.public === port);
    if (!own || own.ip === null) return undefined;
    return { host: own.ip, port };
  }

  /** Whoever leads calls every machine before it decides anything, so nothing of an earlier leader follows. */
  #admit(term: number): void {
    this.#term = Math.max(this.#term, this.#options.readTerm());
    if (term < this.#term) {
      const detail = `the call is of term ${term}; another node leads since term ${this.#term}`;
      throw new ProblemError('unavailable', detail, { retryAfterMs: 1_000 });
    }
    this.#term = term;
  }

  async #act(act: MachineAct): Promise<unknown> {
    const { engine, readUse, workerFolders } = this.#options;
    switch (act.verb) {
      case 'create':
        return this.#change(act.spec.id, () => this.#create(act.spec));
      case 'start':
        return this.#change(act.id, () => engine.start(act.id, act.gpus));
      case 'stop':
        return this.#change(act.id, () => engine.stop(act.id, act.graceMs));
      case 'remove':
        return this.#change(act.id, () => engine.remove(act.id, act.volumes));
      case 'inspect':
        return engine.inspect(act.id);
      case 'list':
        return engine.list();
      case 'stats':
        return engine.stats(act.id);
      case 'readLog':
        return Buffer.from(await engine.readLog(act.id, act.maxBytes)).toString('base64');
      case 'listVolumes':
        return engine.stateVolumes?.listEndpoints() ?? [];
      case 'removeVolumes':
        return engine.stateVolumes?.remove(act.endpointId);
      case 'removeNetworkVolume':
        return engine.networkVolumes?.remove(act.source);
      case 'listNetworkVolumes':
        return engine.networkVolumes?.list?.() ?? [];
      case 'growNetworkVolume':
        return engine.networkVolumes?.grow?.(act.source, act.sizeGb);
      case 'provideFolder':
        return workerFolders?.provide(act.endpointId);
      case 'readLeft':
        return workerFolders?.readLeft(act.endpointId, act.workerId) ?? [];
      case 'tidyFolders':
        return workerFolders?.tidy(readUse);
    }
  }

  /**
   * A leader creates a container only if it has seen none. One that is there was made meanwhile for an earlier call,
   * and the key in it has been revoked since.
   */
  async #create(spec: ContainerSpec): Promise<void> {
    const { engine } = this.#options;
    const made = await engine.inspect(spec.id);
    const isUnused = made?.state === 'created' && made.generation === spec.generation;
    if (isUnused) await engine.remove(spec.id, 'keep');
    await engine.create(spec);
  }

  /** One at a time for each container. */
  #change(id: string, change: () => Promise<void>): Promise<void> {
    const before = this.#changing.get(id) ?? Promise.resolve();
    const changed = before.catch(() => {}).then(change);
    this.#changing.set(id, changed);
    const forget = () => {
      if (this.#changing.get(id) === changed) this.#changing.delete(id);
    };
    changed.then(forget, forget);
    return changed;
  }
}

const protocol = z.enum(['http', 'tcp', 'udp']);

export const container: z.ZodType<Container> = z.object({
  id: z.string(),
  generation: z.number(),
  labels: z.record(z.string(), z.string()),
  state: z.enum(['created', 'starting', 'running', 'exited']),
  waiting: z
    .object({
      cause: z.enum(['capacity', 'image', 'other']),
      message: z.string(),
      isFinal: z.boolean(),
    })
    .exactOptional(),
  endReason: z.string().exactOptional(),
  leaving: z.string().exactOptional(),
  health: z.enum(['none', 'starting', 'healthy', 'unhealthy']),
  exitCode: z.number().nullable(),
  outOfMemory: z.boolean(),
  hasDiskLimit: z.boolean(),
  startedAt: z.number().nullable(),
  endedAt: z.number().nullable(),
  ports: z.array(
    z.object({
      private: z.number(),
      public: z.number().nullable(),
      type: protocol,
      ip: z.string().nullable(),
    }),
  ),
  gpus: z.array(z.string()),
  ip: z.string().nullable(),
  gpusAtStart: z.literal(true).exactOptional(),
});

export const containerStats: z.ZodType<ContainerStats> = z.object({
  cpu: z.number(),
  memory: z.number(),
  gpus: z.array(z.object({ util: z.number(), memoryUtil: z.number() })),
});

const id = z.string();
const endpointId = z.string();

/** Something to do or to read on the machine of a node. */
const machineAct = z.discriminatedUnion('verb', [
  z.object({ verb: z.literal('create'), spec: containerSpec }),
  z.object({ verb: z.literal('start'), id, gpus: z.array(z.string()).exactOptional() }),
  z.object({ verb: z.literal('stop'), id, graceMs: z.number() }),
  z.object({ verb: z.literal('remove'), id, volumes: z.enum(['keep', 'remove']) }),
  z.object({ verb: z.literal('inspect'), id }),
  z.object({ verb: z.literal('list') }),
  z.object({ verb: z.literal('stats'), id }),
  z.object({ verb: z.literal('readLog'), id, maxBytes: z.number() }),
  z.object({ verb: z.literal('listVolumes') }),
  z.object({ verb: z.literal('removeVolumes'), endpointId }),
  z.object({ verb: z.literal('removeNetworkVolume'), source: z.string() }),
  z.object({ verb: z.literal('listNetworkVolumes') }),
  z.object({ verb: z.literal('growNetworkVolume'), source: z.string(), sizeGb: z.number() }),
  /** Makes the folder in which the endpoint's workers keep undelivered outcomes. */
  z.object({ verb: z.literal('provideFolder'), endpointId }),
  /** Outcomes that a worker has left. */
  z.object({ verb: z.literal('readLeft'), endpointId, workerId: z.string() }),
  /** Removes folders of workers and endpoints that no longer exist. */
  z.object({ verb: z.literal('tidyFolders') }),
]);
export type MachineAct = z.infer<typeof machineAct>;
export type MachineVerb = MachineAct['verb'];

/** `term`: the epoch of shard 0 in which the caller leads. */
export const machineBody = z.object({ term: z.number(), act: machineAct });
export type MachineBody = z.infer<typeof machineBody>;

/** `failed`: an EngineError. */
export const machineAnswer = z.union([
  z.object({ value: z.unknown() }),
  z.object({
    failed: z.object({ code: z.enum(['refused', 'unavailable']), message: z.string() }),
  }),
]);
export type MachineAnswer = z.infer<typeof machineAnswer>;

/** What the leader needs to know about a node's machine. */
export const machineInfo = z.object({
  name: z.string(),
  engine: z.enum(['none', 'process', 'docker', 'kubernetes']),
  /** URL at which workers on this machine reach the platform. */
  workerUrl: z.string(),
  limits: z.object({ memoryGb: z.number(), vcpus: z.number(), diskGb: z.number() }),
  /** Devices for pods. */
  devices: z.array(
    z.object({
      kind: z.enum(['cpu', 'gpu']),
      index: z.number(),
      uuid: z.string(),
      name: z.string(),
      memoryBytes: z.number(),
    }),
  ),
});
export type MachineInfo = z.infer<typeof machineInfo>;

export const leaseRefs = z.array(
  z.object({ jobId: z.string(), attempt: z.number(), token: z.string() }),
);
export const ids = z.array(z.string());

/** Endpoints and worker pods that exist. */
export const useAnswer = z.object({
  endpoints: ids,
  pods: z.array(z.tuple([z.string(), z.string()])),
});

export const parkWish = z.enum(PARK_WISHES);

/** Load of an endpoint's queue. */
export const workLoad = z.object({
  waiting: z.number(),
  running: z.number(),
  oldestQueuedAt: z.number().nullable(),
  outgrown: z
    .array(z.object({ gpuType: z.string(), waiting: z.number(), oldestQueuedAt: z.number() }))
    .exactOptional(),
  urgent: z.object({ priority: z.number(), waiting: z.number() }).exactOptional(),
  gpuCount: z.object({ since: z.number(), ms: z.number() }).exactOptional(),
  workers: z.array(
    z.object({
      podId: z.string().nullable(),
      jobs: z.number(),
      taken: z.number(),
      busyUntil: z.number(),
      draining: z.boolean(),
      isNew: z.literal(true).exactOptional(),
      start: z
        .object({ of: z.enum(STARTED), at: z.number(), parts: shownStartParts })
        .exactOptional(),
      parking: z
        .object({
          way: z.enum(PARK_WAYS).exactOptional(),
          state: z.enum(PARKING_STATES),
          vramBytes: z.number(),
          hostLimitBytes: z.number(),
          wish: parkWish.exactOptional(),
          canSuspend: z.literal(true).exactOptional(),
          attempts: z
            .object({
              priority: z.number(),
              startedAt: z.number(),
              suspensions: z.number(),
              suspendedMs: z.number(),
            })
            .exactOptional(),
          suspendedSince: z.number().exactOptional(),
        })
        .exactOptional(),
    }),
  ),
});
