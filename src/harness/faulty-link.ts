// The link between the harness's worker and its queue, with the faults that a network has.
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
} from '../wire/worker-link.ts';

/** What becomes of the next report: it never arrives, or its answer does not. */
type ReportFault = 'request' | 'answer';

export class FaultyLink implements WorkerLink {
  /** Undefined while the platform is down. */
  #platform: WorkerLink | undefined;
  #cut = new AbortController();
  #takeCut = new AbortController();
  #isDead = false;
  readonly #reportFaults: ReportFault[] = [];
  readonly #hiddenJobs = new Set<string>();

  constructor(platform: WorkerLink) {
    this.#platform = platform;
  }

  hello = (hello: WorkerHello): Promise<WorkerWelcome> =>
    this.#call((platform) => platform.hello(hello));

  take = (request: TakeRequest, signal: AbortSignal): Promise<Lease[]> =>
    this.#call((platform, cut) => {
      // Whoever asks for more names what he has: nothing of a hidden job gets through.
      if (this.#hiddenJobs.size > 0) throw new LinkError('unavailable', 'the take was dropped');
      return platform.take(request, AbortSignal.any([signal, cut, this.#takeCut.signal]));
    });

  renew = (request: RenewRequest, signal: AbortSignal): Promise<RenewReply> => {
    const leases = request.leases.filter(({ jobId }) => !this.#hiddenJobs.has(jobId));
    return this.#call((platform, cut) =>
      platform.renew({ ...request, leases }, AbortSignal.any([signal, cut])),
    );
  };

  report = async (request: ReportRequest): Promise<ReportReply[]> => {
    const isHidden = request.reports.some(({ jobId }) => this.#hiddenJobs.has(jobId));
    const fault = isHidden ? 'request' : this.#reportFaults.shift();
    if (fault === 'request') throw new LinkError('unavailable', 'the report was dropped');
    const replies = await this.#call((platform) => platform.report(request));
    if (fault === 'answer') throw new LinkError('unavailable', 'the answer was dropped');
    return replies;
  };

  bye = (bye: WorkerBye): Promise<void> => this.#call((platform) => platform.bye(bye));

  failNextReport(fault: ReportFault): void {
    this.#reportFaults.push(fault);
  }

  /** Nothing of the job gets through, neither renewals nor reports. */
  hideJob(jobId: string): void {
    this.#hiddenJobs.add(jobId);
    this.#takeCut.abort();
    this.#takeCut = new AbortController();
  }

  showJob(jobId: string): void {
    this.#hiddenJobs.delete(jobId);
  }

  /** Every open call fails, and so does every new one until `connect`. */
  disconnect(): void {
    this.#platform = undefined;
    this.#cut.abort();
    this.#cut = new AbortController();
  }

  connect(platform: WorkerLink): void {
    this.#platform = platform;
  }

  /** The worker behind it is dead: it gets no answer to anything any more. */
  kill(): void {
    this.#isDead = true;
    this.disconnect();
  }

  async #call<T>(verb: (platform: WorkerLink, cut: AbortSignal) => Promise<T>): Promise<T> {
    if (this.#isDead) throw new LinkError('stale_incarnation', 'this worker was killed');
    const platform = this.#platform;
    if (!platform) throw new LinkError('unavailable', 'the platform is down');
    const { signal } = this.#cut;
    const answer = await verb(platform, signal);
    if (!signal.aborted) return answer;
    throw this.#isDead
      ? new LinkError('stale_incarnation', 'this worker was killed')
      : new LinkError('unavailable', 'the connection was cut');
  }
}
