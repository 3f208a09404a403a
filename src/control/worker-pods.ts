// What a pod that is an endpoint's worker is told at its start, and is not in its record: where the
// platform is, and a key of its own, which ends with it.
import type { Log } from '../base/log.ts';
import type { Endpoints } from './endpoints.ts';
import type { Keys } from './keys.ts';
import type { PodState, Pods } from './pods.ts';

export interface WorkerPodsOptions {
  /** The platform's, as workers reach it. */
  url: () => string;
  keys: Pick<Keys, 'all' | 'issue' | 'remove'>;
  endpoints: Pick<Endpoints, 'find'>;
  pods: Pick<Pods, 'live' | 'onChange'>;
  log: Log;
}

export class WorkerPods {
  readonly #options: WorkerPodsOptions;
  #stopListening: () => void = () => {};

  constructor(options: WorkerPodsOptions) {
    this.#options = options;
  }

  /** Keys of pods that are gone are ended, from now on and those of earlier runs. */
  async start(): Promise<void> {
    const { keys, pods } = this.#options;
    this.#stopListening = pods.onChange((id, change) => {
      if (change === 'record' && !pods.live.get(id)) void this.#endKeys(id);
    });
    const owners = keys.all().map(({ holder }) => readPodId(holder.name));
    const gone = owners.filter((id) => id !== undefined && !pods.live.get(id));
    for (const id of new Set(gone)) if (id !== undefined) await this.#endKeys(id);
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
    const place = { MILLRACE_ENDPOINT: endpointId, MILLRACE_WORKER_ID: id };
    if (deployment.type === 'LOAD_BALANCER') return place;
    await this.#endKeys(id);
    const scopes = [`worker:${endpointId}`];
    const { key } = await this.#options.keys.issue({ name: nameKey(id), userId, scopes });
    return {
      ...place,
      MILLRACE_URL: this.#options.url(),
      MILLRACE_KEY: key,
      // Another pod is made in place of one that fails, with a pause: no need to try again inside.
      MILLRACE_START_ATTEMPTS: spec.env['MILLRACE_START_ATTEMPTS'] ?? '1',
    };
  }

  async #endKeys(podId: string): Promise<void> {
    const { keys, log } = this.#options;
    const own = keys.all().filter(({ holder }) => {
      return holder.name === nameKey(podId) && isWorkersOnly(holder.scopes);
    });
    for (const { holder } of own) {
      try {
        await keys.remove(holder.keyId);
      } catch (error) {
        log.warn({ pod: podId, keyId: holder.keyId, err: error }, 'a key of a pod cannot be ended');
      }
    }
  }
}

function nameKey(podId: string): string {
  return `pod ${podId}`;
}

function readPodId(name: string): string | undefined {
  return /^pod (pod_\S+)$/.exec(name)?.[1];
}

/** Users name their keys as they like: only those that the platform may have made are ended. */
function isWorkersOnly(scopes: ReadonlySet<string>): boolean {
  return [...scopes].every((scope) => scope.startsWith('worker:'));
}
