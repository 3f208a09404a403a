// Removes the jobs of a deleted endpoint in slices. Requests to the endpoint get 404 as soon as it is
// deleted. control/ decides when to delete an endpoint.
import { letOthersRun } from '../base/clock.ts';
import { LOWEST_POSITION, type Reader, type StoredEndpoint } from '../store/store.ts';
import { ProblemError } from '../wire/problem.ts';
import type { QueueParts } from './queue-parts.ts';

/** Deliveries removed in one operation. */
const DELIVERIES_AT_ONCE = 8;

type EndpointRemovalOptions = Pick<
  QueueParts,
  | 'batchLines'
  | 'changes'
  | 'closing'
  | 'deliveries'
  | 'files'
  | 'gpuTotals'
  | 'histories'
  | 'inputSchemas'
  | 'jobTimes'
  | 'pauses'
  | 'presence'
  | 'rates'
  | 'sharedLimits'
  | 'schedules'
  | 'signals'
>;

export class EndpointRemoval {
  readonly #options: EndpointRemovalOptions;
  readonly #gone = new Set<string>();

  constructor(options: EndpointRemovalOptions) {
    this.#options = options;
  }

  isGone(endpointId: string): boolean {
    return this.#gone.has(endpointId);
  }

  /**
   * @throws ProblemError `not_found` for a deleted endpoint, even if some of its jobs still exist
   */
  refuseGone(endpointId: string): void {
    if (this.isGone(endpointId)) throw unknownEndpoint(endpointId);
  }

  /**
   * Ends all waits at the endpoint, then removes its jobs. The store has marked the endpoint as
   * deleted, so nobody adds jobs; its row must stay until all jobs are removed. Returns false if the
   * signal or the close of the queue interrupted the removal; then call `drop` again.
   */
  async drop(endpointId: string, signal: AbortSignal): Promise<boolean> {
    const { closing, presence, schedules, signals } = this.#options;
    this.#gone.add(endpointId);
    schedules.forgetEndpoint(endpointId);
    for (const worker of presence.all()) {
      if (worker.endpointId !== endpointId) continue;
      worker.draining = true;
      presence.leave(worker);
    }
    signals.endpointGone(endpointId);
    while (!signal.aborted && !closing.aborted) {
      const isLast = await this.#removeSome(endpointId);
      if (isLast && (await this.#removeRest(endpointId))) return true;
      await letOthersRun();
    }
    return false;
  }

  /** @returns whether nothing is left */
  async #removeRest(endpointId: string): Promise<boolean> {
    return (
      (await this.#options.files.dropSome(endpointId)) && (await this.#removeDeliveries(endpointId))
    );
  }

  /** @returns whether all deliveries are removed */
  async #removeDeliveries(endpointId: string): Promise<boolean> {
    const { changes, signals } = this.#options;
    const isLast = await changes.commit((tx): boolean => {
      const some = tx.deliveriesOf(endpointId, DELIVERIES_AT_ONCE);
      for (const delivery of some) tx.removeDelivery(delivery);
      return some.length < DELIVERIES_AT_ONCE;
    });
    signals.payloadUnused();
    return isLast;
  }

  /** Call this after the endpoint's row was removed: a new endpoint may use the ID. */
  forget(endpointId: string): void {
    this.#gone.delete(endpointId);
    this.#options.deliveries.forgetEndpoint(endpointId);
    this.#options.histories.forgetEndpoint(endpointId);
    this.#options.batchLines.forgetEndpoint(endpointId);
    this.#options.gpuTotals.forgetEndpoint(endpointId);
    this.#options.jobTimes.forgetEndpoint(endpointId);
    this.#options.inputSchemas.forgetEndpoint(endpointId);
    this.#options.pauses.forgetEndpoint(endpointId);
    this.#options.rates.forgetEndpoint(endpointId);
    this.#options.sharedLimits.forgetEndpoint(endpointId);
  }

  /** @returns whether all jobs are removed */
  async #removeSome(endpointId: string): Promise<boolean> {
    const newest = { endpointId, status: undefined, before: undefined, from: LOWEST_POSITION };
    const { isLast } = await this.#options.changes.commitSlice(
      (tx, limit) =>
        // Lists leave out the links, which name the children to be told.
        tx.each(tx.jobs({ ...newest, limit }), (job) => (job.linked && tx.job(job)) || job),
      { type: 'endpoint_deleted' },
    );
    return isLast;
  }
}

/** @throws ProblemError `not_found`, also for a deleted endpoint that is not removed yet */
export function readEndpoint(tx: Reader, id: string): StoredEndpoint {
  const endpoint = tx.endpoint(id);
  if (!endpoint || endpoint.deleted) throw unknownEndpoint(id);
  return endpoint;
}

function unknownEndpoint(id: string): ProblemError {
  return new ProblemError('not_found', `endpoint ${id} not found`);
}
