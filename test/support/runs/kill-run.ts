// Runs jobs while threads, worker processes, supervisors and the platform are killed at random, and checks
// that each acknowledged job ends once, with the right result.
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Peril } from '../handlers/perilous.ts';
import { PlatformProcess } from '../processes.ts';
import { createRandom } from '../random.ts';
import { KilledWorker } from '../workers/killed-worker.ts';
import { describeFlaw, type EndedJob } from './kill-verdict.ts';

export interface KillRun {
  jobs: number;
  /** Number of process kills; jobs kill threads. */
  kills: number;
  /** A job that takes longer fails the run, ms. */
  limitMs: number;
  seed: number;
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
const CLIENTS = 20;
const POLL_MS = 150;
export const TERMS = ['--lease-ms', '3000', '--renew-every-ms', '700', '--take-wait-ms', '1000'];
/** Few jobs kill their thread, because a job that is released more than ten times fails. */
const PERIL_EVERY = 16;
const STREAM_SHARE = 0.4;
/** Statuses of a platform that is down, or whose queue is full. */
const REPEATED: readonly number[] = [503, 429];

const VICTIMS = ['worker process', 'supervisor', 'platform'] as const;
const SIGNALS = ['SIGKILL', 'SIGTERM'] as const;

export async function runUnderKills(run: KillRun): Promise<KillResult> {
  const random = createRandom(run.seed);
  const platform = await PlatformProcess.start({
    endpoints: [ENDPOINT],
    args: [...TERMS, ...(run.platformArgs ?? [])],
  });
  const workers = WORKERS.map((id) => new KilledWorker(platform, { id, endpoint: ENDPOINT }));
  try {
    const asked = Array.from({ length: run.jobs }, (_, n) => chooseJob(n, random));
    const ended: EndedJob[] = [];
    const running = runJobs(platform, { asked, ended, until: Date.now() + run.limitMs });
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

function chooseJob(n: number, random: () => number): Peril {
  const count = { n, ms: Math.floor(random() * 60) };
  if (n % PERIL_EVERY === 0) return { do: (n / PERIL_EVERY) % 2 === 0 ? 'exit' : 'spin', count };
  if (random() < STREAM_SHARE) {
    const yields = 5 + Math.floor(random() * 16);
    return { do: 'count', count: { n, ms: Math.floor(random() * 15), yields } };
  }
  return { do: 'count', count };
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

interface Clients {
  asked: readonly Peril[];
  /** Each job as first seen after its end. */
  ended: EndedJob[];
  until: number;
}

async function runJobs(platform: PlatformProcess, { asked, ended, until }: Clients): Promise<void> {
  const waiting = [...asked];
  const client = async () => {
    for (let job = waiting.shift(); job; job = waiting.shift()) {
      const id = jobRef.parse(
        await persist(() => platform.post(`/v2/${ENDPOINT}/run`, { input: job })),
      ).id;
      await waitForEnd(platform, { id, asked: job }, until);
      ended.push({ id, asked: job, seen: await look(platform, id) });
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
}

/** Waits for the end of a job; repeats the cancel of a running job that never ends on its own. */
async function waitForEnd(
  platform: PlatformProcess,
  { id, asked }: { id: string; asked: Peril },
  until: number,
): Promise<void> {
  for (;;) {
    const { status } = await readRecord(platform, id);
    if (asked.do === 'spin' && status === 'IN_PROGRESS') {
      await persist(() => platform.post(`/v2/${ENDPOINT}/cancel/${id}`, {}));
    }
    const live = status === 'IN_QUEUE' || status === 'IN_PROGRESS';
    if (!live || Date.now() > until) return;
    await sleep(POLL_MS);
  }
}

/** Retries while the platform is down or its queue is full. @returns its answer as JSON */
export async function persist(ask: () => Promise<Response>): Promise<unknown> {
  for (;;) {
    try {
      const answer = await ask();
      if (answer.status === 200) return await answer.json();
      if (!REPEATED.includes(answer.status)) throw new UnexpectedAnswer(await answer.text());
    } catch (error) {
      if (error instanceof UnexpectedAnswer) throw error;
    }
    await sleep(POLL_MS);
  }
}

class UnexpectedAnswer extends Error {}

export const jobRef = z.object({ id: z.string() });
const seenRecord = z.looseObject({
  status: z.string(),
  attempt: z.number(),
  output: z.unknown().exactOptional(),
  error: z
    .looseObject({ code: z.string(), attempts: z.array(z.looseObject({ code: z.string() })) })
    .exactOptional(),
});
const seenChunks = z.array(z.object({ output: z.unknown(), metrics: z.looseObject({}) }));

/** A job as a client sees it. */
export interface SeenJob {
  record: z.infer<typeof seenRecord>;
  chunks: unknown[];
}

async function look(platform: PlatformProcess, id: string): Promise<SeenJob> {
  const record = await readRecord(platform, id);
  const stream = `/v2/${ENDPOINT}/stream/${id}?after=0&wait=0`;
  const chunks = seenChunks.parse(await persist(() => platform.fetch(stream)));
  return { record, chunks: chunks.map(({ output }) => output) };
}

export async function readRecord(
  platform: PlatformProcess,
  id: string,
): Promise<SeenJob['record']> {
  return seenRecord.parse(await persist(() => platform.fetch(`/v2/${ENDPOINT}/status/${id}`)));
}

async function findChanges(
  platform: PlatformProcess,
  ended: readonly EndedJob[],
): Promise<string[]> {
  const changes: string[] = [];
  for (const { id, seen } of ended) {
    const now = await look(platform, id);
    // The execution time may arrive after the cancel.
    const same = isDeepStrictEqual(
      { ...now, record: { ...now.record, executionTime: 0 } },
      { ...seen, record: { ...seen.record, executionTime: 0 } },
    );
    if (!same) changes.push(`${id}: ${JSON.stringify(seen)} → ${JSON.stringify(now)}`);
  }
  return changes;
}
