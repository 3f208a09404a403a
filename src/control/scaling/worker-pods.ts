// Adds what an endpoint's worker needs at its start and its pod's record does not hold: the platform's
// URL, a key that is revoked when the container ends, and a folder or volume for its outbox.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { EngineError, type StateVolume } from '../../engine/engine.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { Keys } from '../keys/keys.ts';
import { findPlatformUrl } from '../pods/pod-steps.ts';
import type { PodState, Pods } from '../pods/pods.ts';

const STATE_DIR = 'MILLRACE_STATE_DIR';
/** Folder in the worker image to which the image's user may write. */
const STATE_PATH = '/state';

export interface WorkerPodsOptions {
  /** URL at which workers reach the platform. */
  url: (pod: PodState) => string;
  /** The same, if it is known for certain. Default: `url`. */
  certainUrl?: ((pod: PodState) => string | undefined) | undefined;
  keys: Pick<Keys, 'all' | 'issue' | 'remove'>;
  endpoints: Pick<Endpoints, 'find'>;
  pods: Pick<Pods, 'live' | 'onChange'>;
  /**
   * Folder that outlives the pods, for outcomes that the endpoint's workers have not delivered.
   * Default: none; undelivered outcomes are lost with the pod.
   */
  stateDirOf?: (endpointId: string, pod: PodState) => Promise<string>;
  /** `volumes`: the engine keeps the state in volumes of the endpoint. Default: `folders`. */
  stateIn?: 'folders' | 'volumes';
  /** Called for each worker's pod when its container is gone. */
  onGone?: (gone: GoneWorker) => Promise<void>;
  /** Workers that the queue knows, in pods and elsewhere. Default: none. */
  listWorkers?: () => readonly { endpointId: string; podId: string | null }[];
  clock: Clock;
  log: Log;
}

export interface GoneWorker {
  endpointId: string;
  podId: string;
  /** Node on whose machine it ran; undefined if the platform has only one. */
  node: string | undefined;
}

/** What the record of a removed pod no longer tells. */
interface WorkerOrigin {
  endpointId: string;
  node: string | undefined;
  slot: number | undefined;
}

export class WorkerPods {
  readonly #options: WorkerPodsOptions;
  readonly #originOf = new Map<string, WorkerOrigin>();
  readonly #slots: StateSlots;
  /** Pods whose outdated URL is logged. */
  readonly #outdated = new Set<string>();
  #stopListening: () => void = () => {};

  constructor(options: WorkerPodsOptions) {
    this.#options = options;
    this.#slots = new StateSlots(options);
  }

  /** Revokes the keys of pods that are gone, from earlier runs too. */
  async start(): Promise<void> {
    const { keys, pods } = this.#options;
    for (const pod of pods.live.all()) this.#noteOrigin(pod);
    this.#stopListening = pods.onChange((id, change) => {
      if (change !== 'record') return;
      const pod = pods.live.get(id);
      if (pod) this.#noteOrigin(pod);
      else void this.#noteEnd(id);
    });
    const owners = keys.all().flatMap(({ holder }) => holder.podId ?? []);
    const gone = owners.filter((id) => !pods.live.get(id));
    for (const id of new Set(gone)) await this.#endKeys(id);
  }

  /**
   * Releases the leases of workers whose container or pod ended while the platform was down; otherwise
   * the jobs would wait until the leases expire. Call it after the first reconcile pass over all pods.
   */
  async noteEnded(): Promise<void> {
    const { listWorkers = () => [], pods } = this.#options;
    const { live } = pods;
    const owners = listWorkers().map(({ endpointId, podId }) => ({ endpointId, id: podId }));
    const ended = new Map<string, GoneWorker>();
    for (const { endpointId, id } of [...owners, ...live.all()]) {
      if (id === null || endpointId === null) continue;
      // A pod that the engine could not inspect may still run.
      const state = live.get(id) ? (live.seen(id)?.state ?? 'running') : 'exited';
      const node = live.get(id)?.node;
      if (state !== 'running') ended.set(id, { endpointId, podId: id, node });
    }
    for (const gone of ended.values()) await this.#reportGone(gone);
  }

  close(): void {
    this.#stopListening();
  }

  /** The container was created for a URL that the platform no longer has: its worker may not reach it. */
  hasOldUrl(pod: PodState): boolean {
    const { certainUrl, log, pods, url } = this.#options;
    const seen = pods.live.seen(pod.id);
    const own = seen && findPlatformUrl(seen);
    const current = certainUrl ? certainUrl(pod) : url(pod);
    if (own === undefined || current === undefined || own === current) return false;
    if (!this.#outdated.has(pod.id)) {
      this.#outdated.add(pod.id);
      log.info(
        { pod: pod.id, endpoint: pod.endpointId, url: own, current },
        'worker has an old URL of the platform, replacing it',
      );
    }
    return true;
  }

  /**
   * Called right before each container is created. Each container gets a new key, because keys are
   * stored only as hashes. A load-balancing worker makes no calls to the platform and gets no key.
   */
  async environmentOf(pod: PodState): Promise<Readonly<Record<string, string>>> {
    const { createdAt, endpointId, generation, id, spec, userId } = pod;
    const deployment =
      endpointId === null ? null : this.#options.endpoints.find(endpointId)?.deployment;
    if (endpointId === null || !deployment) return {};
    const { clock, url } = this.#options;
    const place = { MILLRACE_ENDPOINT: endpointId, MILLRACE_WORKER_ID: id };
    if (deployment.type === 'LOAD_BALANCER') return place;
    await this.#endKeys(id);
    const scopes = [`worker:${endpointId}`];
    const { key } = await this.#options.keys.issue({
      name: `pod ${id}`,
      podId: id,
      userId,
      scopes,
    });
    return {
      ...place,
      MILLRACE_URL: url(pod),
      MILLRACE_KEY: key,
      MILLRACE_POD_ID: id,
      // For the timeline of its start: another container has not waited for a place.
      ...(generation === 1 && { MILLRACE_POD_TIMES: `${createdAt},${clock.now()}` }),
      ...(spec.version !== undefined && { MILLRACE_HANDLER_VERSION: String(spec.version) }),
      ...(spec.gpu && { MILLRACE_GPU_TYPE: spec.gpu.id }),
      ...(pod.spare && { MILLRACE_SPARE: '1' }),
      ...(await this.#describeState(pod, endpointId)),
      // The fleet replaces a failed worker after a pause, so the worker needs no further attempts.
      MILLRACE_START_ATTEMPTS: spec.env['MILLRACE_START_ATTEMPTS'] ?? '1',
    };
  }

  /** Undefined if the template sets MILLRACE_STATE_DIR, or if the endpoint has no queue. */
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
    pod: PodState,
    endpointId: string,
  ): Promise<Readonly<Record<string, string>>> {
    const { stateDirOf, stateIn } = this.#options;
    const { id, spec } = pod;
    const own = spec.env[STATE_DIR];
    if (own !== undefined) return { [STATE_DIR]: own };
    // Only the pod's own workers use the volume, so they may take over abandoned folders in it.
    if (stateIn === 'volumes') return { [STATE_DIR]: STATE_PATH, MILLRACE_STATE_OWNER: id };
    return stateDirOf ? { [STATE_DIR]: await stateDirOf(endpointId, pod) } : {};
  }

  #noteOrigin({ endpointId, id, node, stateSlot: slot }: PodState): void {
    if (endpointId !== null) this.#originOf.set(id, { endpointId, node, slot });
  }

  async #noteEnd(podId: string): Promise<void> {
    const origin = this.#originOf.get(podId);
    const reported =
      origin && this.#reportGone({ podId, endpointId: origin.endpointId, node: origin.node });
    this.#originOf.delete(podId);
    this.#outdated.delete(podId);
    await reported;
    await this.#endKeys(podId);
  }

  /** If the queue still knows the worker, it sent no bye: its volume may hold undelivered outcomes. */
  #noteLeft({ endpointId, node, podId }: GoneWorker): void {
    const slot = this.#originOf.get(podId)?.slot;
    if (slot === undefined) return;
    const { endpoints, listWorkers = () => [] } = this.#options;
    if (!endpoints.find(endpointId)) this.#slots.forget(endpointId);
    else if (listWorkers().some((worker) => worker.podId === podId)) {
      this.#slots.noteLeft(endpointId, { node, slot });
    }
  }

  async #reportGone(gone: GoneWorker): Promise<void> {
    const { log, onGone } = this.#options;
    this.#noteLeft(gone);
    try {
      await onGone?.(gone);
    } catch (error) {
      log.warn({ pod: gone.podId, err: error }, 'leases of an ended pod not released');
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

export interface StateSlotsOptions {
  pods: Pick<Pods, 'live'>;
}

/**
 * Assigns state volumes of an endpoint to its worker pods. The volumes belong to the machine of the pod's node. A
 * pod's record holds its volume from before its container is created until the container is gone, so two containers
 * never use the same one, whatever the engine, its runtime or a crash of the platform does. A free volume goes to the
 * next pod.
 */
class StateSlots {
  readonly #options: StateSlotsOptions;
  /** Chosen for a pod, but not in its record yet. */
  readonly #promised = new Map<string, { home: string; slot: number }>();
  /** By endpoint and node: volumes in which a dead worker may have left outcomes. */
  readonly #left = new Map<string, Set<number>>();

  constructor(options: StateSlotsOptions) {
    this.#options = options;
  }

  /** @throws EngineError if the pod no longer exists */
  async take(pod: PodState, endpointId: string): Promise<number> {
    if (pod.stateSlot !== undefined) return pod.stateSlot;
    const home = nameHome(endpointId, pod.node);
    const left = this.#left.get(home) ?? new Set<number>();
    const slot = chooseSlot({ held: this.#listHeld(home), left });
    this.#promised.set(pod.id, { home, slot });
    try {
      const { live } = this.#options.pods;
      const changed = await live.change(pod.id, (known) => ({ stateSlot: slot, ...known }));
      if (changed?.stateSlot === undefined) throw new EngineError('unavailable', 'the pod is gone');
      left.delete(changed.stateSlot);
      return changed.stateSlot;
    } finally {
      this.#promised.delete(pod.id);
    }
  }

  /** The container is gone; its worker was killed or could not deliver everything. */
  noteLeft(endpointId: string, { node, slot }: { node: string | undefined; slot: number }): void {
    const home = nameHome(endpointId, node);
    const left = this.#left.get(home) ?? new Set<number>();
    this.#left.set(home, left.add(slot));
  }

  forget(endpointId: string): void {
    for (const home of this.#left.keys()) {
      if (home.startsWith(nameHome(endpointId, ''))) this.#left.delete(home);
    }
  }

  #listHeld(home: string): Set<number> {
    const { live } = this.#options.pods;
    const recorded = live
      .all()
      .filter(({ endpointId, node }) => endpointId !== null && nameHome(endpointId, node) === home);
    const promised = [...this.#promised.values()].filter((each) => each.home === home);
    return new Set([
      ...recorded.flatMap(({ stateSlot }) => stateSlot ?? []),
      ...promised.map(({ slot }) => slot),
    ]);
  }
}

/** The volumes of an endpoint on one node. Neither name contains a space. */
function nameHome(endpointId: string, node = ''): string {
  return `${endpointId} ${node}`;
}

interface Slots {
  held: ReadonlySet<number>;
  left: ReadonlySet<number>;
}

/**
 * Prefers a volume with outcomes to deliver; otherwise the lowest number, to keep their number
 * small.
 */
export function chooseSlot({ held, left }: Slots): number {
  const waiting = [...left].filter((slot) => !held.has(slot));
  if (waiting.length > 0) return Math.min(...waiting);
  let slot = 0;
  while (held.has(slot)) slot++;
  return slot;
}
