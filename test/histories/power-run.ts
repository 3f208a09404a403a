// Records histories of a platform whose machine loses power: clients see it come back with what the disk held.
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { openPlatform } from '../../src/platform/platform.ts';
import {
  findLostParts,
  locatePayloads,
  PayloadFolder,
} from '../../src/store/disk/payload-files.ts';
import type { PostgresServer } from '../support/postgres.ts';
import { PowerLossDisk } from '../support/power-loss/disk.ts';
import type { PowerLossPlace } from '../support/power-loss/library.ts';
import { PlatformProcess, type Process } from '../support/processes.ts';
import { createRandom } from '../support/random.ts';
import { RecordingClient } from './client.ts';
import { collectFacts } from './facts.ts';
import { type History, type HistoryEvent, Recorder } from './history.ts';
import { describeViolations } from './report.ts';
import { check } from './rules.ts';
import { type Recording, record } from './run.ts';
import {
  addUsers,
  LEASE_MS,
  OWN_ENDPOINTS,
  PLATFORM_ARGS,
  startWorkers,
  type User,
} from './stand.ts';
import { QUICK_STORIES } from './stories.ts';

/** A start takes about so long, ms. */
const START_MS = 500;
/** Of the cuts, those during a start. */
const START_SHARE = 0.2;
const SAMPLE_MS = 5;
/** Replayed cuts at a time. */
const LANES = 4;
const KEPT_MS = 1_800_000;
/** Rules that nothing can break or keep while no worker runs and no receiver listens. */
const LATER_RULES = ['not-terminal', 'webhook-missing', 'flow-outcome', 'flow-miscounts'];

const listed = z.object({ jobs: z.array(z.object({ id: z.string() })) });

export interface PowerRun extends PowerLossPlace {
  seed: number;
  /** How long clients begin stories, ms. */
  loadMs: number;
  /** Has an empty database at this URL. Default: SQLite. */
  postgres?: { server: PostgresServer; url: string };
  /** As if no fsync had done anything: the history must break a rule then, or the test sees nothing. */
  ignoreSync?: boolean;
}

export interface PowerVerdict {
  cuts: number;
  /** Files and names that a cut found with changes that were not on disk. */
  unsynced: number;
  /** Acknowledged ones whose record a cut could have taken, all cuts together. */
  jobs: number;
  problems: string[];
}

/** Cuts the power again and again while clients use the platform. Each start goes on with what the last cut left. */
export async function recordPowerCuts(run: PowerRun): Promise<PowerVerdict> {
  await using machine = await Machine.build(run);
  const random = createRandom(run.seed);
  const verdict: PowerVerdict = { cuts: 0, unsynced: 0, jobs: 0, problems: [] };
  const cut = () => {
    const { files, names } = machine.disk.cut({ ...run, seed: run.seed + verdict.cuts++ });
    verdict.unsynced += files + names;
    verdict.problems.push(...machine.findDamage(machine.disk.folder));
  };
  const losePower = async () => {
    await machine.kill();
    cut();
    while (random() < START_SHARE) {
      const starting = machine.start().catch(() => {});
      await sleep(random() * START_MS);
      await machine.kill();
      await starting;
      cut();
    }
    await machine.start();
  };
  const faults = [{ 'power cut': losePower }];
  const history = await machine.record({ calmMs: 500, faults, heal: losePower });
  verdict.jobs = collectFacts(history).jobs.size;
  verdict.problems.push(...describeViolations(history));
  return verdict;
}

/** What `replayCuts` needs of a machine: a platform's, or that of the control group. */
export interface ReplayedMachine {
  readonly disk: PowerLossDisk;
  /** Records without a cut, and ends all processes. */
  sample(): Promise<History>;
  /** The folder for replays that follow each other. */
  locateReplay(lane: number): string;
  /** Starts on the folder, and reads all jobs. @returns the history with these reads */
  readAfter(folder: string, history: History): Promise<History>;
  findDamage(folder: string): string[];
}

/** Records one history, and then cuts the power at many moments of it, each time as if it were the only cut. */
export async function replayPowerCuts(run: PowerRun & { cuts: number }): Promise<PowerVerdict> {
  await using machine = await Machine.build(run);
  // Reads of streams wait.
  return await replayCuts(machine, { ...run, lanes: run.postgres ? 1 : LANES });
}

/** Ends at the first cut with problems. `lanes`: cuts at a time. */
export async function replayCuts(
  machine: ReplayedMachine,
  run: Pick<PowerRun, 'seed' | 'ignoreSync'> & { cuts: number; lanes?: number },
): Promise<PowerVerdict> {
  const moments: Moment[] = [];
  const sampling = setInterval(
    () => moments.push({ length: machine.disk.length, at: Date.now() }),
    SAMPLE_MS,
  );
  const history = await machine.sample().finally(() => clearInterval(sampling));
  const verdict: PowerVerdict = { cuts: 0, unsynced: 0, jobs: 0, problems: [] };
  verdict.problems.push(...describeViolations(history));
  const random = createRandom(run.seed);
  const replay = async (lane: number) => {
    while (verdict.cuts < run.cuts && verdict.problems.length === 0) {
      const [from, to] = choosePair(moments, random);
      const at = from.length + Math.floor(random() * (to.length - from.length));
      const seed = run.seed + verdict.cuts++;
      const folder = machine.locateReplay(lane);
      const { files, names } = machine.disk.replay(folder, { ...run, at, seed });
      verdict.unsynced += files + names;
      const found: string[] = [];
      try {
        const after = await machine.readAfter(folder, truncate(history, from.at, to.at));
        const broken = check(after).filter(({ rule }) => !LATER_RULES.includes(rule));
        verdict.jobs += collectFacts(after).jobs.size;
        found.push(...broken.map(({ rule, says }) => `${rule}: ${says}`));
      } catch (error) {
        found.push(String(error));
      }
      found.push(...machine.findDamage(folder));
      verdict.problems.push(...found.map((text) => `cut ${seed}: ${text}`));
    }
  };
  const { lanes = LANES } = run;
  await Promise.all(Array.from({ length: lanes }, (_, lane) => replay(lane)));
  return verdict;
}

/** A length that the log had at a time. */
interface Moment {
  at: number;
  length: number;
}

/** Two moments that follow each other, with changes between them. */
function choosePair(moments: readonly Moment[], random: () => number): [Moment, Moment] {
  const pairs = moments.flatMap((to, index): [Moment, Moment][] => {
    const from = moments[index - 1];
    return from && from.length < to.length ? [[from, to]] : [];
  });
  const pair = pairs[Math.floor(random() * pairs.length)];
  if (!pair) throw new Error('the log has no changes');
  return pair;
}

/** What clients knew at a cut between the two times: an answer in between may be one of changes after the cut. */
function truncate(history: History, from: number, to: number): History {
  const events = history.events.flatMap((event): HistoryEvent[] => {
    if (event.kind === 'call') {
      if (event.sentAt >= to) return [];
      return event.answeredAt < from ? [event] : [{ ...event, answeredAt: to, answer: null }];
    }
    return event.kind === 'posted' && event.at < from ? [event] : [];
  });
  return { ...history, events };
}

/** A platform with its database: both lose power together. Its workers and clients keep theirs. */
export class Machine implements ReplayedMachine, AsyncDisposable {
  readonly disk: PowerLossDisk;
  readonly #run: Omit<PowerRun, 'ignoreSync'>;
  readonly #environment: Record<string, string> = {};
  readonly #ends = new AsyncDisposableStack();
  readonly #workers = this.#ends.use(new AsyncDisposableStack());
  #platform: PlatformProcess | undefined;
  #users: readonly [User, User] | undefined;

  private constructor(run: PowerRun, disk: PowerLossDisk) {
    this.disk = disk;
    this.#run = run;
  }

  static async build(run: PowerRun): Promise<Machine> {
    const { folder, library, postgres } = run;
    mkdirSync(join(folder, 'data'));
    await postgres?.server.halt();
    const place = { folder: postgres?.server.data ?? join(folder, 'data'), library };
    return new Machine(run, new PowerLossDisk({ ...place, log: join(folder, 'changes') }));
  }

  get process(): Process {
    return this.#running.process;
  }

  /** `fail`: see power-loss.c. */
  async start(fail?: string): Promise<void> {
    const { folder, postgres } = this.#run;
    const env = this.disk.environment(fail);
    if (postgres) await postgres.server.resume(env);
    delete this.#environment['POWER_LOSS_FAIL'];
    if (!postgres) Object.assign(this.#environment, env);
    if (this.#platform) return await this.#platform.restart();
    this.#platform = await PlatformProcess.start({
      ...{ folder, endpoints: OWN_ENDPOINTS, env: this.#environment },
      args: [
        ...[...PLATFORM_ARGS, '--disk-reserve', '1'],
        ...(postgres ? ['--store', postgres.url] : []),
      ],
    });
    this.#ends.defer(() => this.#platform?.close());
  }

  async kill(): Promise<void> {
    await Promise.all([this.#platform?.kill(), this.#run.postgres?.server.kill()]);
  }

  /** Starts the platform, workers and clients. `fail`: see power-loss.c. */
  async record(
    recording: Pick<Recording, 'calmMs' | 'faults' | 'heal'> = {},
    fail?: string,
  ): Promise<History> {
    await this.start(fail);
    this.#users = await addUsers(this.#running);
    const { url } = this.#running;
    startWorkers(this.#workers, this.#users, { urls: [url], folder: this.#run.folder });
    return await record({
      ...{ seed: this.#run.seed, loadMs: this.#run.loadMs, users: this.#users, clients: 8 },
      ...{ urls: () => [url], requestLimitMs: 8_000, settleMs: 60_000, ...recording },
      stories: [...QUICK_STORIES, 'large', 'large', 'large'],
    });
  }

  async sample(): Promise<History> {
    try {
      return await this.record();
    } finally {
      await this.#workers.disposeAsync();
      await this.kill();
    }
  }

  locateReplay(lane: number): string {
    const { folder, postgres } = this.#run;
    return postgres ? this.disk.folder : join(folder, `replay-${lane}`);
  }

  /** Starts the platform in this process. */
  async readAfter(replayed: string, { events, ...about }: History): Promise<History> {
    const { folder, postgres } = this.#run;
    await postgres?.server.resume();
    try {
      const platform = await openPlatform({
        dataFolder: postgres ? join(folder, 'data') : replayed,
        keyFile: join(folder, 'keys'),
        ...{ endpoints: OWN_ENDPOINTS, maxAttempts: 100, store: postgres?.url },
        settings: { leaseMs: LEASE_MS, retentionMs: { run: KEPT_MS, runsync: KEPT_MS } },
      });
      try {
        const recorder = new Recorder(about);
        const from = recorder.now();
        recorder.history.events.push(...events);
        if (events.length > 0) await this.#readAll(recorder, platform.url);
        recorder.note({ kind: 'fault', name: 'power cut', from, to: recorder.now() });
        return recorder.history;
      } finally {
        await platform.close();
      }
    } finally {
      await postgres?.server.kill();
    }
  }

  async #readAll(recorder: Recorder, url: string): Promise<void> {
    const known = collectFacts(recorder.history).jobs;
    for (const { endpoint, key, user } of this.#users ?? []) {
      const access = { user, key, chooseUrl: () => url, since: 0, limitMs: 30_000 };
      const client = new RecordingClient(recorder, access);
      const answer = await client.list(endpoint);
      const jobs = answer?.status === 200 ? listed.parse(answer.body).jobs : [];
      await Promise.all(
        jobs.map(async ({ id }) => {
          await client.details(endpoint, id);
          await client.status(endpoint, id);
          if (known.get(id)?.body.input.chunks !== undefined) await client.page(endpoint, id, '0');
        }),
      );
    }
  }

  /** @returns the damage that `store check` would find */
  findDamage(folder: string): string[] {
    if (this.#run.postgres) return [];
    const path = join(folder, 'millrace.db');
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

  [Symbol.asyncDispose](): Promise<void> {
    return this.#ends.disposeAsync();
  }

  get #running(): PlatformProcess {
    if (!this.#platform) throw new Error('the platform is not running');
    return this.#platform;
  }
}
