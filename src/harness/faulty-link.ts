// The link between the harness's worker and its queue; injects network faults.
import { type Clock, sleep } from '../base/clock.ts';
import {
  type Lease,
  LinkError,
  type RenewReply,
  type RenewRequest,
  type ReportReply,
  type ReportRequest,
  type TakeRequest,
  type WorkerBye,
  type WorkerHello,
  type WorkerLink,
  type WorkerWelcome,
} from '../wire/link/worker-link.ts';

/** Calls that the worker makes continuously. */
export type LinkCall = 'take' | 'renew' | 'report';
type LinkDirection = 'request' | 'answer';

/** A fault for one call: `inject` throws, or resolves when the call may continue. */
interface PendingFault {
  direction: LinkDirection;
  inject(cut: AbortSignal): Promise<void>;
}

/** `silent`: half-open; nothing arrives and nothing fails until the worker gives up. */
type Network = 'open' | 'refusing' | 'silent';

export class FaultyLink implements WorkerLink {
  readonly #clock: Clock;
  /** Undefined while the platform is down. */
  #platform: WorkerLink | undefined;
  #network: Network = 'open';
  #delayMs = 0;
  #cut = new AbortController();
  #takeCut = new AbortController();
  #isDead = false;
  #heldCount = 0;
  readonly #faults: Record<LinkCall, PendingFault[]> = { take: [], renew: [], report: [] };
  readonly #hiddenJobs = new Set<string>();

  constructor(platform: WorkerLink, clock: Clock) {
    this.#platform = platform;
    this.#clock = clock;
  }

  hello = (hello: WorkerHello): Promise<WorkerWelcome> =>
    this.#call(undefined, (platform) => platform.hello(hello));

  take = (request: TakeRequest, signal: AbortSignal): Promise<Lease[]> =>
    this.#call(
      'take',
      (platform, cut) => {
        // A take names the leases that its worker holds, so it could reveal a hidden job.
        if (this.#hiddenJobs.size > 0) throw new LinkError('unavailable', 'the take was dropped');
        return platform.take(request, AbortSignal.any([signal, cut, this.#takeCut.signal]));
      },
      signal,
    );

  renew = (request: RenewRequest, signal: AbortSignal): Promise<RenewReply> =>
    this.#call(
      'renew',
      (platform, cut) => {
        const leases = request.leases.filter(({ jobId }) => !this.#hiddenJobs.has(jobId));
        return platform.renew({ ...request, leases }, AbortSignal.any([signal, cut]));
      },
      signal,
    );

  report = async (request: ReportRequest): Promise<ReportReply[]> =>
    this.#call('report', (platform) => {
      const isHidden = request.reports.some(({ jobId }) => this.#hiddenJobs.has(jobId));
      if (isHidden) throw new LinkError('unavailable', 'the report was dropped');
      return platform.report(request);
    });

  bye = (bye: WorkerBye): Promise<void> => this.#call(undefined, (platform) => platform.bye(bye));

  /** Drops the request of the next call, so that it has no effect, or only its answer. */
  dropNext(call: LinkCall, direction: LinkDirection): void {
    this.#faults[call].push({
      direction,
      inject: async () => {
        throw new LinkError('unavailable', `the ${direction} of a ${call} was dropped`);
      },
    });
  }

  /** Delays the next call until the returned function is called; later calls overtake it. */
  holdNext(call: LinkCall, direction: LinkDirection): () => void {
    const gate = new AbortController();
    this.#faults[call].push({
      direction,
      inject: async (cut) => {
        this.#heldCount++;
        await untilAborted([gate.signal, cut]);
        this.#heldCount--;
      },
    });
    return () => gate.abort();
  }

  /** Delays each request and each answer by this time from now on, ms. */
  delay(ms: number): void {
    this.#delayMs = ms;
  }

  /** Drops the renewals and reports of this job. */
  hideJob(jobId: string): void {
    this.#hiddenJobs.add(jobId);
    this.#takeCut.abort();
    this.#takeCut = new AbortController();
  }

  showJob(jobId: string): void {
    this.#hiddenJobs.delete(jobId);
  }

  /** Fails every open call; new calls work. */
  cut(): void {
    this.#cut.abort();
    this.#cut = new AbortController();
  }

  /** Applies to all open and new calls: they fail at once, or hang. */
  setNetwork(network: Network): void {
    this.#network = network;
    if (network === 'refusing') this.cut();
  }

  /** Fails every open and new call until `connect`. */
  disconnect(): void {
    this.#platform = undefined;
    this.cut();
  }

  connect(platform: WorkerLink): void {
    this.#platform = platform;
  }

  /** The worker is dead: its calls get no answers any more. */
  kill(): void {
    this.#isDead = true;
    this.disconnect();
  }

  /** Whether a worker could not say bye over this link. */
  get isDisturbed(): boolean {
    const isOpen = this.#platform !== undefined && this.#network === 'open';
    return !isOpen || this.#heldCount > 0 || this.#delayMs > 0 || this.#hiddenJobs.size > 0;
  }

  async #call<T>(
    name: LinkCall | undefined,
    act: (platform: WorkerLink, cut: AbortSignal) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const cut = this.#cut.signal;
    const ends = signal ? [cut, signal] : [cut];
    const fault = name && this.#faults[name].shift();
    const travel = async (direction: LinkDirection) => {
      if (fault?.direction === direction) await fault.inject(cut);
      if (this.#delayMs > 0) await sleep(this.#clock, this.#delayMs, AbortSignal.any(ends));
      if (this.#network === 'silent') await untilAborted(ends);
      this.#refuseIfBroken(cut);
    };
    await travel('request');
    if (!this.#platform) throw new LinkError('unavailable', 'the platform is down');
    const answer = await act(this.#platform, cut);
    await travel('answer');
    return answer;
  }

  #refuseIfBroken(cut: AbortSignal): void {
    if (this.#isDead) throw new LinkError('stale_incarnation', 'this worker was killed');
    if (cut.aborted) throw new LinkError('unavailable', 'the connection was cut');
    if (this.#network === 'refusing') throw new LinkError('unavailable', 'no network');
    if (this.#network === 'silent') throw new LinkError('unavailable', 'no response');
  }
}

async function untilAborted(signals: readonly AbortSignal[]): Promise<void> {
  const any = AbortSignal.any([...signals]);
  if (any.aborted) return;
  await new Promise((resolve) => any.addEventListener('abort', resolve, { once: true }));
}
