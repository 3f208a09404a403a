// Detects the end of containers: those of this process by their child process, those of an earlier
// process by polling. Also keeps their logs short: the kernel appends to a log, and one older file has what was cut off.
import type { ChildProcess } from 'node:child_process';
import { type FileHandle, open, rename, stat, truncate } from 'node:fs/promises';
import type { Log } from '../../base/log.ts';
import { isAlive, type ProcessIdentity } from '../../base/process/process-table.ts';

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

/** Size at which the file is truncated; as much is kept in the older file. */
export const MAX_LOG_BYTES = 10_485_760;

/** Returns the end of the log, at most this many bytes. Empty without a log. */
export async function readLogEnd(path: string, maxBytes: number): Promise<Uint8Array> {
  const end = await readFileEnd(path, maxBytes);
  if (end.length === maxBytes) return end;
  return Buffer.concat([await readFileEnd(olderPath(path), maxBytes - end.length), end]);
}

/**
 * The container has the file open, so it is copied and then truncated: lines written in between are
 * lost. Containers write in append mode, wherever the file's end is.
 */
export async function cutLog(path: string, maxBytes = MAX_LOG_BYTES): Promise<void> {
  // Called often for every container, so a short log is not even opened.
  const size = (await stat(path).catch(() => undefined))?.size ?? 0;
  const file = size > maxBytes ? await openIfThere(path) : undefined;
  if (!file) return;
  try {
    const older = `${olderPath(path)}.new`;
    const copy = await open(older, 'w', 0o600);
    try {
      await copy.writeFile(await readEnd(file, maxBytes));
    } finally {
      await copy.close();
    }
    await truncate(path);
    await rename(older, olderPath(path));
  } finally {
    await file.close();
  }
}

function olderPath(path: string): string {
  return `${path}.1`;
}

async function readFileEnd(path: string, maxBytes: number): Promise<Buffer> {
  const file = await openIfThere(path);
  if (!file) return Buffer.alloc(0);
  try {
    return await readEnd(file, maxBytes);
  } finally {
    await file.close();
  }
}

async function readEnd(file: FileHandle, maxBytes: number): Promise<Buffer> {
  const { size } = await file.stat();
  const length = Math.min(size, maxBytes);
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await file.read(buffer, 0, length, size - length);
  return buffer.subarray(0, bytesRead);
}

async function openIfThere(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'r');
  } catch {
    return undefined;
  }
}
