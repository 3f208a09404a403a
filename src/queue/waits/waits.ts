// Collects the facts behind a wait reason: the endpoint's workers from memory, and the scaler's view.
import type { Clock } from '../../base/clock.ts';
import type { StoredJob } from '../../store/store.ts';
import type { WaitReason } from '../../wire/job/wait-reason.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import type { Presence } from '../leases/presence.ts';
import type { QueueSettings } from '../settings.ts';
import { describeWait, type WaitFacts, type WorkerFacts } from './wait-reason.ts';

/** Status reads are frequent: the workers of an endpoint are counted once in this time, ms. */
const COUNTED_MS = 200;
/** Endpoints whose counts are kept. */
const MAX_COUNTED = 1_000;

/** The scaler's view of an endpoint's workers. Never rejects. */
export type FindScaling = (endpointId: string) => KnownScaling | Promise<KnownScaling>;

export interface WaitsOptions {
  clock: Clock;
  presence: Presence;
  settings: QueueSettings;
  findScaling: FindScaling;
}

export class Waits {
  readonly #options: WaitsOptions;
  readonly #counted = new Map<string, { at: number; workers: WorkerFacts }>();

  constructor(options: WaitsOptions) {
    this.#options = options;
  }

  /** Of a job that is IN_QUEUE. */
  async describe(
    job: StoredJob,
    facts: Pick<WaitFacts, 'group' | 'laterGpus'> = { group: undefined },
  ): Promise<WaitReason> {
    const { clock, findScaling } = this.#options;
    const { laterGpus } = facts;
    const scaling = await findScaling(job.endpointId);
    const workers = laterGpus
      ? this.#countOfTypes(job.endpointId, laterGpus.types)
      : this.#countWorkers(job.endpointId);
    return describeWait(job, { workers, scaling, ...facts }, clock.now());
  }

  #countOfTypes(endpointId: string, types: readonly string[]): WorkerFacts {
    const { clock, presence, settings } = this.#options;
    const able = [...presence.ofEndpoint(endpointId)].filter(
      ({ gpuType }) => gpuType !== null && types.includes(gpuType),
    );
    return countWorkers(able, clock.now() - settings.leaseMs);
  }

  #countWorkers(endpointId: string): WorkerFacts {
    const { clock, presence, settings } = this.#options;
    const now = clock.now();
    const known = this.#counted.get(endpointId);
    if (known && now - known.at >= 0 && now - known.at < COUNTED_MS) return known.workers;
    if (this.#counted.size >= MAX_COUNTED) this.#counted.clear();
    const workers = countWorkers(presence.ofEndpoint(endpointId), now - settings.leaseMs);
    this.#counted.set(endpointId, { at: now, workers });
    return workers;
  }
}

type SeenWorker = Pick<
  NonNullable<ReturnType<Presence['find']>>,
  'draining' | 'leases' | 'seenAt' | 'slots'
>;

export function countWorkers(all: Iterable<SeenWorker>, aliveSince: number): WorkerFacts {
  const facts: WorkerFacts = { alive: 0, freeSlots: 0, empty: 0, draining: 0, silentSince: null };
  for (const { draining, leases, seenAt, slots } of all) {
    if (seenAt < aliveSince) facts.silentSince = Math.max(facts.silentSince ?? 0, seenAt);
    else if (draining) facts.draining++;
    else {
      facts.alive++;
      if (leases.size === 0) facts.empty++;
      const isAlone = [...leases.values()].some(({ solo }) => solo);
      if (!isAlone) facts.freeSlots += Math.max(0, slots - leases.size);
    }
  }
  return facts;
}
