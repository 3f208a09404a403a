// The engines of all nodes as one: each call goes to the machine of the pod's node.
import { z } from 'zod';
import type { Log } from '../../base/log.ts';
import {
  type Container,
  type ContainerSpec,
  type ContainerStats,
  type Engine,
  type EngineCapabilities,
  EngineError,
  type NetworkVolumes,
  type StateVolumes,
} from '../../engine/engine.ts';
import type { MachineAct } from './machine-messages.ts';
import { container, containerStats, ids } from './machine-messages.ts';
import type { Machines } from './machines.ts';

/** The pod's record, as far as the engine needs it. */
interface PodHome {
  node?: string;
}

export interface NodesEngineOptions {
  kind: Engine['kind'];
  /** Of the engine of this machine; all nodes have the same kind. */
  capabilities: () => EngineCapabilities;
  hasStateVolumes: boolean;
  machines: Pick<Machines, 'act' | 'names' | 'noteList'>;
  /** Undefined if the pod no longer exists. */
  findPod: (id: string) => PodHome | undefined;
  /** Records the node of a pod of a time when the platform had only one. */
  bind: (id: string, node: string) => Promise<void>;
  /** Watches the containers of this machine; those of others are seen at the next pass. */
  watchOwn: Engine['watch'];
  log: Log;
}

export class NodesEngine implements Engine {
  readonly kind: Engine['kind'];
  readonly stateVolumes?: StateVolumes;
  readonly networkVolumes: NetworkVolumes = {
    remove: async (source) => {
      await this.#actAll({ verb: 'removeNetworkVolume', source });
    },
    grow: async (source, sizeGb) => {
      await this.#actAll({ verb: 'growNetworkVolume', source, sizeGb });
    },
    list: async () => {
      const lists = await this.#actAll({ verb: 'listNetworkVolumes' });
      return [...new Set(lists.flatMap((list) => ids.parse(list)))];
    },
  };
  readonly #options: NodesEngineOptions;
  /** Where the last list found containers without a pod. */
  readonly #strays = new Map<string, string>();

  constructor(options: NodesEngineOptions) {
    this.#options = options;
    this.kind = options.kind;
    if (options.hasStateVolumes) {
      this.stateVolumes = {
        listEndpoints: () => this.#listVolumes(),
        remove: (endpointId) => this.#removeVolumes(endpointId),
      };
    }
  }

  get capabilities(): EngineCapabilities {
    return this.#options.capabilities();
  }

  async create(spec: ContainerSpec): Promise<void> {
    await this.#act(spec.id, { verb: 'create', spec });
  }

  async start(id: string, gpus?: readonly string[]): Promise<void> {
    await this.#act(id, { verb: 'start', id, ...(gpus && { gpus: [...gpus] }) });
  }

  async stop(id: string, graceMs: number): Promise<void> {
    await this.#act(id, { verb: 'stop', id, graceMs });
  }

  async remove(id: string, volumes: 'keep' | 'remove'): Promise<void> {
    await this.#act(id, { verb: 'remove', id, volumes });
  }

  async inspect(id: string): Promise<Container | undefined> {
    return container.nullable().parse(await this.#act(id, { verb: 'inspect', id })) ?? undefined;
  }

  /** Of the nodes that answer. @throws EngineError if none does */
  async list(): Promise<Container[]> {
    const { machines } = this.#options;
    const { names } = machines;
    this.#strays.clear();
    const lists = await Promise.allSettled(names.map((name) => this.#listAt(name)));
    const failed = lists.find((list) => list.status === 'rejected');
    if (failed && lists.every((list) => list.status === 'rejected')) throw failed.reason;
    return lists.flatMap((list) => (list.status === 'fulfilled' ? list.value : []));
  }

  async stats(id: string): Promise<ContainerStats | undefined> {
    return containerStats.nullable().parse(await this.#act(id, { verb: 'stats', id })) ?? undefined;
  }

  async readLog(id: string, maxBytes: number): Promise<Uint8Array> {
    const text = z.string().parse(await this.#act(id, { verb: 'readLog', id, maxBytes }));
    return Buffer.from(text, 'base64');
  }

  watch(onChange: (id: string) => void): () => void {
    return this.#options.watchOwn(onChange);
  }

  /** Each node closes its own engine. */
  async close(): Promise<void> {}

  async #act(id: string, act: MachineAct): Promise<unknown> {
    const { findPod, machines } = this.#options;
    const pod = findPod(id);
    const node = pod ? pod.node : this.#strays.get(id);
    if (node === undefined)
      throw new EngineError('unavailable', 'no node has the container of this pod');
    return machines.act(node, act);
  }

  /** On each machine that can be called. @throws EngineError also if there is none */
  async #actAll(act: MachineAct): Promise<unknown[]> {
    const { machines } = this.#options;
    const { names } = machines;
    if (names.length === 0) throw new EngineError('unavailable', 'no node answers');
    return Promise.all(names.map((name) => machines.act(name, act)));
  }

  async #listAt(node: string): Promise<Container[]> {
    const { machines } = this.#options;
    try {
      const found = z.array(container).parse(await machines.act(node, { verb: 'list' }));
      machines.noteList(node, { isAnswered: true });
      const kept: Container[] = [];
      for (const each of found) if (await this.#belongs(each, node)) kept.push(each);
      return kept;
    } catch (error) {
      machines.noteList(node, { isAnswered: false });
      throw error;
    }
  }

  /** False: the pod is another node's, so this container is a copy of an old data folder. */
  async #belongs({ id }: Container, node: string): Promise<boolean> {
    const { bind, findPod, log, machines } = this.#options;
    const pod = findPod(id);
    if (!pod) {
      this.#strays.set(id, node);
      return true;
    }
    this.#strays.delete(id);
    if (pod.node === undefined) await bind(id, node);
    const home = findPod(id)?.node;
    if (home === node) return true;
    log.warn({ container: id, node, podNode: home }, 'removing container of a pod of another node');
    await machines.act(node, { verb: 'remove', id, volumes: 'keep' });
    return false;
  }

  async #listVolumes(): Promise<string[]> {
    const { machines } = this.#options;
    const lists = machines.names.map(async (name) =>
      ids.parse(await machines.act(name, { verb: 'listVolumes' })),
    );
    return [...new Set((await Promise.all(lists)).flat())];
  }

  async #removeVolumes(endpointId: string): Promise<void> {
    const { machines } = this.#options;
    const acts = machines.names.map((name) =>
      machines.act(name, { verb: 'removeVolumes', endpointId }),
    );
    await Promise.all(acts);
  }
}
