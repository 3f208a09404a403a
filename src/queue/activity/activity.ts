// What happens at the endpoints of a queue now, and what happened in the last days.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Store } from '../../store/store.ts';
import type { EndpointActivity } from '../../wire/resources/activity.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import { readEndpoint } from '../endpoint-removal.ts';
import type { Presence } from '../leases/presence.ts';
import type { WorkerLoads } from '../leases/worker-loads.ts';
import type { QueueSettings } from '../settings.ts';
import type { Signals } from '../signals.ts';
import type { EndpointTimes } from '../time/job-times.ts';
import { countWorkers, type FindScaling, type Waits } from '../waits/waits.ts';
import { ActivityRecorder } from './recorder.ts';
import { rollUp, type SeriesPoint, type SeriesRange } from './series.ts';

export interface ActivityOptions {
  store: Store;
  clock: Clock;
  log: Log;
  settings: QueueSettings;
  presence: Presence;
  waits: Waits;
  workerLoads: WorkerLoads;
  signals: Pick<Signals, 'onQueued'>;
  findScaling: FindScaling;
  times: () => ReadonlyMap<string, Readonly<EndpointTimes>>;
  /** Whether the endpoint is one of the queue. */
  owns: (endpointId: string) => boolean;
  closing: AbortSignal;
}

export class QueueActivity {
  readonly #options: ActivityOptions;
  readonly #recorder: ActivityRecorder;

  constructor(options: ActivityOptions) {
    this.#options = options;
    const { signals, workerLoads } = options;
    this.#recorder = new ActivityRecorder({
      ...options,
      countWorkers: (id, scaling) => this.#countWorkers(id, scaling),
      onQueued: (listener) => signals.onQueued(listener),
      oldestQueuedAt: async (id) => (await workerLoads.load(id)).oldestQueuedAt,
    });
  }

  /** Records until the queue closes; never rejects. */
  record(): Promise<void> {
    return this.#recorder.run();
  }

  /** @throws ProblemError `not_found` */
  async now(endpointId: string): Promise<EndpointActivity> {
    const { clock, findScaling, store, waits, workerLoads } = this.#options;
    const { endpoint, next } = await store.read((tx) => {
      const [job] = tx.readyJobs(endpointId, 1);
      return { endpoint: readEndpoint(tx, endpointId), next: job };
    });
    const load = endpoint.inQueue > 0 ? await workerLoads.load(endpointId) : undefined;
    const oldest = load?.oldestQueuedAt ?? null;
    const now = clock.now();
    return {
      ...{ waiting: endpoint.inQueue, running: endpoint.inProgress },
      oldestWaitMs: oldest === null ? null : Math.max(0, now - oldest),
      waitReason: next ? await waits.describe(next) : null,
      jobsPerSecond: this.#recorder.jobsPerSecond(endpointId),
      ...this.#recorder.countFailures(endpointId),
      workers: this.#countWorkers(endpointId, await findScaling(endpointId)),
    };
  }

  /** @throws ProblemError `not_found` */
  async series(endpointId: string, range: SeriesRange): Promise<SeriesPoint[]> {
    await this.#options.store.read((tx) => readEndpoint(tx, endpointId));
    return rollUp(await this.#recorder.minutes(endpointId, range.from), range);
  }

  #countWorkers(endpointId: string, scaling: KnownScaling): EndpointActivity['workers'] {
    const { clock, presence, settings } = this.#options;
    const all = presence.ofEndpoint(endpointId);
    const { alive, draining, empty } = countWorkers(all, clock.now() - settings.leaseMs);
    const managed = typeof scaling === 'object' ? scaling.workers : 0;
    const starting = Math.max(0, managed - alive - draining);
    return { starting, idle: empty, running: alive - empty, draining };
  }
}
