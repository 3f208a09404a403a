// Monitors the store's file: reports failures, tests writes, and keeps a reserve for a full disk.
import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Clock, letOthersRun, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { logMigration, type MigrationListener } from '../schema-migration.ts';
import { openSqlite, type SqliteDriver, type SqliteOptions } from '../sqlite/sqlite.ts';
import { type Store, StoreUnavailableError } from '../store.ts';
import { locatePayloads, PayloadsSize } from './payload-files.ts';
import { DiskReserve, readFreeBytes, SpaceGate } from './space-gate.ts';
import { explainFailure, isOutOfSpace, type StoreFailure, StoreHealth } from './store-failures.ts';
import { checkIntegrity } from './store-files.ts';

/** How often the guard checks whether a full disk has space again, ms. */
const TICK_MS = 5_000;

/** How long the result of a write test is reused, ms: each test costs an fsync. */
const TEST_EVERY_MS = 1_000;

/** With less free space than this at the start, the disk counts as full. */
const MIN_FREE_BYTES = 1_048_576;

const MB = 1_048_576;

const DAMAGE =
  'the database is damaged, or files of large inputs or outputs are missing; run `millrace store check`';
const PROBLEMS_LOGGED = 5;

export interface StoreGuardOptions {
  /** The database file; the reserve is a file beside it. */
  path: string;
  clock: Clock;
  log: Log;
  /** Disk space reserved for ending jobs while the disk is full, bytes. 0: none. */
  reserveBytes: number;
  /** Time after a deletion at which an idle platform erases the bytes from its files, ms. */
  eraseAfterMs: number;
  /** Time limit for the damage check of an existing file at the start, ms. 0: no check. */
  checkMs: number;
  /**
   * Called when the disk has failed to store a commit: everything rejects from then on, until a new process opens
   * the store. Default: ignored.
   */
  onLost?: (() => void) | undefined;
}

interface WriteTest {
  at: number;
  fault: Promise<string | undefined>;
}

export class StoreGuard {
  readonly store: Store;
  readonly #options: StoreGuardOptions;
  readonly #driver: SqliteDriver;
  readonly #health: StoreHealth;
  readonly #reserve: DiskReserve | undefined;
  readonly #gate: SpaceGate | undefined;
  readonly #closing = new AbortController();
  readonly #erasure: Erasure;
  readonly #payloads: PayloadsSize;
  readonly #running: Promise<unknown>;
  #damage: string | undefined;
  /** Why the reserve is missing although the disk is not known to be full. */
  #reserveFault: string | undefined;
  #test: WriteTest | undefined;

  private constructor(options: StoreGuardOptions, parts: Opened) {
    this.#options = options;
    this.store = parts.store;
    this.#driver = parts.driver;
    this.#health = parts.health;
    this.#reserve = parts.reserve;
    this.#gate = parts.gate;
    this.#erasure = new Erasure({
      ...options,
      driver: parts.driver,
      afterMs: options.eraseAfterMs,
    });
    this.#payloads = new PayloadsSize({
      folder: locatePayloads(options.path),
      clock: options.clock,
      signal: this.#closing.signal,
    });
    this.#running = Promise.all([this.#run(), parts.isNew || this.#check()]);
  }

  /** Opens the store, even on a full disk if a reserve exists. @throws as `openSqliteStore` */
  static async open(options: StoreGuardOptions): Promise<StoreGuard> {
    const { onLost, path, reserveBytes } = options;
    const health = new StoreHealth(options);
    const onFailure = (failure: StoreFailure) => {
      health.noteFailure(failure);
      if (failure.operation === 'sync') onLost?.();
    };
    const onMigrated: MigrationListener = (migration) => logMigration(options.log, migration);
    const isNew = (statSync(path, { throwIfNoEntry: false })?.size ?? 0) === 0;
    const reserve = new DiskReserve({ path: `${path}.reserve`, bytes: reserveBytes });
    if (reserveBytes === 0) {
      reserve.release();
      const opened = openSqlite({ path, onFailure, onMigrated });
      return new StoreGuard(options, {
        ...opened,
        health,
        isNew,
        reserve: undefined,
        gate: undefined,
      });
    }
    const gate = new SpaceGate(reserve);
    const isFull = (await readFreeBytes(dirname(path))) < MIN_FREE_BYTES;
    if (isFull) gate.close();
    const opened = openInSpace({ path, onFailure, onMigrated, gate });
    if (gate.isFull) opened.driver.saveSpace();
    return new StoreGuard(options, { ...opened, health, isNew, reserve, gate });
  }

  /** Storage failures by SQLite code or system error code, since the start. */
  get failures(): ReadonlyMap<string, number> {
    return this.#health.counts;
  }

  /** Bytes of the database file, of its write-ahead log and of the files of payloads, and those free on their disk. */
  measure(): { database: number; wal: number; payloads: number; free: number } {
    const { bavail, bsize } = statfsSync(dirname(this.#options.path));
    return {
      ...this.#driver.measure(),
      payloads: this.#payloads.bytes,
      free: bavail * bsize,
    };
  }

  /** Problems that need attention although the store works. */
  get warnings(): string[] {
    return [this.#damage, this.#reserveFault].filter((text) => text !== undefined);
  }

  /**
   * Returns why new data cannot be stored; undefined if it can. Tests a real write, at most once a
   * second.
   */
  findFault(): Promise<string | undefined> {
    const now = this.#options.clock.now();
    const known = this.#test;
    if (known && now >= known.at && now - known.at < TEST_EVERY_MS) return known.fault;
    const fault = this.#testWrite();
    this.#test = { at: now, fault };
    return fault;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
    await this.#payloads.settle();
    this.#health.flush();
    await this.store.close();
  }

  async #testWrite(): Promise<string | undefined> {
    try {
      await this.#driver.testWrite();
    } catch (error) {
      if (!(error instanceof StoreUnavailableError)) throw error;
      if (!isOutOfSpace(error.cause) || !this.#fill()) return explainFailure(error.code ?? '');
    }
    return this.#gate?.isFull ? this.#explainFullDisk() : undefined;
  }

  /** Returns false without a reserve, or if it cannot be released. */
  #fill(): boolean {
    if (!this.#gate) return false;
    if (this.#gate.isFull) return true;
    try {
      this.#gate.close();
      this.#driver.saveSpace();
      return true;
    } catch (error) {
      this.#options.log.error({ err: error }, 'disk reserve not released');
      return false;
    }
  }

  #explainFullDisk(): string {
    const needed = Math.ceil((this.#reserve?.neededBytes ?? 0) / MB);
    return (
      `${explainFailure('SQLITE_FULL')}: new jobs are refused until ${needed} MB are free; ` +
      'reading, cancelling and purging work'
    );
  }

  async #run(): Promise<void> {
    const { clock, eraseAfterMs } = this.#options;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        this.#health.flush();
        this.#payloads.refresh();
        await this.#keepReserve();
        if (!this.#gate?.isFull) await this.#erasure.tick(signal);
      } catch (error) {
        // The store has already reported its own failures.
        if (!(error instanceof StoreUnavailableError)) this.#health.noteMaintenanceFailure(error);
      }
      await sleep(clock, Math.min(TICK_MS, Math.ceil(eraseAfterMs / 2)), signal);
    }
  }

  /** A damaged page or a lost file fails only when it is read, which may be much later. */
  async #check(): Promise<void> {
    const { checkMs, clock, log, path } = this.#options;
    if (checkMs === 0) return;
    const timeUp = new AbortController();
    const cancel = clock.after(checkMs, () => timeUp.abort());
    const signal = AbortSignal.any([timeUp.signal, this.#closing.signal]);
    try {
      const { isComplete, problems } = await checkIntegrity({ path, depth: 'quick', signal });
      if (problems.length > 0) {
        this.#damage = DAMAGE;
        log.error({ problems: problems.slice(0, PROBLEMS_LOGGED), count: problems.length }, DAMAGE);
      } else if (timeUp.signal.aborted && !isComplete) {
        log.info(
          { checkMs },
          'database check stopped at its time limit; run `millrace store check` for a full check',
        );
      }
    } catch (error) {
      log.warn({ err: error }, 'database check failed; run `millrace store check`');
    } finally {
      cancel();
    }
  }

  /** The disk counts as full until the reserve is held again. */
  async #keepReserve(): Promise<void> {
    const { log } = this.#options;
    const reserve = this.#reserve;
    const gate = this.#gate;
    if (!reserve || !gate) return;
    const wasFull = gate.isFull;
    const isHeld = await reserve.make();
    if (isHeld && wasFull) {
      gate.open();
      this.#driver.useSpace();
      this.#test = undefined;
      log.info('disk has space again, accepting new jobs');
    }
    const hasFault = !isHeld && !gate.isFull;
    const text = `disk reserve missing: it needs ${Math.ceil(reserve.neededBytes / MB)} MB of free disk; free space or choose a smaller --disk-reserve`;
    if (hasFault && this.#reserveFault === undefined) log.warn(text);
    this.#reserveFault = hasFault ? text : undefined;
  }
}

interface Opened {
  /** A new file cannot be damaged. */
  isNew: boolean;
  store: Store;
  driver: SqliteDriver;
  health: StoreHealth;
  reserve: DiskReserve | undefined;
  gate: SpaceGate | undefined;
}

/** Opening may itself need space, for the shared memory file. */
function openInSpace(options: SqliteOptions & { gate: SpaceGate }): ReturnType<typeof openSqlite> {
  const { gate } = options;
  try {
    return openSqlite(options);
  } catch (error) {
    if (gate.isFull || !isOutOfSpace(error)) throw error;
    gate.close();
    return openSqlite(options);
  }
}

/** 4 KB pages erased in one step; requests run between two steps. */
const PAGES = 500;

/** With more commits per second than this, freed pages are kept: the next jobs overwrite them. */
const IDLE_COMMITS_PER_SECOND = 5;

/** This few commits count as idle, whatever the period. */
const IDLE_COMMITS = 20;

export interface ErasureOptions {
  driver: Pick<SqliteDriver, 'commits' | 'eraseFreePages' | 'truncateLog'>;
  clock: Pick<Clock, 'now'>;
  /** Time between a commit and the erasure of its deletions, ms. */
  afterMs: number;
}

export class Erasure {
  readonly #options: ErasureOptions;
  /** Number of commits whose deletions are erased. */
  #erased = 0;
  #waiting: { since: number; commits: number } | undefined;

  constructor(options: ErasureOptions) {
    this.#options = options;
  }

  /** Erases due deletions. The first call after a commit only notes the commit. */
  async tick(signal: AbortSignal): Promise<void> {
    const { afterMs, clock, driver } = this.#options;
    const { commits } = driver;
    if (commits === this.#erased) return;
    const now = clock.now();
    this.#waiting ??= { since: now, commits: this.#erased };
    const waitedMs = now - this.#waiting.since;
    if (waitedMs >= 0 && waitedMs < afterMs) return;
    const isIdle = this.#isIdle(commits - this.#waiting.commits, waitedMs);
    this.#waiting = { since: now, commits };
    if (isIdle) {
      while (!signal.aborted && (await driver.eraseFreePages(PAGES))) await letOthersRun();
    }
    // Only truncating the log shortens the file itself.
    if (!(await driver.truncateLog()) || !isIdle || signal.aborted) return;
    this.#erased = commits;
    this.#waiting = undefined;
  }

  #isIdle(commits: number, ms: number): boolean {
    return commits <= Math.max(IDLE_COMMITS, (IDLE_COMMITS_PER_SECOND * ms) / 1_000);
  }
}
