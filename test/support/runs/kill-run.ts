// Runs jobs while threads, worker processes, supervisors and the platform are killed at random, and checks
// that each acknowledged job ends once, with the right result.
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Peril } from '../handlers/perilous.ts';
import { PlatformProcess } from '../processes.ts';
import { createRandom } from '../random.ts';
import { KilledWorker } from '../workers/killed-worker.ts';
import { chooseJob, findChanges, type JobKey, runJobs, type SeenJob } from './peril-clients.ts';

export interface KillRun {
  jobs: number;
  /** Number of process kills; jobs kill threads. */
  kills: number;
  /** A job that takes longer fails the run, ms. */
  limitMs: number;
  seed: number;
  /** Default: `perilous.ts`. */
  handler?: string;
  /** Further arguments of the platform. Default: none. */
  platformArgs?: string[];
  /** Faults besides the kills, one after each. Default: none. */
  faults?: readonly (() => Promise<void>)[];
}

export interface KillResult {
  acknowledged: number;
  /** Number of kills by process and signal. */
  kills: Record<string, number>;
  /** Jobs that were delivered more than once. */
  repeated: number;
  /** One line for each job with a wrong end. */
  wrong: string[];
  /** One line for each job that changed after a restart of all processes. */
  changed: string[];
  /** Exit codes of the supervisors: 0 if everything was delivered. */
  exitCodes: (number | null)[];
}

export const ENDPOINT = 'perilous';
export const WORKERS = ['w1', 'w2'];
export const TERMS = ['--lease-ms', '3000', '--renew-every-ms', '700', '--take-wait-ms', '1000'];

const VICTIMS = ['worker process', 'supervisor', 'platform'] as const;
const SIGNALS = ['SIGKILL', 'SIGTERM'] as const;

export async function runUnderKills(run: KillRun): Promise<KillResult> {
  const random = createRandom(run.seed);
  const platform = await PlatformProcess.start({
    endpoints: [ENDPOINT],
    args: [...TERMS, ...(run.platformArgs ?? [])],
  });
  const { handler } = run;
  const served = { endpoint: ENDPOINT, ...(handler !== undefined && { handler }) };
  const workers = WORKERS.map((id) => new KilledWorker(platform, { id, ...served }));
  try {
    const asked = Array.from({ length: run.jobs }, (_, n) => chooseJob(n, random));
    const ended: EndedJob[] = [];
    const until = Date.now() + run.limitMs;
    const running = runJobs(platform, { endpoints: [ENDPOINT], asked, ended, until });
    const kills: Record<string, number> = {};
    const progress = () => ended.length;
    const killing = killAll({ run, platform, workers, random, progress, kills });
    await Promise.all([running, killing]);
    const exitCodes = await Promise.all(workers.map((worker) => worker.leave()));
    await platform.process.end();
    await platform.restart();
    const wrong = ended.flatMap((job) => describeFlaw(job) ?? []);
    const changed = await findChanges(platform, ended);
    if (wrong.length + changed.length > 0 || exitCodes.some((code) => code !== 0)) {
      for (const { output } of workers) console.log(output);
    }
    const repeated = ended.filter(({ seen }) => seen.record.attempt > 1).length;
    return { acknowledged: ended.length, kills, repeated, wrong, changed, exitCodes };
  } finally {
    await platform.close();
  }
}

export interface Killing {
  run: Pick<KillRun, 'jobs' | 'kills' | 'faults'>;
  platform: PlatformProcess;
  workers: KilledWorker[];
  random: () => number;
  /** Number of jobs so far. */
  progress: () => number;
  /** Counts the kills by process and signal. */
  kills: Record<string, number>;
}

type Kill = { victim: 'worker process' | 'supervisor' | 'platform'; signal: NodeJS.Signals };

/** Yields every process with every signal in random order, repeatedly. */
function* chooseKills(random: () => number): Generator<Kill> {
  for (;;) {
    const left = VICTIMS.flatMap((victim) => SIGNALS.map((signal) => ({ victim, signal })));
    while (left.length > 0) yield* left.splice(Math.floor(random() * left.length), 1);
  }
}

/** Spreads the kills over the jobs. */
export async function killAll(killing: Killing): Promise<void> {
  const { kills, platform, progress, random, run, workers } = killing;
  let number = 0;
  for (const { victim, signal } of chooseKills(random)) {
    if (number === run.kills) return;
    const share = (run.jobs * (number++ + random())) / (run.kills + 1);
    while (progress() < share) await sleep(5);
    const name = `${victim} ${signal}`;
    kills[name] = (kills[name] ?? 0) + 1;
    if (victim === 'platform') {
      await platform.process.end(signal);
      await platform.restart();
    } else {
      const worker = workers[Math.floor(random() * workers.length)] ?? raiseNoWorker();
      await (victim === 'supervisor' ? worker.endSupervisor(signal) : worker.endProcess(signal));
    }
    const faults = run.faults ?? [];
    await faults[number % faults.length]?.();
  }
}

function raiseNoWorker(): never {
  throw new Error('there is no worker to end');
}

export interface EndedJob extends JobKey {
  asked: Peril;
  seen: SeenJob;
}

/** Returns undefined if the job ended correctly. */
export function describeFlaw({ id, asked, seen }: EndedJob): string | undefined {
  const isRight = judge(asked, seen);
  return isRight ? undefined : `${id} ${JSON.stringify(asked)}: ${JSON.stringify(seen)}`;
}

function judge(asked: Peril, { record, chunks }: SeenJob): boolean {
  switch (asked.do) {
    case 'count': {
      const output = expectOutput(asked, record.attempt);
      const isStream = asked.count.yields !== undefined;
      // A job whose handler does not yield has its output as its only chunk.
      const expected = isStream ? output : [output];
      return (
        record.status === 'COMPLETED' &&
        isDeepStrictEqual(record.output, output) &&
        isDeepStrictEqual(chunks, expected)
      );
    }
    case 'exit': {
      const codes = record.error?.attempts.map(({ code }) => code) ?? [];
      return record.status === 'FAILED' && codes.includes('handler_exited') && codes.length === 3;
    }
    case 'spin':
      return record.status === 'CANCELLED';
  }
}

function expectOutput({ count: { n, yields } }: Peril, attempt: number): unknown {
  if (yields === undefined) return { n, square: n * n };
  return Array.from({ length: yields }, (_, index) => ({ n, index, attempt }));
}
