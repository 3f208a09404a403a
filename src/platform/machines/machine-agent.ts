// Carries out the leader's commands on this machine: calls the engine, and keeps the folders of workers. As soon as this
// node knows of a new leader, it refuses the earlier one.
import { type ContainerSpec, type Engine, EngineError } from '../../engine/engine.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { FolderUse, WorkerFolders } from '../compute/worker-folders.ts';
import type { MachineAct, MachineAnswer, MachineBody } from './machine-messages.ts';

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
