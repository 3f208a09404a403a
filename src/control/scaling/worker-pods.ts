// What a pod that is an endpoint's worker is told at its start, and is not in its record: where the
// platform is, a key of its own, which ends with it, and where it keeps what has to outlive it.
import type { Log } from '../../base/log.ts';
import type { StateVolume } from '../../engine/engine.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { Keys } from '../keys/keys.ts';
import type { PodState, Pods } from '../pods/pods.ts';
import { StateSlots } from './state-slots.ts';

const STATE_DIR = 'MILLRACE_STATE_DIR';
/** Where the worker image has a folder for it, which its user may write to. */
const STATE_PATH = '/state';

export interface WorkerPodsOptions {
  /** The platform's, as workers reach it. */
  url: () => string;
  keys: Pick<Keys, 'all' | 'issue' | 'remove'>;
  endpoints: Pick<Endpoints, 'find'>;
  pods: Pick<Pods, 'live' | 'onChange'>;
  /**
   * A folder that outlives the pods, for what the endpoint's workers have finished and not delivered.
   * Default: none; it ends with them.
   */
  stateDirOf?: (endpointId: string) => Promise<string>;
  /** `volumes`: the engine keeps that in a volume of the endpoint's. Default: `folders`. */
  stateIn?: 'folders' | 'volumes';
  /** Told of each worker's pod once its container is gone. Default: nobody. */
  onGone?: (endpointId: string, podId: string) => Promise<void>;
  /** Workers that the queue knows, those of pods and others. Default: none. */
  listWorkers?: () => readonly { endpointId: string; podId: string | null }[];
  log: Log;
}

export class WorkerPods {
  readonly #options: WorkerPodsOptions;
  /** Endpoints by their pods: of one that is gone it cannot be asked any more. */
  readonly #endpointOf = new Map<string, string>();
  readonly #slots: StateSlots;
  readonly #slotOf = new Map<string, number>();
  #stopListening: () => void = () => {};

  constructor(options: WorkerPodsOptions) {
    this.#options = options;
    this.#slots = new StateSlots(options);
  }

  /** Keys of pods that are gone are ended, from now on and those of earlier runs. */
  async start(): Promise<void> {
    const { keys, pods } = this.#options;
    for (const pod of pods.live.all()) this.#noteEndpoint(pod);
    this.#stopListening = pods.onChange((id, change) => {
      if (change !== 'record') return;
      const pod = pods.live.get(id);
      if (pod) this.#noteEndpoint(pod);
      else void this.#hearOfEnd(id);
    });
    const owners = keys.all().flatMap(({ holder }) => holder.podId ?? []);
    const gone = owners.filter((id) => !pods.live.get(id));
    for (const id of new Set(gone)) await this.#endKeys(id);
  }

  /**
   * Releases what workers had whose containers, or whole pods, ended while no platform was there: their
   * leases would last until they run out. To be called when all pods have been looked at.
   */
  async noteEnded(): Promise<void> {
    const { listWorkers = () => [], pods } = this.#options;
    const { live } = pods;
    const owners = listWorkers().map(({ endpointId, podId }) => ({ endpointId, id: podId }));
    const ended = new Map<string, string>();
    for (const { endpointId, id } of [...owners, ...live.all()]) {
      if (id === null || endpointId === null) continue;
      // Of a pod that could not be looked at nothing is known.
      const state = live.get(id) ? (live.seen(id)?.state ?? 'running') : 'exited';
      if (state !== 'running') ended.set(id, endpointId);
    }
    for (const [id, endpointId] of ended) await this.#tellGone(endpointId, id);
  }

  close(): void {
    this.#stopListening();
  }

  /**
   * Asked right before its container is made, each time with a new key: nobody has the one that the
   * container before had. A worker behind a balancer asks the platform for nothing and gets none.
   */
  async environmentOf(pod: PodState): Promise<Readonly<Record<string, string>>> {
    const { endpointId, id, spec, userId } = pod;
    const deployment =
      endpointId === null ? null : this.#options.endpoints.find(endpointId)?.deployment;
    if (endpointId === null || !deployment) return {};
    const { url } = this.#options;
    const place = { MILLRACE_ENDPOINT: endpointId, MILLRACE_WORKER_ID: id };
    if (deployment.type === 'LOAD_BALANCER') return place;
    await this.#endKeys(id);
    const scopes = [`worker:${endpointId}`];
    const { key } = await this.#options.keys.issue({
      ...{ name: `pod ${id}`, podId: id, userId, scopes },
    });
    return {
      ...place,
      MILLRACE_URL: url(),
      MILLRACE_KEY: key,
      MILLRACE_POD_ID: id,
      ...(await this.#describeState(pod, endpointId)),
      // Another pod is made in place of one that fails, with a pause: no need to try again inside.
      MILLRACE_START_ATTEMPTS: spec.env['MILLRACE_START_ATTEMPTS'] ?? '1',
    };
  }

  /** None where the template names a folder of its own, or for a worker that is no client of the queue. */
  async stateVolumeOf(pod: PodState): Promise<StateVolume | undefined> {
    const { endpoints, stateIn } = this.#options;
    const { endpointId, spec } = pod;
    if (stateIn !== 'volumes' || endpointId === null) return undefined;
    if (endpoints.find(endpointId)?.deployment?.type !== 'QUEUE') return undefined;
    if (spec.env[STATE_DIR] !== undefined) return undefined;
    const slot = await this.#slots.take(pod, endpointId);
    return { endpointId, slot, path: STATE_PATH };
  }

  async #describeState(
    { id, spec }: PodState,
    endpointId: string,
  ): Promise<Readonly<Record<string, string>>> {
    const { stateDirOf, stateIn } = this.#options;
    const own = spec.env[STATE_DIR];
    if (own !== undefined) return { [STATE_DIR]: own };
    // Nobody but the pod's own workers has the volume: they may tidy up there.
    if (stateIn === 'volumes') return { [STATE_DIR]: STATE_PATH, MILLRACE_STATE_OWNER: id };
    return stateDirOf ? { [STATE_DIR]: await stateDirOf(endpointId) } : {};
  }

  #noteEndpoint({ endpointId, id, stateSlot }: PodState): void {
    if (endpointId !== null) this.#endpointOf.set(id, endpointId);
    if (stateSlot !== undefined) this.#slotOf.set(id, stateSlot);
  }

  async #hearOfEnd(podId: string): Promise<void> {
    const endpointId = this.#endpointOf.get(podId);
    this.#endpointOf.delete(podId);
    const told = endpointId === undefined ? undefined : this.#tellGone(endpointId, podId);
    this.#slotOf.delete(podId);
    await told;
    await this.#endKeys(podId);
  }

  /** The queue still has its worker, which did not say goodbye: there may be outcomes in the volume. */
  #noteLeft(endpointId: string, podId: string): void {
    const slot = this.#slotOf.get(podId);
    if (slot === undefined) return;
    const { endpoints, listWorkers = () => [] } = this.#options;
    if (!endpoints.find(endpointId)) this.#slots.forget(endpointId);
    else if (listWorkers().some((worker) => worker.podId === podId)) {
      this.#slots.noteLeft(endpointId, slot);
    }
  }

  async #tellGone(endpointId: string, podId: string): Promise<void> {
    const { log, onGone } = this.#options;
    this.#noteLeft(endpointId, podId);
    try {
      await onGone?.(endpointId, podId);
    } catch (error) {
      log.warn({ pod: podId, err: error }, 'leases of an ended pod not released');
    }
  }

  async #endKeys(podId: string): Promise<void> {
    const { keys, log } = this.#options;
    const own = keys.all().filter(({ holder }) => holder.podId === podId);
    for (const { holder } of own) {
      try {
        await keys.remove(holder.keyId);
      } catch (error) {
        log.warn(
          { pod: podId, keyId: holder.keyId, err: error },
          'revoking the key of a pod failed',
        );
      }
    }
  }
}
