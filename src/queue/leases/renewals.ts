// Renews leases: a long poll that extends the leases a worker names and reports those that have ended.
import { yieldToLoop } from '../../base/slices.ts';
import type { Reader, StoredJob, Transaction } from '../../store/store.ts';
import { isTerminal } from '../../wire/job/job.ts';
import type {
  RenewReply,
  RenewRequest,
  WorkerParking,
  WorkerStart,
} from '../../wire/link/worker-link.ts';
import type { StepOn } from '../changes.ts';
import { MAX_SUSPENDED_MS } from '../lifecycle/transition.ts';
import type { LeasesOptions } from './leases.ts';
import type { Arrival, PresentWorker } from './presence.ts';

/** Leases that are looked up at once: one request may name thousands, known ones or not. */
const LEASES_PER_SLICE = 256;

export class Renewals {
  readonly #options: LeasesOptions;

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  async renew(endpointId: string, request: RenewRequest, signal: AbortSignal): Promise<RenewReply> {
    const { clock, closing, presence, settings, signals } = this.#options;
    const worker = presence.require(endpointId, request);
    worker.seenAt = clock.now();
    const waiter = signals.workerCalled(endpointId, request.workerId);
    noteStart(worker, request.start);
    this.#noteParking(worker, request.parking);
    try {
      await this.#noteStandstill(worker);
      const ended = await this.#extend(endpointId, request);
      const isNews =
        (worker.draining && !worker.drainSent) || worker.parkWish !== worker.parkWishSent;
      if (ended.length > 0 || isNews) return this.#answer(worker, ended);
      const waitMs = Math.min(request.waitMs, settings.renewEveryMs);
      const called = await waiter.wait(waitMs, AbortSignal.any([signal, closing]));
      return this.#answer(worker, called ? await this.#findEnded(worker, request) : []);
    } finally {
      waiter.close();
      worker.seenAt = clock.now();
    }
  }

  #answer(worker: PresentWorker, ended: RenewReply['ended']): RenewReply {
    const { draining, parking, parkWish } = worker;
    worker.drainSent = draining;
    worker.parkWishSent = parkWish;
    const isWish = parking !== undefined && parkWish !== undefined;
    const wish = isWish && { parking: parkWish, parkingChange: parking.change };
    return { ended, drain: draining, ...wish };
  }

  /** Renewals may overtake each other: an older state is dropped. */
  #noteParking(worker: PresentWorker, parking: WorkerParking | undefined): void {
    const { signals } = this.#options;
    const known = worker.parking;
    worker.hasRenewed = true;
    if (!parking) {
      // Its models cannot be parked any more. A renewal from before it knew of a way changes nothing for long.
      if (known?.state === 'ready') worker.parking = undefined;
      return;
    }
    if (known && parking.change < known.change) return;
    worker.parking = parking;
    const { refusals = 0 } = parking;
    if (known && refusals > (known.refusals ?? 0)) {
      worker.refusedAt = this.#options.clock.now();
      // Later it may be asked again.
      if (worker.parkWish === 'suspended') worker.parkWish = 'ready';
    }
    const isMoved = known?.state !== parking.state;
    // Its GPU may be another worker's from now on: an earlier wish must not wake it.
    if (isMoved && parking.state === 'parked' && worker.parkWish === 'ready') {
      worker.parkWish = parking.suspended ? 'suspended' : 'parked';
    }
    const isSame = known?.state === parking.state && known.suspended === parking.suspended;
    if (isSame && known.suspendable === parking.suspendable) return;
    if (isMoved && parking.state === 'waking') worker.wakingSince = this.#options.clock.now();
    if (isMoved && parking.state === 'ready' && known && !known.suspended) {
      worker.arrival = this.#describeWake(worker, known);
    }
    signals.workersChanged(worker.endpointId);
    if (parking.state === 'ready') signals.wakeTakers(worker.endpointId);
  }

  #describeWake(worker: PresentWorker, before: WorkerParking): Arrival | undefined {
    const { taken, wakingSince } = worker;
    worker.wakingSince = undefined;
    // It has turned back before it was parked.
    if (before.state === 'parking' || wakingSince === undefined) return undefined;
    const at = this.#options.clock.now();
    const { vramBytes: bytes, way } = before;
    return {
      ...{ at, event: 'worker_woken', taken, waitedMs: Math.max(0, at - wakingSince), bytes },
      way: bytes === 0 ? 'cold' : way,
    };
  }

  /** The limits of its attempts stand still as long as the attempts do; also if a message or a restart came in between. */
  async #noteStandstill({ endpointId, leases, parking }: PresentWorker): Promise<void> {
    if (!parking) return;
    const isStill = parking.suspended === true && parking.state !== 'ready';
    const changed = [...leases.values()].filter(
      ({ delivering, lost, run }) =>
        !delivering &&
        !lost &&
        run.status === 'IN_PROGRESS' &&
        (run.suspendedAt !== null) !== isStill &&
        (!isStill || run.suspendedMs < MAX_SUSPENDED_MS),
    );
    if (changed.length === 0) return;
    await this.#options.changes.commit((tx, step) => {
      for (const { id, token } of changed) {
        const job = tx.job({ endpointId, id });
        if (job?.lease?.token === token) step(job, { type: isStill ? 'suspended' : 'resumed' });
      }
    });
  }

  #extend(endpointId: string, request: RenewRequest): Promise<RenewReply['ended']> {
    return inSlices(request.leases, (leases) =>
      this.#options.changes.commit((tx, step) =>
        extend(tx, step, { endpointId, request: { ...request, leases } }),
      ),
    );
  }

  /**
   * Includes leases that the worker got after it sent the renew, so that a cancel does not wait for
   * the next renew.
   */
  async #findEnded(worker: PresentWorker, request: RenewRequest): Promise<RenewReply['ended']> {
    const stopping = new Set(request.leases.filter((l) => l.stopping).map((l) => l.token));
    const asked = request.leases.map(({ jobId, token }) => ({ jobId, token }));
    const held = [...worker.leases.values()].map(({ id, token }) => ({ jobId: id, token }));
    const isGone = this.#options.removal.isGone(worker.endpointId);
    const candidates = new Map([...asked, ...held].map((lease) => [lease.token, lease]));
    const leases = [...candidates.values()].filter(({ token }) => !stopping.has(token));
    if (isGone) return leases.map((lease) => ({ ...lease, verdict: 'lost' }));
    return inSlices(leases, (some) =>
      this.#options.store.read((tx) => findLost(tx, worker.endpointId, some)),
    );
  }
}

/** Renewals may overtake each other: of the same start, one with fewer parts is older. */
function noteStart(worker: PresentWorker, start: WorkerStart | undefined): void {
  const known = worker.start;
  const isOlder =
    known && start?.at === known.at
      ? Object.keys(start.parts).length < Object.keys(known.parts).length
      : known && start && start.at < known.at;
  if (start && !isOlder) worker.start = start;
}

async function inSlices<T>(
  leases: readonly T[],
  act: (some: T[]) => Promise<RenewReply['ended']>,
): Promise<RenewReply['ended']> {
  const ended: RenewReply['ended'] = [];
  for (let at = 0; at < leases.length; at += LEASES_PER_SLICE) {
    if (at > 0) await yieldToLoop();
    ended.push(...(await act(leases.slice(at, at + LEASES_PER_SLICE))));
  }
  return ended;
}

function extend(
  tx: Transaction,
  step: StepOn,
  { endpointId, request }: { endpointId: string; request: RenewRequest },
): RenewReply['ended'] {
  const { incarnation, leases } = request;
  const ended: RenewReply['ended'] = [];
  tx.each(leases, ({ jobId }) => tx.job({ endpointId, id: jobId }));
  for (const { delivering, jobId, token, stopping } of leases) {
    // As an earlier lease of the same request has left it.
    const job = tx.job({ endpointId, id: jobId });
    const verdict = judgeLease(job, token);
    const event = delivering
      ? ({ type: 'awaiting_delivery', incarnation } as const)
      : ({ type: 'renew' } as const);
    if (verdict === 'kept' && job) step(job, event);
    else if (verdict !== 'kept' && !stopping) ended.push({ jobId, token, verdict });
  }
  return ended;
}

function findLost(
  tx: Reader,
  endpointId: string,
  leases: readonly { jobId: string; token: string }[],
): RenewReply['ended'] {
  const ended = tx.each(leases, ({ jobId, token }) => {
    const verdict = judgeLease(tx.job({ endpointId, id: jobId }), token);
    return verdict === 'kept' ? [] : [{ jobId, token, verdict }];
  });
  return ended.flat();
}

function judgeLease(job: StoredJob | undefined, token: string): 'kept' | 'cancelled' | 'lost' {
  if (job?.lease?.token !== token) return 'lost';
  return isTerminal(job.status) ? 'cancelled' : 'kept';
}
