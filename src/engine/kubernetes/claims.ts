// Creates, grows and removes the PersistentVolumeClaims of pods and endpoints. Claims of the operator stay alone.
import { z } from 'zod';
import { type Clock, sleep } from '../../base/clock.ts';
import { EngineError, type NetworkVolumes, type StateVolumes } from '../engine.ts';
import { type ApiClient, KubernetesError } from './api-client.ts';
import { type ClaimSource, describeClaim } from './manifests.ts';
import {
  ENDPOINT_LABEL,
  nameNetworkClaim,
  PLATFORM_LABEL,
  POD_LABEL,
  writeSelector,
} from './names.ts';
import { objectAnswer, objectList, readQuantity } from './pod-view.ts';
import type { KubernetesSettings } from './settings.ts';

const CONFLICT = 409;
/** A claim stays until the cluster has seen that no Pod uses it. */
const SETTLE_MS = 15_000;
const FIRST_LOOK_MS = 20;
const MAX_LOOK_MS = 500;
const BYTES_PER_GB = 1_073_741_824;

const claimAnswer = objectAnswer.extend({
  spec: z.object({
    resources: z.object({ requests: z.record(z.string(), z.string()).optional() }).optional(),
  }),
});

export interface ClaimsOptions {
  client: ApiClient;
  platform: string;
  settings: KubernetesSettings;
  clock: Clock;
}

export class Claims {
  readonly #options: ClaimsOptions;

  constructor(options: ClaimsOptions) {
    this.#options = options;
  }

  /** Existing claims keep their files, and grow if they are too small. @throws KubernetesError, EngineError */
  async provide(wanted: ClaimSource): Promise<void> {
    const { client, settings } = this.#options;
    const found = await client.find({ method: 'GET', path: await this.#path(wanted.name) });
    if (found === undefined) {
      const body = describeClaim(wanted, settings);
      try {
        await client.ask({ method: 'POST', path: await this.#path(), body });
      } catch (error) {
        if (!(error instanceof KubernetesError && error.status === CONFLICT)) throw error;
      }
      return;
    }
    const claim = claimAnswer.parse(found);
    if (claim.metadata.deletionTimestamp !== undefined) {
      throw new EngineError('unavailable', `the claim ${wanted.name} is still being removed`);
    }
    await this.#grow(wanted, claim);
  }

  async #grow({ name, sizeGb }: ClaimSource, { spec }: z.infer<typeof claimAnswer>): Promise<void> {
    const has = readQuantity(spec.resources?.requests?.['storage'] ?? '');
    if (has === undefined || has >= sizeGb * BYTES_PER_GB) return;
    const body = { spec: { resources: { requests: { storage: `${sizeGb}Gi` } } } };
    await this.#options.client.ask({ method: 'PATCH', path: await this.#path(name), body });
  }

  /** Also of a pod without a container. Resolves when the claims are gone. */
  removeOfPod(id: string): Promise<void> {
    return this.#removeAll({ [POD_LABEL]: id });
  }

  readonly ofEndpoints: StateVolumes = {
    listEndpoints: async () => {
      const found = await this.#list({});
      return [...new Set(found.flatMap(({ labels }) => labels?.[ENDPOINT_LABEL] ?? []))];
    },
    remove: (endpointId) => this.#removeAll({ [ENDPOINT_LABEL]: endpointId }),
  };

  /** Of a network volume that a user has created. */
  readonly ofUsers: NetworkVolumes = {
    remove: async (source) => {
      const { client, platform } = this.#options;
      const path = await this.#path(nameNetworkClaim(platform, source));
      await client.find({ method: 'DELETE', path, body: {} });
      await this.#untilGone(async () => (await client.find({ method: 'GET', path })) !== undefined);
    },
  };

  async #removeAll(labels: Readonly<Record<string, string>>): Promise<void> {
    const { client } = this.#options;
    for (const { name } of await this.#list(labels)) {
      await client.find({ method: 'DELETE', path: await this.#path(name), body: {} });
    }
    await this.#untilGone(async () => (await this.#list(labels)).length > 0);
  }

  async #untilGone(isThere: () => Promise<boolean>): Promise<void> {
    const { clock } = this.#options;
    const giveUpAt = clock.now() + SETTLE_MS;
    for (let lookMs = FIRST_LOOK_MS; await isThere(); lookMs = Math.min(MAX_LOOK_MS, lookMs * 2)) {
      if (clock.now() >= giveUpAt) {
        throw new EngineError('unavailable', 'the volume is removed when no Pod uses it any more');
      }
      await sleep(clock, lookMs);
    }
  }

  async #list(labels: Readonly<Record<string, string>>) {
    const { client, platform } = this.#options;
    const labelSelector = writeSelector({ ...labels, [PLATFORM_LABEL]: platform });
    const query = { labelSelector };
    const answer = await client.ask({ method: 'GET', path: await this.#path(), query });
    return objectList.parse(answer).items.map(({ metadata }) => metadata);
  }

  #path(name?: string): Promise<string> {
    return this.#options.client.pathOf('persistentvolumeclaims', name);
  }
}
