// Finds the HTTP addresses of endpoints' workers from their pods. The balancer chooses among them.
import type { LivePods } from '../pods/live-pods.ts';
import type { PodState } from '../pods/pod-state.ts';

/** The HTTP port of a worker with a running container. */
export interface WorkerTarget {
  endpointId: string;
  podId: string;
  /** Node on whose machine the address is; undefined if the platform has only one. */
  node: string | undefined;
  /** Address from that machine. */
  ip: string;
  port: number;
  /** The worker is about to end or to be recreated: it gets no new requests. */
  isLeaving: boolean;
}

export interface TargetSource {
  all(): WorkerTarget[];
  /** Undefined if the pod is not a worker, has no HTTP port, or its container does not run. */
  find(podId: string): WorkerTarget | undefined;
  /**
   * Calls the listener with each pod whose target may have changed. @returns the function that
   * stops it
   */
  onChange(listener: (podId: string) => void): () => void;
}

/** For a pod with several HTTP ports, the first one counts. */
export class PodTargets implements TargetSource {
  readonly #pods: Pick<LivePods, 'all' | 'get' | 'onChange' | 'seen'>;

  constructor(pods: Pick<LivePods, 'all' | 'get' | 'onChange' | 'seen'>) {
    this.#pods = pods;
  }

  all(): WorkerTarget[] {
    return this.#pods.all().flatMap((pod) => this.#describe(pod) ?? []);
  }

  find(podId: string): WorkerTarget | undefined {
    const pod = this.#pods.get(podId);
    return pod && this.#describe(pod);
  }

  onChange(listener: (podId: string) => void): () => void {
    return this.#pods.onChange(listener);
  }

  #describe(pod: PodState): WorkerTarget | undefined {
    const { desired, endpointId, generation, id, node, spec } = pod;
    const seen = this.#pods.seen(id);
    if (endpointId === null || seen?.state !== 'running') return undefined;
    const wanted = spec.ports.find((port) => port.endsWith('/http'));
    const port = seen.ports.find(({ private: number, type }) => `${number}/${type}` === wanted);
    if (!port || port.ip === null || port.public === null) return undefined;
    const isLeaving = desired !== 'running' || seen.generation !== generation;
    return { endpointId, podId: id, node, ip: port.ip, port: port.public, isLeaving };
  }
}
