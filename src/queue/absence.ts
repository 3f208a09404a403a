// Records whether workers could reach the platform without a break: each run stores how it ended, and
// the next run reads it. Carriers whose workers do not repeat lost calls need to know.
import { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { OWNER, type Store, StoreUnavailableError } from '../store/store.ts';

/** A stop and a start within this time are no absence, ms: the least after which a worker sends again. */
const BRIDGED_MS = 2_000;

const KEY = { kind: 'run', id: 'last' } as const;

const note = z.object({
  /** When the run stopped as asked, Unix ms; null while it goes on, and for ever if it was killed. */
  leftAt: z.number().nullable(),
  /** When the last absence ended, Unix ms. */
  absentUntil: z.number(),
});

type Note = z.infer<typeof note>;

export interface AbsenceOptions {
  store: Store;
  clock: Clock;
  log: Log;
}

export class Absence {
  readonly #options: AbsenceOptions;
  #absentUntil = 0;
  #isNoted = false;

  constructor(options: AbsenceOptions) {
    this.#options = options;
  }

  /** What began before this time may have sent what nobody received, Unix ms. */
  get until(): number {
    return this.#absentUntil;
  }

  /** The run begins. `wasSetBack`: the wall clock went back, so the time without a platform is not known. */
  async end({ wasSetBack = false } = {}): Promise<void> {
    const { clock, store } = this.#options;
    const found = await store.read((tx) => tx.resource(KEY));
    const last = found && note.parse(JSON.parse(found.body));
    this.#absentUntil = findAbsence(wasSetBack ? undefined : last, clock.now());
    await this.#write({ leftAt: null, absentUntil: this.#absentUntil });
  }

  /** The run stops as asked. */
  async begin(): Promise<void> {
    if (!this.#isNoted) return;
    this.#isNoted = false;
    await this.#write({ leftAt: this.#options.clock.now(), absentUntil: this.#absentUntil });
  }

  /** Where it cannot be written, the next run finds an older note, and takes this time for an absence. */
  async #write(body: Note): Promise<void> {
    const { log, store } = this.#options;
    const stored = { ...KEY, userId: OWNER, parent: '', position: 0, body: JSON.stringify(body) };
    try {
      await store.write((tx) => tx.putResource(stored));
      this.#isNoted = body.leftAt === null;
    } catch (error) {
      // At the end nothing more depends on it: the next run takes this time for an absence.
      const isEnd = body.leftAt !== null;
      if (!isEnd && !(error instanceof StoreUnavailableError)) throw error;
      log.warn({ err: error }, 'writing the shutdown note failed');
    }
  }
}

/** Without a note nobody knows what was before. */
function findAbsence(last: Note | undefined, now: number): number {
  if (!last || last.leftAt === null) return now;
  const awayMs = now - last.leftAt;
  return awayMs >= 0 && awayMs <= BRIDGED_MS ? last.absentUntil : now;
}
