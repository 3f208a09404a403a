// Records when the platform was away: each run of the platform stores how it ended, and the next run
// reads the note. RunPod workers do not repeat a lost call, so their attempts may have lost chunks then.
import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ENDING, OWNER, type Store, StoreUnavailableError } from '../../store/store.ts';

/** A restart within this time is no absence, ms: workers repeat a call only after that time. */
const BRIDGED_MS = 2_000;

const KEY = { kind: 'run', id: 'last' } as const;

const note = z.object({
  /** When the run stopped as requested, Unix ms; null while it runs, or if it was killed. */
  leftAt: z.number().nullable(),
  /** Tokens of attempts whose workers were asked to send the current chunk again later. */
  bridged: z.array(z.string()),
});

type Note = z.infer<typeof note>;

export interface AbsenceOptions {
  store: Store;
  clock: Clock;
  log: Log;
}

export class Absence {
  readonly #options: AbsenceOptions;
  #until = 0;
  /** Tokens of attempts that lost nothing in the last absence. */
  #bridged: ReadonlySet<string> = new Set();
  #leftAt: number | null = null;
  #next: Note | undefined;
  #isNoted = false;

  constructor(options: AbsenceOptions) {
    this.#options = options;
  }

  /** Whether the platform was away while the attempt ran, so reports of the attempt may be lost. */
  isBroken({ startedAt, token }: { startedAt: number; token: string }): boolean {
    return startedAt < this.#until && !this.#bridged.has(token);
  }

  /**
   * Ends the absence: a run begins. `wasSetBack`: the wall clock went back, so the duration of the
   * absence is unknown.
   */
  async end({ wasSetBack = false } = {}): Promise<void> {
    const { clock, store } = this.#options;
    const found = await store.read((tx) => tx.resource(KEY));
    const last = found && note.parse(JSON.parse(found.body));
    this.#until = clock.now();
    this.#leftAt = wasSetBack || !last ? null : last.leftAt;
    this.#bridged = new Set(last?.bridged);
    this.reached();
    await this.#write({ leftAt: null, bridged: [] });
  }

  /** Callers reach the platform from now on. If the absence was too long, no attempt was bridged. */
  reached(): void {
    const attempts = this.#bridged.size;
    if (attempts === 0) return;
    const awayMs = this.#leftAt === null ? Number.POSITIVE_INFINITY : this.#now() - this.#leftAt;
    if (awayMs >= 0 && awayMs <= BRIDGED_MS) return;
    this.#bridged = new Set();
    this.#options.log.warn(
      { attempts },
      'restart took too long, RunPod workers may have lost chunks',
    );
  }

  /**
   * The run stops as asked. The workers of these attempts have just been told to send again later;
   * other workers may send while the platform is away.
   */
  bridge(tokens: readonly string[]): void {
    this.#next = { leftAt: this.#now(), bridged: [...tokens] };
  }

  /** Begins an absence: the run has stopped as asked. */
  async begin(): Promise<void> {
    if (!this.#isNoted) return;
    this.#isNoted = false;
    await this.#write(this.#next ?? { leftAt: this.#now(), bridged: [] });
  }

  #now(): number {
    return this.#options.clock.now();
  }

  /** If the write fails, the next run finds an older note and counts this time as an absence. */
  async #write(body: Note): Promise<void> {
    const { log, store } = this.#options;
    const stored = { ...KEY, userId: OWNER, parent: '', position: 0, body: JSON.stringify(body) };
    try {
      await store.write((tx) => tx.putResource(stored), ENDING);
      this.#isNoted = body.leftAt === null;
    } catch (error) {
      // A failure at the end is harmless: the next run counts this time as an absence.
      const isEnd = body.leftAt !== null;
      if (!isEnd && !(error instanceof StoreUnavailableError)) throw error;
      log.warn({ err: error }, 'writing the shutdown note failed');
    }
  }
}
