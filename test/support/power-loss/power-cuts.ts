// Cuts the power of a machine again and again while clients use its platform.
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { locatePayloads, PayloadFolder } from '../../../src/store/disk/payload-files.ts';
import { findLostParts } from '../../../src/store/disk/payload-rows.ts';
import { findFreePort } from '../network/free-port.ts';
import type { PostgresServer } from '../postgres.ts';
import { fixture, Process } from '../processes.ts';
import { createRandom } from '../random.ts';
import { type Lost, PowerLossDisk } from './disk.ts';
import { JobLoad } from './job-load.ts';

const ENDPOINT = 'demo';
const ECHO = '../../../handlers/echo.ts';
/** Time from the first request to the cut, at most, ms. */
const LOAD_MS = 200;
/** A start takes about so long, ms. */
const START_MS = 500;
/** Of the cuts, those during a start. */
const START_SHARE = 0.2;

interface MachinePlace {
  /** The compiled library. */
  library: string;
  /** For everything that the machine writes. */
  folder: string;
  /** Has an empty database at this URL. Default: SQLite. */
  postgres?: { server: PostgresServer; url: string };
}

export interface CutRun extends MachinePlace {
  cuts: number;
  seed: number;
  ignoreSync?: boolean;
}

export interface CutVerdict {
  acknowledged: number;
  /** Files and names that a cut found with changes that were not on disk. */
  unsynced: number;
  problems: string[];
}

/** @returns what the platform lost, after the first cut at which it lost something */
export async function runUnderPowerCuts(run: CutRun): Promise<CutVerdict> {
  const random = createRandom(run.seed);
  await using machine = await Machine.build(run);
  const load = new JobLoad(() => machine, random);
  let unsynced = 0;
  const cut = (number: number) => {
    const { files, names } = machine.cut({ ...run, seed: run.seed + number });
    unsynced += files + names;
    load.problems.push(...machine.check());
  };
  await machine.start();
  machine.startWorker();
  for (let done = 0; done < run.cuts && load.problems.length === 0; ) {
    await load.check();
    await Promise.all([load.run(), sleep(random() * LOAD_MS).then(() => machine.kill())]);
    cut(++done);
    while (random() < START_SHARE && done < run.cuts) {
      const starting = machine.start().catch(() => {});
      await sleep(random() * START_MS);
      await machine.kill();
      await starting;
      cut(++done);
    }
    if (load.problems.length > 0) break;
    // What the cut damaged may make a start impossible.
    await machine.start().catch((error: unknown) => load.problems.push(String(error)));
  }
  if (load.problems.length === 0) await load.finish();
  return { acknowledged: load.acknowledged, unsynced, problems: load.problems };
}

/** A platform with its database. Both lose power together, and the worker beside them does not. */
export class Machine implements AsyncDisposable {
  readonly #options: MachinePlace;
  readonly #port: number;
  readonly #disk: PowerLossDisk;
  #platform: Process | undefined;
  #worker: Process | undefined;

  private constructor(options: MachinePlace, port: number, disk: PowerLossDisk) {
    this.#options = options;
    this.#port = port;
    this.#disk = disk;
  }

  static async build(options: MachinePlace): Promise<Machine> {
    const { folder, library, postgres } = options;
    const data = join(folder, 'data');
    mkdirSync(data);
    await postgres?.server.halt();
    const disk = new PowerLossDisk({
      folder: postgres ? postgres.server.data : data,
      ...{ library, log: join(folder, 'changes') },
    });
    return new Machine(options, await findFreePort(), disk);
  }

  /** Of the endpoint. */
  get url(): string {
    return `http://127.0.0.1:${this.#port}/v2/${ENDPOINT}`;
  }

  get key(): string {
    return this.#readKey('ADMIN');
  }

  get process(): Process {
    if (!this.#platform) throw new Error('the platform is not running');
    return this.#platform;
  }

  /** `fail`: see power-loss.c. */
  async start(fail?: string): Promise<void> {
    const { folder, postgres } = this.#options;
    const env = this.#disk.environment(fail);
    await postgres?.server.resume(env);
    this.#platform = new Process(
      [
        ...['serve', '--port', String(this.#port), '--data', join(folder, 'data')],
        ...['--key-file', join(folder, 'keys'), '--endpoint', ENDPOINT, '--rate-limit', 'none'],
        ...['--store-check-ms', '0', ...(postgres ? ['--store', postgres.url] : [])],
      ],
      postgres ? {} : { env },
    );
    await this.#platform.find(/is ready at/);
  }

  startWorker(): void {
    const where = ['--url', `http://127.0.0.1:${this.#port}`, '--endpoint', ENDPOINT];
    const args = ['--key', this.#readKey('WORKER'), '--unsupervised', '--threads', '1'];
    this.#worker = new Process(['worker', fixture(ECHO), ...where, ...args]);
  }

  async kill(): Promise<void> {
    await Promise.all([this.#platform?.end('SIGKILL'), this.#options.postgres?.server.kill()]);
  }

  cut(options: { seed: number; ignoreSync?: boolean }): Lost {
    return this.#disk.cut(options);
  }

  /** @returns the damage that `store check` would find */
  check(): string[] {
    if (this.#options.postgres) return [];
    const path = join(this.#options.folder, 'data', 'millrace.db');
    if (!existsSync(path)) return [];
    try {
      using database = new DatabaseSync(path, { readOnly: true });
      const rows = database.prepare('pragma integrity_check').all();
      const problems = rows.flatMap((row) => Object.values(row).map(String));
      const files = new PayloadFolder({ folder: locatePayloads(path) });
      return [...problems.filter((text) => text !== 'ok'), ...findLostParts(database, files)];
    } catch (error) {
      return [String(error)];
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#worker?.kill();
    this.#platform?.kill();
    await Promise.all([this.#worker?.exited, this.#platform?.exited]);
  }

  #readKey(name: 'ADMIN' | 'WORKER'): string {
    const keys = readFileSync(join(this.#options.folder, 'keys'), 'utf8');
    return new RegExp(`MILLRACE_${name}_KEY=(\\S+)`).exec(keys)?.[1] ?? '';
  }
}
