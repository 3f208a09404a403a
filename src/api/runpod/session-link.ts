// A session's calls to the queue. Says hello before the first call, and again if the queue has
// forgotten the session. Repeats a failed report as long as the worker waits for the answer.
import { type Clock, sleep } from '../../base/clock.ts';
import { StoreUnavailableError } from '../../queue/queue.ts';
import {
  LinkError,
  type Report,
  type ReportReply,
  type WorkerIdentity,
  type WorkerLink,
  type WorkerWelcome,
} from '../../wire/link/worker-link.ts';
import { ProblemError } from '../../wire/problem.ts';

/**
 * These workers give a result up after three 5xx responses, so a report is retried here for this
 * long, ms.
 */
const REPORT_MS = 60_000;
const RETRY_MS = 500;

export interface SessionLinkOptions {
  link: WorkerLink;
  identity: WorkerIdentity;
  /** Sends hello and adopts the leases that the queue holds for the worker. */
  sayHello: (link: WorkerLink) => Promise<WorkerWelcome>;
  clock: Clock;
  /** Aborts when the platform stops. */
  closing: AbortSignal;
}

/** Its methods throw LinkError and the queue's errors. */
export class SessionLink {
  readonly #options: SessionLinkOptions;
  #opening: Promise<WorkerWelcome> | undefined;

  constructor(options: SessionLinkOptions) {
    this.#options = options;
  }

  open(): Promise<WorkerWelcome> {
    const { link, sayHello } = this.#options;
    this.#opening ??= sayHello(link).catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  async call<T>(act: (link: WorkerLink) => Promise<T>): Promise<T> {
    await this.open();
    try {
      return await act(this.#options.link);
    } catch (error) {
      if (!(error instanceof LinkError) || error.code !== 'unknown_worker') throw error;
      this.#opening = undefined;
      await this.open();
      return await act(this.#options.link);
    }
  }

  async report(report: Report): Promise<ReportReply> {
    const { clock, closing, identity } = this.#options;
    const until = clock.now() + REPORT_MS;
    for (;;) {
      try {
        const request = { ...identity, reports: [report] };
        const [reply] = await this.call((link) => link.report(request));
        if (!reply) throw new Error(`report ${report.seq} was not answered`);
        return reply;
      } catch (error) {
        if (closing.aborted || !isTransientError(error) || clock.now() >= until) throw error;
        await sleep(clock, RETRY_MS, closing);
      }
    }
  }
}

/** Whether a retry may succeed. */
export function isTransientError(error: unknown): boolean {
  if (error instanceof LinkError || error instanceof ProblemError)
    return error.code === 'unavailable';
  return error instanceof StoreUnavailableError;
}
