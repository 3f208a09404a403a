// A client that follows the stream of a job from the first chunk, across resets and platform restarts.
import { type Clock, sleep } from '../../src/base/clock.ts';
import type { Queues } from '../../src/queue/queues.ts';
import type { JobKey } from '../../src/store/store.ts';
import { isTerminal } from '../../src/wire/job/job.ts';
import { ProblemError } from '../../src/wire/problem.ts';
import type { Ledger } from './ledger.ts';

const WAIT_MS = 10_000;
/** Default of `pauseMs`. */
const PAUSE_MS = 3_000;

type Position = { attempt: number; n: number };
type Page = Awaited<ReturnType<Queues['streams']['read']>>;

export interface StreamedWorld {
  readonly clock: Clock;
  /** Aborted when the world is closed. */
  readonly signal: AbortSignal;
  readonly queue: { readonly streams: Pick<Queues['streams'], 'read'> };
  readonly ledger: Pick<Ledger, 'count'>;
  readonly faults: string[];
  /** Between two reads that bring nothing new. Default 3,000. */
  readonly pauseMs?: number;
}

export class StreamClient {
  readonly #world: StreamedWorld;
  readonly #key: JobKey;
  #after: Position = { attempt: 0, n: -1 };
  #outputs: unknown[] = [];

  constructor(world: StreamedWorld, key: JobKey) {
    this.#world = world;
    this.#key = key;
  }

  /** The chunks received of the current attempt. */
  get outputs(): readonly unknown[] {
    return this.#outputs;
  }

  /** Reads until the world ends or the job is removed: a client may retry an ended job. */
  async follow(): Promise<void> {
    const { clock, pauseMs = PAUSE_MS, signal } = this.#world;
    while (!signal.aborted) {
      try {
        const page = await this.#world.queue.streams.read({
          ...this.#key,
          after: this.#after,
          waitMs: WAIT_MS,
          maxBytes: 1_000_000,
          signal,
        });
        this.#note(page);
        const isNews = page.chunks.length > 0 || page.reset;
        if (!isNews || isTerminal(page.status)) await sleep(clock, pauseMs, signal);
      } catch (error) {
        if (!(error instanceof ProblemError)) throw error;
        return;
      }
    }
  }

  #note({ chunks, position, reset }: Page): void {
    const { attempt } = position;
    const isNewer = attempt > this.#after.attempt;
    const isFirst = this.#after.attempt === 0;
    if (attempt < this.#after.attempt) this.#complain(`went back to attempt ${attempt}`);
    if (reset !== (isNewer && !isFirst)) this.#complain(`reset ${reset} at attempt ${attempt}`);
    if (isNewer) this.#outputs = [];
    if (reset) this.#world.ledger.count('reset');
    for (const bytes of chunks) {
      const { output } = JSON.parse(Buffer.from(bytes).toString());
      const isRight = output.attempt === attempt && output.i === this.#outputs.length;
      if (!isRight) this.#complain(`chunk ${JSON.stringify(output)} in attempt ${attempt}`);
      this.#outputs.push(output);
    }
    this.#after = position;
  }

  #complain(what: string): void {
    const { attempt, n } = this.#after;
    this.#world.faults.push(`the stream of job ${this.#key.id}, after ${attempt}.${n}: ${what}`);
  }
}
