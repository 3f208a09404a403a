// Keeps the ledger of a machine's GPUs in a file that the worker processes of one user share. Each change is made under a
// lock that ends with its process, and the file is replaced as a whole: a process may be killed at any step.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { makeOwnFolder } from '../../base/make-folder.ts';
import { isAlive, type ProcessIdentity } from '../../base/process/process-table.ts';
import { FolderInUseError, lockFolder } from '../outbox/folder-owner.ts';
import { dropDead, type Ledger, type LedgerEntry } from './ledger.ts';

const FILE = 'gpu-ledger.json';
const HOST_FILE = 'host-memory.json';
/** A change takes a few milliseconds. */
const LOCK_MS = 10_000;
const RETRY_MS = 5;

/**
 * Default: memory that is empty after a restart of the machine, as its GPUs are; without it, the temporary folder.
 * @throws Error if another user owns the folder or can write to it
 */
export function locateLedger(given: string | undefined): string {
  if (given !== undefined) {
    makeOwnFolder(given);
    return given;
  }
  const name = `millrace-${process.getuid?.() ?? 0}`;
  for (const parent of ['/dev/shm', tmpdir()]) {
    try {
      const folder = join(parent, name);
      makeOwnFolder(folder);
      return folder;
    } catch {
      // It cannot be written, or another user has made it.
    }
  }
  throw new Error(
    `no folder for the ledger of GPU memory can be created in /dev/shm or ${tmpdir()}`,
  );
}

export class LedgerFile {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /**
   * Changes the ledger. `act` gets it without tenants that are dead, and returns what it becomes.
   * @throws Error if another process holds the lock for too long, or the file cannot be written
   */
  async change<T>(act: (ledger: Ledger) => Promise<[Ledger, T]> | [Ledger, T]): Promise<T> {
    const lock = await this.#lock();
    try {
      const before = dropDead(this.#read(), isAlive);
      const [after, result] = await act(before);
      this.#replace(FILE, after);
      return result;
    } finally {
      lock.release();
    }
  }

  /**
   * A bound of the host's memory that all workers of the machine share: the first one measures it. Whoever comes when all of them are
   * gone measures it again.
   */
  async shareLimit(measure: () => number, own: ProcessIdentity): Promise<number> {
    const lock = await this.#lock();
    try {
      const known = this.#readHost();
      const users = (known?.users ?? []).filter(isAlive);
      const bytes = known && users.length > 0 ? known.bytes : measure();
      this.#replace(HOST_FILE, { bytes, users: [...users, own] } satisfies HostLimit);
      return bytes;
    } finally {
      lock.release();
    }
  }

  /** The tenants as they are now, for people: it does not wait for changes. */
  list(): Ledger {
    return dropDead(this.#read(), isAlive);
  }

  async #lock() {
    const endAt = performance.now() + LOCK_MS;
    for (;;) {
      try {
        return await lockFolder(this.#folder);
      } catch (error) {
        if (!(error instanceof FolderInUseError) || performance.now() > endAt) throw error;
        await delay(RETRY_MS * (0.5 + Math.random()));
      }
    }
  }

  #read(): Ledger {
    try {
      const value: unknown = JSON.parse(readFileSync(join(this.#folder, FILE), 'utf8'));
      return Array.isArray(value) ? value.filter(isEntry) : [];
    } catch {
      // There is none yet.
      return [];
    }
  }

  #readHost(): HostLimit | undefined {
    try {
      const value: unknown = JSON.parse(readFileSync(join(this.#folder, HOST_FILE), 'utf8'));
      return isHostLimit(value) ? value : undefined;
    } catch {
      return undefined;
    }
  }

  #replace(file: string, content: object): void {
    const path = join(this.#folder, file);
    writeFileSync(`${path}.new`, JSON.stringify(content), { mode: 0o600 });
    renameSync(`${path}.new`, path);
  }
}

interface HostLimit {
  bytes: number;
  /** Workers that go by it. */
  users: ProcessIdentity[];
}

function isHostLimit(value: unknown): value is HostLimit {
  if (typeof value !== 'object' || value === null) return false;
  const { bytes, users } = value as Record<string, unknown>;
  return typeof bytes === 'number' && Array.isArray(users) && users.every(isProcess);
}

function isProcess(value: unknown): value is ProcessIdentity {
  return typeof value === 'object' && value !== null && 'startTicks' in value;
}

function isEntry(value: unknown): value is LedgerEntry {
  if (typeof value !== 'object' || value === null) return false;
  const { bytes, device, id, process, since, state } = value as Record<string, unknown>;
  const isState = ['resident', 'parked', 'ended', 'waking'].includes(String(state));
  return (
    [id, device].every((each) => typeof each === 'string') &&
    isState &&
    isProcess(process) &&
    [bytes, since].every((each) => typeof each === 'number' && each >= 0)
  );
}
