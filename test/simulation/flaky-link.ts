// A link over a network that loses requests, loses answers after the platform has acted, delays both
// and goes quiet: by the seed.
import type { Clock } from '../../src/base/clock.ts';
import { sleep } from '../../src/base/clock.ts';
import {
  type Lease,
  LinkError,
  type RenewReply,
  type RenewRequest,
  type Report,
  type ReportReply,
  type ReportRequest,
  type TakeRequest,
  type WorkerBye,
  type WorkerHello,
  type WorkerLink,
  type WorkerWelcome,
} from '../../src/wire/worker-link.ts';

/** As the carriers do: a connection that is half-open is given up. */
const NOTICED_AFTER_MS = 20_000;

export interface Weather {
  /** Shares of calls, 0 to 1. */
  lostRequests: number;
  lostAnswers: number;
  /** The answer never comes; the carrier notices after a while. */
  halfOpen: number;
  /** Each way, at most, ms. */
  maxDelayMs: number;
}

export const CALM: Weather = { lostRequests: 0, lostAnswers: 0, halfOpen: 0, maxDelayMs: 0 };

export interface FlakyLinkOptions {
  clock: Clock;
  random: () => number;
  weather: () => Weather;
  /** Undefined while the platform is down. */
  platform: () => WorkerLink | undefined;
  /** The worker has been told what became of its report. */
  onReply: (report: Report, reply: ReportReply) => void;
}

export class FlakyLink implements WorkerLink {
  readonly #options: FlakyLinkOptions;
  readonly #cut = new AbortController();
  #partedUntil = 0;

  constructor(options: FlakyLinkOptions) {
    this.#options = options;
  }

  hello = (hello: WorkerHello): Promise<WorkerWelcome> => this.#call((link) => link.hello(hello));

  take = (request: TakeRequest, signal: AbortSignal): Promise<Lease[]> =>
    this.#call((link, cut) => link.take(request, AbortSignal.any([signal, cut])));

  renew = (request: RenewRequest, signal: AbortSignal): Promise<RenewReply> =>
    this.#call((link, cut) => link.renew(request, AbortSignal.any([signal, cut])));

  report = async (request: ReportRequest): Promise<ReportReply[]> => {
    const replies = await this.#call((link) => link.report(request));
    for (const [index, reply] of replies.entries()) {
      const report = request.reports[index];
      if (report) this.#options.onReply(report, reply);
    }
    return replies;
  };

  bye = (bye: WorkerBye): Promise<void> => this.#call((link) => link.bye(bye));

  /** Nothing gets through for so long; the worker goes on. */
  part(ms: number): void {
    this.#partedUntil = this.#options.clock.now() + ms;
  }

  /** The worker's process is dead: it hears nothing any more. */
  kill(): void {
    this.#cut.abort();
  }

  async #call<T>(verb: (link: WorkerLink, cut: AbortSignal) => Promise<T>): Promise<T> {
    const { clock, platform, random, weather } = this.#options;
    const cut = this.#cut.signal;
    const { halfOpen, lostAnswers, lostRequests, maxDelayMs } = weather();
    const refuse = (why: string) =>
      cut.aborted
        ? new LinkError('stale_incarnation', 'killed')
        : new LinkError('unavailable', why);
    await sleep(clock, Math.floor(random() * maxDelayMs), cut);
    const isParted = () => clock.now() < this.#partedUntil;
    if (cut.aborted || isParted() || random() < lostRequests) {
      throw refuse('the request was lost');
    }
    const link = platform();
    if (!link) throw refuse('the platform is down');
    const answer = await verb(link, cut);
    await sleep(clock, Math.floor(random() * maxDelayMs), cut);
    if (random() < halfOpen) {
      await sleep(clock, NOTICED_AFTER_MS, cut);
      throw refuse('no answer came');
    }
    if (cut.aborted || isParted() || platform() !== link || random() < lostAnswers) {
      throw refuse('the answer was lost');
    }
    return answer;
  }
}
