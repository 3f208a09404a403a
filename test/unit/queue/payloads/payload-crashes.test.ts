// Random uploads, refusals, failed commits and crashes on SQLite: a job has one of the outputs that were
// written for it, whole, and nothing else stays.
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, expect, it } from 'vitest';
import { LargePayloads } from '../../../../src/queue/payloads/large-payloads.ts';
import { completeSettings } from '../../../../src/queue/settings.ts';
import { locatePayloads } from '../../../../src/store/disk/payload-files.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import {
  type PayloadFiles,
  type Store,
  StoreUnavailableError,
} from '../../../../src/store/store.ts';
import { createRandom } from '../../../support/random.ts';
import { addEndpoint, ENDPOINT, makeJob } from '../../../support/store/stored-jobs.ts';

const PART = 2_000;
const folder = mkdtempSync(join(tmpdir(), 'millrace-payloads-'));
afterAll(() => rmSync(folder, { recursive: true }));

class Refused extends Error {}

/** Holds operations back until the player lets them run, so that the seed and not the disk decides their order. */
class Gate {
  readonly #waiting: (() => void)[] = [];
  #isOpen = false;
  #onArrival: () => void = () => {};

  async run<T>(operation: () => Promise<T>): Promise<T> {
    if (!this.#isOpen) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
        this.#onArrival();
      });
    }
    return operation();
  }

  /** Resolves when an operation waits. */
  async untilWaiting(): Promise<void> {
    if (this.#waiting.length > 0) return;
    await new Promise<void>((resolve) => {
      this.#onArrival = resolve;
    });
  }

  letRun(index: number): void {
    for (const run of this.#waiting.splice(index % Math.max(1, this.#waiting.length), 1)) run();
  }

  open(): void {
    this.#isOpen = true;
    for (const run of this.#waiting.splice(0)) run();
  }
}

/** One process on the store. After `crash` nothing that it still does reaches the store. */
class Process {
  readonly payloads: LargePayloads;
  readonly store: Store;
  readonly gate = new Gate();
  #hasCrashed = false;

  constructor(store: Store, hasFiles: boolean, random: () => number) {
    const fail = () => {
      if (this.#hasCrashed || random() < 0.02) throw new StoreUnavailableError('failed');
    };
    this.store = {
      ...{ close: () => store.close(), reclaim: (pages) => store.reclaim(pages) },
      read: (operation) => store.read(operation),
      write: (operation, options) =>
        this.gate.run(async () => {
          fail();
          return store.write(operation, options);
        }),
      files: hasFiles ? this.#watchFiles(store, fail) : undefined,
    };
    const settings = completeSettings({ payloadPartBytes: PART });
    this.payloads = new LargePayloads({ store: this.store, settings });
  }

  #watchFiles({ files }: Store, fail: () => void): PayloadFiles {
    if (!files) throw new Error('the store has no files');
    return {
      isUsable: true,
      write: (payload, piece) =>
        this.gate.run(async () => {
          fail();
          await files.write(payload, piece);
        }),
      read: (payload, at, part) => files.read(payload, at, part),
      reportLost: (payload) => files.reportLost(payload),
      remove: (payloads) =>
        this.gate.run(async () => {
          fail();
          return files.remove(payloads);
        }),
    };
  }

  crash(): void {
    this.#hasCrashed = true;
    this.gate.open();
  }
}

class Player {
  readonly #random: () => number;
  readonly #store: Store;
  readonly #hasFiles: boolean;
  #process: Process;
  #value = 0;
  /** What was acknowledged for each job, and what may be there without an answer. */
  readonly acknowledged = new Map<string, number>();
  readonly possible = new Map<string, Set<number>>();

  constructor(store: Store, hasFiles: boolean, seed: number) {
    this.#store = store;
    this.#hasFiles = hasFiles;
    this.#random = createRandom(seed);
    this.#process = new Process(store, hasFiles, this.#random);
  }

  async play(turns: number): Promise<void> {
    const running = new Set<Promise<void>>();
    const start = (task: Promise<void>) => {
      running.add(task);
      void task.finally(() => running.delete(task));
    };
    for (let turn = 0; turn < turns; turn++) {
      const { gate, payloads } = this.#process;
      start(this.#below(3) > 0 ? this.#write() : payloads.deleteSome().then(noop, noop));
      for (let runs = this.#below(10); runs > 0 && running.size > 0; runs--) {
        await Promise.race([gate.untilWaiting(), ...running]);
        gate.letRun(this.#below(5));
      }
      if (this.#below(12) === 0) {
        this.#process.crash();
        await Promise.all(running);
        this.#process = new Process(this.#store, this.#hasFiles, this.#random);
      }
    }
    this.#process.gate.open();
    await Promise.all(running);
    this.#process = new Process(this.#store, this.#hasFiles, () => 1);
    this.#process.gate.open();
    while (await this.#process.payloads.deleteSome());
  }

  async #write(): Promise<void> {
    const { payloads, store } = this.#process;
    const id = `job-${this.#below(5)}`;
    const value = ++this.#value;
    const bytes = new Uint8Array(PART + 1 + this.#below(4 * PART)).fill(value % 251);
    const isRefused = this.#below(4) === 0;
    const key = { endpointId: ENDPOINT, id };
    try {
      const upload = await payloads.upload({ kind: 'output', key, bytes });
      try {
        const possible = this.possible.get(id) ?? new Set();
        this.possible.set(id, possible.add(value));
        await store.write((tx) => {
          const job = tx.job(key);
          if (!job || job.status === 'COMPLETED' || isRefused) throw new Refused();
          tx.saveJob(job, { ...job, status: 'COMPLETED', outputKind: 'value' }, 0);
          tx.putOutput(job, upload);
        });
        this.acknowledged.set(id, value);
      } finally {
        payloads.release(upload);
      }
    } catch (error) {
      if (!(error instanceof Refused || error instanceof StoreUnavailableError)) throw error;
    }
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }
}

function measureFiles(files: string): number {
  const names = readdirSync(files);
  return names.reduce((sum, name) => sum + statSync(join(files, name)).size, 0);
}

function noop(): void {}

const seeds = Array.from({ length: 12 }, (_, seed) => seed + 1);

it.each(seeds.flatMap((seed) => [true, false].map((hasFiles) => ({ seed, hasFiles }))))(
  'crashes mix no outputs and leave nothing behind, seed $seed, files: $hasFiles',
  async ({ hasFiles, seed }) => {
    const path = join(folder, `${seed}-${hasFiles}.db`);
    const store = openSqliteStore({ path });
    await addEndpoint(store);
    await store.write((tx) => {
      for (let job = 0; job < 5; job++) {
        tx.insertJob(makeJob({ id: `job-${job}` }), new Uint8Array(2));
      }
    });
    const player = new Player(store, hasFiles, seed);
    await player.play(60);
    expect(player.acknowledged.size).toBeGreaterThan(0);
    let bytes = 0;
    for (let job = 0; job < 5; job++) {
      const id = `job-${job}`;
      const output = await store.read((tx) => tx.output({ endpointId: ENDPOINT, id }));
      const value = player.acknowledged.get(id);
      if (value !== undefined) expect(output?.[0]).toBe(value % 251);
      if (!output) continue;
      bytes += output.length;
      expect(new Set(output).size).toBe(1);
      const possible = [...(player.possible.get(id) ?? [])].map((each) => each % 251);
      expect(possible).toContain(output[0]);
    }
    expect(await store.read((tx) => tx.unusedPayloads(1))).toEqual([]);
    await store.close();
    const database = new DatabaseSync(path);
    const sum = `select sum(${hasFiles ? 'file_bytes' : 'octet_length(bytes)'}) as sum from job_output`;
    const row = database.prepare(sum).get();
    database.close();
    expect(row?.['sum'] ?? 0).toBe(bytes);
    if (hasFiles) expect(measureFiles(locatePayloads(path))).toBe(bytes);
  },
);
