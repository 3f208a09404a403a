// Chooses the jobs that a worker may take now, within what limits an endpoint and its groups.
import type { GroupGate, StoredEndpoint, StoredJob, Transaction } from '../../store/store.ts';
import { acceptOutgrown } from '../leases/presence.ts';
import type { QueueParts } from '../queue-parts.ts';

type LimitsOptions = Pick<QueueParts, 'pauses'>;

export interface Taker {
  endpointId: string;
  gpuType: string | null;
}

export interface Takeable {
  jobs: StoredJob[];
  /** Jobs may be ready, but something limits them. */
  isBlocked: boolean;
  /** Jobs may be ready, but their groups have as many leases as they may have: another limit wakes nobody. */
  isAtLimit: boolean;
  /** The search for jobs was cut short. */
  hasMore: boolean;
}

export const NOTHING_TAKEABLE: Takeable = {
  jobs: [],
  isBlocked: false,
  isAtLimit: false,
  hasMore: false,
};

export class Limits {
  readonly #options: LimitsOptions;

  constructor(options: LimitsOptions) {
    this.#options = options;
  }

  /** Whether jobs may be ready that no worker may take now. */
  concerns({ id, settings }: Pick<StoredEndpoint, 'id' | 'settings'>): boolean {
    return settings.groupConcurrency !== null || this.#options.pauses.concernsGroups(id);
  }

  /** The best ready jobs that the worker may take. Call `noteLearned` at the end of the operation. */
  find(tx: Transaction, { endpointId, gpuType }: Taker, limit: number): Takeable {
    // A resume wakes the take.
    if (this.#options.pauses.find({ endpointId, group: null })) return NOTHING_TAKEABLE;
    const endpoint = tx.endpoint(endpointId);
    const groupLimit = endpoint?.settings.groupConcurrency ?? undefined;
    const deployment = endpoint?.deployment ?? null;
    // Without a deployment, no job has outgrown a GPU type.
    const acceptsOutgrown = deployment === null ? undefined : acceptOutgrown(deployment, gpuType);
    const gate = this.#createGate(endpointId);
    const found = tx.takeableJobs({ endpointId, limit, groupLimit, gate, acceptsOutgrown });
    return { ...found, isAtLimit: found.isBlocked && groupLimit !== undefined };
  }

  /** The operation has learned which groups have more capacity. */
  noteLearned(endpointId: string): void {
    this.#options.pauses.noteLearned(endpointId);
  }

  #createGate(endpointId: string): GroupGate | undefined {
    const { pauses } = this.#options;
    if (!pauses.concernsGroups(endpointId)) return undefined;
    return {
      capacity: (group) => (pauses.find({ endpointId, group }) ? 0 : Number.POSITIVE_INFINITY),
      grown: pauses.resumed(endpointId),
    };
  }
}
