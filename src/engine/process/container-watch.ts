// Notices when containers end: those of this platform's own process by their child, those that an
// earlier one has started by looking at them.
import type { ChildProcess } from 'node:child_process';
import type { Log } from '../../base/log.ts';
import { isAlive, type ProcessIdentity } from './process-table.ts';

const LOOK_EVERY_MS = 250;
/** Every so many looks the logs are looked at too. */
const LOOKS_A_LOG = 20;

export interface ContainerWatchOptions {
  /** Everything that runs now. */
  listRunning(): Promise<{ id: string; leader: ProcessIdentity }[]>;
  /** Called for each that runs, now and then. */
  tend(id: string): Promise<void>;
  log: Log;
}

export class ContainerWatch {
  readonly #options: ContainerWatchOptions;
  readonly #listeners = new Set<(id: string) => void>();
  readonly #running = new Map<string, ProcessIdentity>();
  #looks = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ContainerWatchOptions) {
    this.#options = options;
  }

  /** Returns its end. */
  listen(onChange: (id: string) => void): () => void {
    // Each its own, so that two with the same function can end one by one.
    const listener = (id: string) => onChange(id);
    this.#listeners.add(listener);
    this.#begin();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.close();
    };
  }

  add(id: string, leader: ProcessIdentity, child: ChildProcess | undefined): void {
    this.#running.set(id, leader);
    child?.once('exit', () => this.#lookAt(id, leader));
    this.tell(id);
    this.#lookAt(id, leader);
  }

  tell(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }

  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #begin(): void {
    if (this.#timer) return;
    this.#timer = setInterval(() => this.#look(), LOOK_EVERY_MS);
    this.#timer.unref();
    this.#adopt().catch((error: unknown) => {
      this.#options.log.error({ err: error }, 'containers that run cannot be listed');
    });
  }

  /** What an earlier platform's process has started. */
  async #adopt(): Promise<void> {
    for (const { id, leader } of await this.#options.listRunning()) {
      this.#running.set(id, leader);
      // It may have ended while it was looked for, and its end would be told to nobody.
      this.tell(id);
    }
  }

  #look(): void {
    const isLogDue = ++this.#looks % LOOKS_A_LOG === 0;
    for (const [id, leader] of this.#running) {
      this.#lookAt(id, leader);
      if (!isLogDue) continue;
      this.#options.tend(id).catch((error: unknown) => {
        this.#options.log.warn({ err: error, id }, 'the log of a container cannot be cut');
      });
    }
  }

  #lookAt(id: string, leader: ProcessIdentity): void {
    if (this.#running.get(id) !== leader || isAlive(leader)) return;
    this.#running.delete(id);
    this.tell(id);
  }
}
