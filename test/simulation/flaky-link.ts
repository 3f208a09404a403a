// A link over an unreliable network: by seed, it loses requests and answers, delivers requests twice or
// after the caller gave up, delays calls, and leaves connections half open.
import type { Clock } from '../../src/base/clock.ts';
import { sleep } from '../../src/base/clock.ts';
import { StoreUnavailableError } from '../../src/store/store.ts';
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
} from '../../src/wire/link/worker-link.ts';

/** The caller gives up a half-open connection after this time, as the real transports do. */
const NOTICED_AFTER_MS = 20_000;
/** A stray request arrives at most this long after it was sent. */
const MAX_STRAY_MS = 40_000;
const NEVER = new AbortController().signal;

export interface Weather {
  /** Share of calls, 0 to 1, as are all shares below: the request never arrives. */
  lostRequests: number;
  lostAnswers: number;
  /** The answer never arrives, and the caller gives up after `NOTICED_AFTER_MS`. */
  halfOpen: number;
  /** The request arrives a second time later; nobody receives the second answer. */
  repeated: number;
  /** The call fails at the caller, but the request still arrives later. */
  strayed: number;
  /** Maximum delay in each direction, ms. */
  maxDelayMs: number;
}

export const CALM: Weather = {
  lostRequests: 0,
  lostAnswers: 0,
  halfOpen: 0,
  repeated: 0,
  strayed: 0,
  maxDelayMs: 0,
};

export interface FlakyLinkOptions {
  clock: Clock;
  random: () => number;
  weather: () => Weather;
  /** Undefined while the platform is down. */
  platform: () => WorkerLink | undefined;
  /** Called when the worker receives the reply to a report. */
  onReply: (report: Report, reply: ReportReply) => void;
}

type Verb<T> = (link: WorkerLink, signal: AbortSignal) => Promise<T>;

export class FlakyLink implements WorkerLink {
  readonly #options: FlakyLinkOptions;
  readonly #cut = new AbortController();
  #partedUntil = 0;

  constructor(options: FlakyLinkOptions) {
    this.#options = options;
  }

  hello = (hello: WorkerHello): Promise<WorkerWelcome> => this.#call((link) => link.hello(hello));

  take = (request: TakeRequest, signal: AbortSignal): Promise<Lease[]> =>
    this.#call((link, cut) => link.take(request, cut), signal);

  renew = (request: RenewRequest, signal: AbortSignal): Promise<RenewReply> =>
    this.#call((link, cut) => link.renew(request, cut), signal);

  report = async (request: ReportRequest): Promise<ReportReply[]> => {
    const replies = await this.#call((link) => link.report(request));
    for (const [index, reply] of replies.entries()) {
      const report = request.reports[index];
      if (report) this.#options.onReply(report, reply);
    }
    return replies;
  };

  bye = (bye: WorkerBye): Promise<void> => this.#call((link) => link.bye(bye));

  /** Drops all calls for `ms`; the worker keeps running. */
  part(ms: number): void {
    this.#partedUntil = this.#options.clock.now() + ms;
  }

  /** Ends all calls: the worker's process is dead. */
  kill(): void {
    this.#cut.abort();
  }

  async #call<T>(verb: Verb<T>, signal: AbortSignal = NEVER): Promise<T> {
    const { clock, platform, random, weather } = this.#options;
    const cut = this.#cut.signal;
    const { halfOpen, lostAnswers, lostRequests, repeated, strayed } = weather();
    if (random() < repeated) this.#sendLater(verb);
    if (random() < strayed) {
      this.#sendLater(verb);
      await this.#travel();
      throw this.#refuse('the request got lost, or so it seems');
    }
    await this.#travel();
    if (cut.aborted || this.#isParted || random() < lostRequests) {
      throw this.#refuse('the request was lost');
    }
    const link = platform();
    if (!link) throw this.#refuse('the platform is down');
    const answer = await this.#ask(
      link,
      verb,
      signal === NEVER ? cut : AbortSignal.any([signal, cut]),
    );
    await this.#travel();
    if (random() < halfOpen) {
      await sleep(clock, NOTICED_AFTER_MS, cut);
      throw this.#refuse('no answer came');
    }
    if (cut.aborted || this.#isParted || platform() !== link || random() < lostAnswers) {
      throw this.#refuse('the answer was lost');
    }
    return answer;
  }

  /** As the API answers: a commit that failed is 503, and the worker calls again. */
  async #ask<T>(link: WorkerLink, verb: Verb<T>, signal: AbortSignal): Promise<T> {
    try {
      return await verb(link, signal);
    } catch (error) {
      throw error instanceof StoreUnavailableError ? this.#refuse(error.message) : error;
    }
  }

  get #isParted(): boolean {
    return this.#options.clock.now() < this.#partedUntil;
  }

  #travel(): Promise<void> {
    const { clock, random, weather } = this.#options;
    const ms = Math.floor(random() * weather().maxDelayMs);
    return ms > 0 ? sleep(clock, ms, this.#cut.signal) : Promise.resolve();
  }

  /** Delivers the request later, even if its sender is dead by then. */
  #sendLater<T>(verb: Verb<T>): void {
    const { clock, platform, random } = this.#options;
    clock.after(Math.floor(random() * MAX_STRAY_MS), () => {
      const link = platform();
      if (link) verb(link, NEVER).catch(() => undefined);
    });
  }

  #refuse(why: string): LinkError {
    const isDead = this.#cut.signal.aborted;
    return new LinkError(isDead ? 'stale_incarnation' : 'unavailable', isDead ? 'killed' : why);
  }
}
