// Plays one seed to its end and returns its faults.
import './global-time.ts';

import { openSqliteStore } from '../../src/store/sqlite/sqlite.ts';
import { NO_GROUP, type Store } from '../../src/store/store.ts';
import { isTerminal } from '../../src/wire/job/job.ts';
import type { JobRecord } from '../../src/wire/job/job-records.ts';
import { createRandom } from '../support/random.ts';
import { playBulkChange } from './bulk-change.ts';
import { CALM, type Weather } from './flaky-link.ts';
import type { WorldEvent } from './ledger.ts';
import { MemoryStore } from './memory-store.ts';
import { judgeSchedule } from './schedule-plan.ts';
import { judgeJob } from './verdict.ts';
import { World } from './world.ts';

const STORM_STEPS = 40;
/** Share of the seeds that pause the endpoint and groups. */
const PAUSE_ONE_IN = 3;
/** Share of the seeds that change many jobs at once, and the steps from one time to the next. */
const BULK_ONE_IN = 4;
const BULK_EVERY = 9;
const CALM_LIMIT_MS = 2_400_000;
const CALM_STEP_MS = 5_000;
/** One seed in this many is a sheltered world: only jobs cause faults. */
const SHELTERED_ONE_IN = 5;
/** Share of commits that fail in a storm. */
const FAILED_COMMITS = 0.02;
const COMMIT_SEEDS = 1_000_003;
/** One seed in this many runs on SQLite, which takes twice the time. */
const SQLITE_ONE_IN = 10;
/** One seed in this many has a schedule. */
const SCHEDULE_ONE_IN = 3;

export interface PlayedSeed {
  seed: number;
  /** Empty if it went well. */
  faults: string[];
  /** All changes in order. */
  trace: string[];
  events: ReadonlyMap<WorldEvent, number>;
}

/** So few that the queue has to page jobs in and drop them all the time. */
export const FEW_LIVE_JOBS = { windowJobs: 3, readyJobs: 6, endedJobs: 2 };

export function openSqlite(): Store {
  return openSqliteStore({ path: ':memory:', cacheBytes: 1_048_576, live: FEW_LIVE_JOBS });
}

/** Plays seeds one after the other. */
export class SeedPlayer {
  #sqlite: Store | undefined;
  #played = 0;

  /** Uses `store`, or else a store chosen by the seed. */
  async play(seed: number, store?: Store): Promise<PlayedSeed> {
    const random = createRandom(seed);
    // Of its own, so that it changes nothing else in the world.
    const fails = createRandom(seed + COMMIT_SEEDS);
    const commits = { fail: false, failed: 0 };
    const chosen = this.#chooseStore(random, () => {
      const failed = commits.fail && fails() < FAILED_COMMITS;
      if (failed) commits.failed++;
      return failed;
    });
    const world = new World({
      store: store ?? chosen,
      endpointId: `e${this.#played++}`,
      random,
      isSheltered: Math.floor(random() * SHELTERED_ONE_IN) === 0,
      groupLimit: seed % 2 === 0 ? undefined : 1 + (seed % 3),
      hasGpus: seed % 5 < 2,
      ...(seed % 4 === 1 && { rateLimit: { max: 6, perMs: 30_000 } }),
      ...(seed % 4 === 2 && { groupRateLimit: { max: 2, perMs: 30_000 } }),
    });
    const giveBack = world.clock.takeOver(random);
    try {
      const faults = await play(world, commits, seed);
      await world.close();
      if (commits.failed > 0) world.ledger.count('commit_failed');
      const { events, trace } = world.ledger;
      return { seed, faults: [...world.faults, ...faults], trace, events };
    } catch (error) {
      // The store may hold leftovers of this seed: the next seed opens another.
      this.#sqlite = undefined;
      const reason = error instanceof Error ? (error.stack ?? error.message) : String(error);
      const { events, trace } = world.ledger;
      return { seed, faults: [...world.faults, reason], trace, events };
    } finally {
      giveBack();
      // The whole seed ran in one iteration of the event loop: let other tasks run.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  #chooseStore(random: () => number, failsCommit: () => boolean): Store {
    if (Math.floor(random() * SQLITE_ONE_IN) > 0)
      return new MemoryStore({
        ...{ ...FEW_LIVE_JOBS, smallBytes: 8, failsCommit },
        rowsAtOnce: 1 + 2 * Math.floor(random() * 2),
      });
    this.#sqlite ??= openSqlite();
    return this.#sqlite;
  }
}

async function play(world: World, commits: { fail: boolean }, seed: number): Promise<string[]> {
  const { random } = world;
  await world.start(1 + Math.floor(random() * 3));
  if (seed % SCHEDULE_ONE_IN === 0) await world.schedule(seed / SCHEDULE_ONE_IN);
  world.weather = chooseWeather(world);
  commits.fail = !world.isSheltered;
  for (let step = 0; step < STORM_STEPS; step++) {
    await playStep(world);
    if (seed % PAUSE_ONE_IN === 0) await playPause(world, step);
    if (seed % BULK_ONE_IN === 0 && step % BULK_EVERY === BULK_EVERY - 1) {
      await playBulkChange(world, seed / BULK_ONE_IN + Math.floor(step / BULK_EVERY));
    }
  }
  commits.fail = false;
  for (const target of PAUSED) await world.resume(target);
  world.weather = CALM;
  const records = await waitForAll(world);
  const faults: string[] = [];
  const { bulkCancelled, bulkDeleted } = world.ledger;
  for (const [id, { parents, plan, stream, ...known }] of world.jobs) {
    const streamed = stream?.outputs;
    const record = records.get(id);
    const isCancelled = known.isCancelled || bulkCancelled.has(id);
    const isDeleted = bulkDeleted.has(id);
    if (isDeleted && record) faults.push(`job ${id}: is stored, though it was deleted`);
    const isDoomed = known.isDoomed || isDeleted;
    const isOrphan = parents.some((parent) => bulkDeleted.has(parent.id));
    const job = { id, parents, plan, record, isCancelled, isDoomed, isOrphan, streamed };
    faults.push(...(await judgeJob(world, job)));
  }
  for (const schedule of await world.readSchedules()) {
    faults.push(...judgeSchedule(schedule, world.ledger));
  }
  const unused = await world.listUnused();
  if (unused.length > 0) faults.push(`payloads are left: ${JSON.stringify(unused)}`);
  return faults;
}

/** Groups of the world; null is the endpoint. */
const PAUSED = ['a', NO_GROUP, null];

/** Takes no random number, which would change the world of every seed. */
async function playPause(world: World, step: number): Promise<void> {
  const target = PAUSED[Math.floor(step / 6) % PAUSED.length] ?? null;
  if (step % 6 === 1) await world.pause(target);
  if (step % 6 === 4) await world.resume(target);
}

function chooseWeather({ isSheltered, random }: World): Weather {
  if (isSheltered) return { ...CALM, maxDelayMs: random() * 1_000 };
  return {
    lostRequests: random() * 0.2,
    lostAnswers: random() * 0.2,
    halfOpen: random() * 0.03,
    repeated: random() * 0.1,
    strayed: random() * 0.05,
    maxDelayMs: random() * 200,
  };
}

async function playStep(world: World): Promise<void> {
  const { random } = world;
  const below = (limit: number) => Math.floor(random() * limit);
  const dice = random();
  if (dice < 0.5) await world.submit();
  else if (dice < 0.66) await playClient(world, dice);
  else if (dice < 0.72) world.workers[below(world.workers.length)]?.recycle();
  else if (world.isSheltered) await world.submit();
  else if (dice < 0.76) world.drainWorker(below(world.workers.length));
  else if (dice < 0.86) world.workers[below(world.workers.length)]?.kill();
  else if (dice < 0.91) await world.restartPlatform(below(30_000));
  else world.workers[below(world.workers.length)]?.part(below(60_000));
  await world.clock.advance(below(4_000));
}

async function playClient(world: World, dice: number): Promise<void> {
  const { jobs, random } = world;
  const below = (limit: number) => Math.floor(random() * limit);
  const id = [...jobs.keys()][below(jobs.size)];
  if (id === undefined) return;
  if (dice < 0.57) await world.cancel(id);
  else if (dice < 0.63) await world.retry(id);
  else if (!world.isSheltered) await world.doom(id, 10_000 + below(60_000));
}

/** Longer than the platform sleeps between two looks for work. */
const SWEPT_MS = 40_000;

/** Waits until all jobs have ended or are removed, and then until clients have read their streams. */
async function waitForAll(world: World): Promise<Map<string, JobRecord | undefined>> {
  const until = world.clock.now() + CALM_LIMIT_MS;
  const records = new Map<string, JobRecord | undefined>();
  let open = [...world.jobs.keys()];
  while (open.length > 0 && world.clock.now() < until) {
    await world.clock.advance(CALM_STEP_MS);
    for (const id of open) records.set(id, await world.readRecord(id));
    open = open.filter((id) => {
      const record = records.get(id);
      return record && !isTerminal(record.status);
    });
  }
  await world.clock.advance(2 * CALM_STEP_MS + SWEPT_MS);
  // Read again: records must not have changed.
  for (const id of world.jobs.keys()) records.set(id, await world.readRecord(id));
  return records;
}
