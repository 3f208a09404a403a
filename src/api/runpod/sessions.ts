// The sessions of RunPod workers over all endpoints, by worker and by attempt. Nothing here
// outlives the process; unknown workers and attempts are looked up in the queue.
import { setMaxListeners } from 'node:events';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import type { Queue } from '../../queue/queue.ts';
import type { WorkerLink } from '../../wire/link/worker-link.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { WorkerAllowance } from '../routes/worker-allowance.ts';
import type { HeldLease } from './lease.ts';
import { Parking } from './parking.ts';
import { readAttemptName } from './requests.ts';
import { SEAT_INCARNATION, Seat } from './seat.ts';

export interface SeatsOptions {
  /** Undefined if the endpoint does not exist. `podId`: the pod of the worker's key. */
  linkTo: (endpointId: string, podId: string | null) => WorkerLink | undefined;
  /** These workers carry no token: after a restart their leases are found by job and attempt. */
  queue: Pick<Queue, 'openLeases' | 'isClosing' | 'bridge'>;
  clock: Clock;
  log: Log;
  /** Default: no limit of workers per key. */
  allowance?: WorkerAllowance | undefined;
}

export interface SeatedLease {
  seat: Seat;
  held: HeldLease;
}

export class Seats {
  readonly #options: SeatsOptions;
  /** By endpoint, then by worker. */
  readonly #seats = new Map<string, Map<string, Seat>>();
  readonly #closing = new AbortController();
  readonly #parking: Parking;

  constructor(options: SeatsOptions) {
    this.#options = options;
    this.#parking = new Parking(options.clock);
    // Each open poll listens to it.
    setMaxListeners(0, this.#closing.signal);
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Like `use`, for a worker with this key. @throws ProblemError `not_found`, `rate_limited` */
  admit(holder: KeyHolder | undefined, endpointId: string, workerId: string): Seat {
    if (holder) this.#options.allowance?.admitId(holder, endpointId, workerId);
    return this.use(endpointId, workerId, holder?.podId ?? null);
  }

  /**
   * The worker's, a new one if it has none. `podId`: the pod whose key the worker presents; a pod's key
   * takes the seat over from any other. @throws ProblemError `not_found`
   */
  use(endpointId: string, workerId: string, podId: string | null): Seat {
    const known = this.find(endpointId, workerId);
    const isTakenOver = known !== undefined && podId !== null && known.podId !== podId;
    if (isTakenOver) this.#drop(endpointId, workerId, known);
    const seat = known && !isTakenOver ? known : this.#create(endpointId, workerId, podId);
    const seats = this.#seats.get(endpointId) ?? new Map<string, Seat>();
    this.#seats.set(endpointId, seats.set(workerId, seat));
    seat.hear();
    return seat;
  }

  find(endpointId: string, workerId: string): Seat | undefined {
    return this.#seats.get(endpointId)?.get(workerId);
  }

  /** Undefined if the attempt is over, or a newer one has begun. `podId`: as in `use`. */
  async locate(
    endpointId: string,
    name: string,
    podId: string | null,
  ): Promise<SeatedLease | undefined> {
    for (const seat of this.#seats.get(endpointId)?.values() ?? []) {
      const held = seat.held.get(name);
      if (held) return { seat, held };
    }
    const attempt = readAttemptName(name);
    if (!attempt) return undefined;
    const { openLeases } = this.#options.queue;
    const lease = await openLeases.ofJob({ endpointId, id: attempt.jobId });
    // The lease belongs to a worker with its own link.
    if (lease?.incarnation !== SEAT_INCARNATION) return undefined;
    const seat = this.use(endpointId, lease.workerId, podId);
    await seat.open();
    const held = seat.held.get(name);
    return held && { seat, held };
  }

  /** While the platform stops, a chunk waits for the end and is then rejected. @throws LinkError */
  hold({ held }: SeatedLease): Promise<void> {
    return this.#parking.hold(held);
  }

  /** The platform stops: resolves when each streaming worker can send its chunk again later. */
  async stopStreams(): Promise<void> {
    const seats = () => [...this.#seats.values()].flatMap((seats) => [...seats.values()]);
    const parked = await this.#parking.park(() => seats().flatMap(({ held }) => held.streaming));
    this.#options.queue.bridge(parked.map(({ ref }) => ref.token));
  }

  /** A client has received chunks of the attempt. */
  async isShown(endpointId: string, { held }: SeatedLease): Promise<boolean> {
    const { openLeases } = this.#options.queue;
    const lease = await openLeases.ofJob({ endpointId, id: held.ref.jobId });
    return lease?.isShown ?? false;
  }

  close(): void {
    this.#closing.abort();
    for (const seats of this.#seats.values()) for (const seat of seats.values()) seat.close();
  }

  #create(endpointId: string, workerId: string, podId: string | null): Seat {
    const { clock, linkTo, log, queue } = this.#options;
    const link = linkTo(endpointId, podId);
    if (!link) throw new ProblemError('not_found', `endpoint ${endpointId} not found`);
    const seat = new Seat({
      ...{ endpointId, workerId, podId, link, queue, clock, log },
      closing: this.closing,
      onSilent: (seat) => void this.#remove(endpointId, workerId, seat),
    });
    // Only an open seat notices that its worker falls silent. The caller opens it too, and gets the error.
    seat.open().catch(() => this.#drop(endpointId, workerId, seat));
    return seat;
  }

  #drop(endpointId: string, workerId: string, seat: Seat): void {
    const seats = this.#seats.get(endpointId);
    if (seats?.get(workerId) === seat) seats.delete(workerId);
    if (seats?.size === 0) this.#seats.delete(endpointId);
    seat.close();
  }

  /**
   * Its leases expire by themselves. If the worker sends a request again, it gets a new session.
   */
  async #remove(endpointId: string, workerId: string, seat: Seat): Promise<void> {
    const { linkTo, log } = this.#options;
    this.#drop(endpointId, workerId, seat);
    if (seat.held.size > 0) {
      const about = { endpoint: endpointId, workerId, jobs: seat.held.size };
      log.warn(about, 'worker stopped sending pings, its leases expire');
      return;
    }
    try {
      const identity = { workerId, incarnation: SEAT_INCARNATION };
      await linkTo(endpointId, seat.podId)?.bye({ ...identity, reason: 'drained', outbox: [] });
    } catch (error) {
      log.debug(
        { err: error, endpoint: endpointId, workerId },
        'releasing the leases of a worker failed',
      );
    }
  }
}
