// Where the workers of endpoints are reached over HTTP, as their pods tell. Which of them gets a request
// is the balancer's.
import type { LivePods } from '../pods/live-pods.ts';
import type { PodState } from '../pods/pod-state.ts';

/** The HTTP port of a worker whose container runs. */
export interface WorkerTarget {
  endpointId: string;
  podId: string;
  /** Where it is reached from this machine. */
  ip: string;
  port: number;
  /** It is to end, or to be made anew: it gets nothing new. */
  isLeaving: boolean;
}

export interface TargetSource {
  all(): WorkerTarget[];
  /** Undefined when it is no worker, has no HTTP port, or its container does not run. */
  find(podId: string): WorkerTarget | undefined;
  /** Tells which pod's target may be another one than before. Returns the end of it. */
  onChange(listener: (podId: string) => void): () => void;
}

/** Of a pod with several HTTP ports it is the first one. */
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
    const { desired, endpointId, generation, id, spec } = pod;
    const seen = this.#pods.seen(id);
    if (endpointId === null || seen?.state !== 'running') return undefined;
    const wanted = spec.ports.find((port) => port.endsWith('/http'));
    const port = seen.ports.find(({ private: number, type }) => `${number}/${type}` === wanted);
    if (!port || port.ip === null || port.public === null) return undefined;
    const isLeaving = desired !== 'running' || seen.generation !== generation;
    return { endpointId, podId: id, ip: port.ip, port: port.public, isLeaving };
  }
}
