// The requests that run in one model server, until their answers have been read. When the server ends, each gets the error
// that tells the worker what becomes of its job.
import { setTimeout as delay } from 'node:timers/promises';
import { findContextLoss } from '../handler/thrown.ts';
import { assignBlame, type LostContext, ModelProcessError } from './calls.ts';
import type { ProcessLog } from './messages.ts';

/** How much later than the end of its connection the end of a server is noticed, ms. */
const LATE_END_MS = 1_000;

type RequestSource = Pick<RunningRequest, 'owner' | 'log' | 'quotes'>;

export class RunningRequest {
  readonly id: number;
  /** Equal for requests of the same job. */
  readonly owner: unknown;
  readonly log: ProcessLog | undefined;
  /** Its body contains these words, so the server may print them. */
  readonly quotes: (words: string) => boolean;
  /** No connection came about. */
  isUnsent = false;
  readonly #failure = Promise.withResolvers<Error>();

  constructor(id: number, { log, owner, quotes }: RequestSource) {
    this.id = id;
    this.owner = owner;
    this.log = log;
    this.quotes = quotes;
  }

  fail(error: Error): void {
    this.#failure.resolve(error);
  }

  /** The error of the server's end if it has ended; else `error`, that of the connection. */
  explain<Fallback>(error: Fallback, waitMs = LATE_END_MS): Promise<Error | Fallback> {
    return Promise.race([this.#failure.promise, delay(waitMs, error)]);
  }
}

export class RunningRequests {
  readonly #running = new Map<number, RunningRequest>();
  #completed = 0;
  #nextId = 1;
  #onIdle: (() => void)[] = [];
  /** Words of a line, since the last good answer, that show a lost context. */
  #printedLoss: string | undefined;
  /** The last request whose answer was 500 or above, since the last good one. */
  #lastFailed: number | undefined;

  get size(): number {
    return this.#running.size;
  }

  get completed(): number {
    return this.#completed;
  }

  /** The log of the only job that runs; undefined if there are none or several. */
  get onlyLog(): ProcessLog | undefined {
    const [first, ...others] = this.#running.values();
    if (first === undefined || others.some(({ owner }) => owner !== first.owner)) return undefined;
    return first.log;
  }

  begin(source: RequestSource): RunningRequest {
    const request = new RunningRequest(this.#nextId++, source);
    this.#running.set(request.id, request);
    return request;
  }

  end({ id }: RunningRequest, how: 'answered' | 'failed'): void {
    if (!this.#running.delete(id)) return;
    if (how === 'answered') this.#completed += 1;
    this.#noteIdle();
  }

  /** A line alone shows nothing: a server may print it and recover. */
  noteLine(line: string): LostContext | undefined {
    const words = findContextLoss(line);
    if (words === undefined) return undefined;
    for (const request of this.#running.values()) if (request.quotes(words)) return undefined;
    this.#printedLoss = words;
    return this.#findLoss();
  }

  noteAnswer({ id }: RunningRequest, status: number): LostContext | undefined {
    if (status >= 500) this.#lastFailed = id;
    else if (status < 400) {
      this.#lastFailed = undefined;
      this.#printedLoss = undefined;
    }
    return this.#findLoss();
  }

  #findLoss(): LostContext | undefined {
    const [culprit, words] = [this.#lastFailed, this.#printedLoss];
    return culprit === undefined || words === undefined ? undefined : { culprit, words };
  }

  async untilIdle(): Promise<void> {
    if (this.size > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  settleAll(describe: string, culprit: number | undefined): void {
    const requests = [...this.#running.values()];
    const blames = assignBlame(requests, culprit);
    const end = culprit === undefined || !this.#findLoss() ? undefined : 'context_lost';
    this.#running.clear();
    for (const each of requests) {
      each.fail(new ModelProcessError(describe, blames.get(each.id), end));
    }
    this.#noteIdle();
  }

  #noteIdle(): void {
    if (this.size > 0) return;
    for (const notify of this.#onIdle.splice(0)) notify();
  }
}
