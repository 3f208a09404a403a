// Follows the Pods of a platform in a namespace: when each came and went, what the scheduler said of it, and whether a pod ever had two.
import { z } from 'zod';
import { type KubeObject, watchAll } from './client.ts';
import type { Cluster } from './cluster.ts';
import { PLATFORM_LABEL, POD_LABEL } from './kube-platform.ts';

const conditions = z
  .array(z.looseObject({ type: z.string(), status: z.string(), message: z.string().default('') }))
  .default([]);

interface FollowedPod {
  name: string;
  /** ID of the platform's pod. */
  pod: string;
  nodeSelector: unknown;
  /** ms on one clock for all. */
  cameAt: number;
  wentAt?: number;
  /** The scheduler's words, while it has found no node. */
  unschedulable?: string;
}

export class PodHistory {
  readonly #followed = new Map<string, FollowedPod>();
  readonly #doubles = new Set<string>();
  readonly #stopped = new AbortController();
  readonly #watching: Promise<void>;

  constructor({ admin }: Cluster, namespace: string, platform: string) {
    const selector = `labelSelector=${PLATFORM_LABEL}%3D${platform}`;
    const path = `/api/v1/namespaces/${namespace}/pods?${selector}`;
    this.#watching = watchAll(admin, path, this.#stopped.signal, (pods) => this.#follow(pods));
  }

  /** In the order in which they came. */
  get all(): readonly FollowedPod[] {
    return [...this.#followed.values()];
  }

  /** IDs of pods that had two Pods at a time. */
  get doubles(): string[] {
    return [...this.#doubles];
  }

  async close(): Promise<void> {
    this.#stopped.abort();
    await this.#watching;
  }

  #follow(pods: ReadonlyMap<string, KubeObject>): void {
    const now = performance.now();
    for (const [uid, followed] of this.#followed) if (!pods.has(uid)) followed.wentAt ??= now;
    const owners = new Set<string>();
    for (const [uid, { metadata, spec, status }] of pods) {
      const pod = metadata.labels?.[POD_LABEL] ?? '';
      if (owners.has(pod)) this.#doubles.add(pod);
      owners.add(pod);
      const followed = this.#followed.get(uid) ?? {
        ...{ name: metadata.name, pod, nodeSelector: spec?.['nodeSelector'], cameAt: now },
      };
      this.#followed.set(uid, followed);
      const scheduled = conditions
        .parse(status?.['conditions'])
        .find(({ type }) => type === 'PodScheduled');
      if (scheduled?.status === 'False') followed.unschedulable = scheduled.message;
    }
  }
}
