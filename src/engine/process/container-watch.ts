// Detects the end of containers: those of this process by their child process, those of an earlier
// process by polling. Also keeps their logs short.
import type { ChildProcess } from 'node:child_process';
import type { Log } from '../../base/log.ts';
import { isAlive, type ProcessIdentity } from '../../base/process/process-table.ts';
import { cutLog } from './log-file.ts';

/**
 * Interval of the polls, which also bounds the growth of a log: a busy program fills a disk in
 * seconds.
 */
const POLL_EVERY_MS = 250;

export interface RunningContainer {
  id: string;
  leader: ProcessIdentity;
  /** Path of its log. */
  printed: string;
}

export interface ContainerWatchOptions {
  listRunning(): Promise<RunningContainer[]>;
  log: Log;
}

export class ContainerWatch {
  readonly #options: ContainerWatchOptions;
  readonly #listeners = new Set<(id: string) => void>();
  readonly #running = new Map<string, RunningContainer>();
  /** Paths of the logs that are being truncated. */
  readonly #cutting = new Set<string>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ContainerWatchOptions) {
    this.#options = options;
  }

  /** @returns the function that stops it */
  listen(onChange: (id: string) => void): () => void {
    // A separate function for each call, so that two registrations of one listener can stop
    // separately.
    const listener = (id: string) => onChange(id);
    this.#listeners.add(listener);
    this.#begin();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.close();
    };
  }

  add(container: RunningContainer, child: ChildProcess | undefined): void {
    this.#running.set(container.id, container);
    child?.once('exit', () => this.#check(container));
    this.notify(container.id);
    this.#check(container);
  }

  notify(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }

  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #begin(): void {
    if (this.#timer) return;
    this.#timer = setInterval(() => this.#pollAll(), POLL_EVERY_MS);
    this.#timer.unref();
    this.#adopt().catch((error: unknown) => {
      this.#options.log.error({ err: error }, 'listing containers failed');
    });
  }

  /** Adds containers that an earlier platform process has started. */
  async #adopt(): Promise<void> {
    for (const container of await this.#options.listRunning()) {
      this.#running.set(container.id, container);
      // It may have exited meanwhile, and nobody else would report that.
      this.notify(container.id);
    }
  }

  #pollAll(): void {
    for (const container of this.#running.values()) {
      void this.#cut(container);
      this.#check(container);
    }
  }

  #check(container: RunningContainer): void {
    const { id, leader } = container;
    if (this.#running.get(id) !== container || isAlive(leader)) return;
    this.#running.delete(id);
    this.notify(id);
  }

  async #cut({ id, printed }: RunningContainer): Promise<void> {
    if (this.#cutting.has(printed)) return;
    this.#cutting.add(printed);
    try {
      await cutLog(printed);
    } catch (error) {
      this.#options.log.warn({ err: error, id }, 'truncating a container log failed');
    } finally {
      this.#cutting.delete(printed);
    }
  }
}
