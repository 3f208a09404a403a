// Runs jobs through a real worker process and a simulated RunPod server with faults, and checks that the
// worker answers each job correctly, with all chunks in order.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Count } from '../handlers/counting.ts';
import { fixture, Process } from '../processes.ts';
import { createRandom } from '../random.ts';
import {
  type RunPodFault,
  type RunPodRoute,
  RunPodServer,
  type RunPodServerOptions,
  type StandInJob,
} from './runpod-server.ts';

export interface RunPodWorkerOptions {
  handler?: string;
  args?: string[];
  env?: Record<string, string>;
}

/** A worker process with its own state folder. */
export class RunPodWorker {
  readonly process: Process;
  readonly #folder: string;

  private constructor(process: Process, folder: string) {
    this.process = process;
    this.#folder = folder;
  }

  static async start(
    server: RunPodServer,
    { args = [], env = {}, handler = 'counting.ts' }: RunPodWorkerOptions = {},
  ): Promise<RunPodWorker> {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-runpod-'));
    const common = { TMPDIR: folder, RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'true' };
    const child = new Process(['worker', fixture(handler), ...args], {
      env: { ...server.environment, ...common, ...env },
    });
    return new RunPodWorker(child, folder);
  }

  async close(): Promise<void> {
    this.process.kill();
    await this.process.exited;
    await rm(this.#folder, { recursive: true, force: true });
  }
}

export interface RunPodFaults {
  share: number;
  /** Chosen at random. */
  kinds: readonly RunPodFault[];
}

export interface RunPodRun {
  jobs: number;
  seed: number;
  templates?: RunPodServerOptions['templates'];
  /** Faults by route, with the share of requests that they affect. */
  faults?: Partial<Record<RunPodRoute, RunPodFaults>>;
  /** The server sends an invalid element after every second job. */
  hasBadElements?: boolean;
  /** The server delivers every third job twice. */
  isTwice?: boolean;
  /** The server requests stops of ended jobs. */
  hasLateStops?: boolean;
}

export interface RunPodResult {
  answered: number;
  struck: number;
  /** One line for each job with a wrong answer. */
  wrong: string[];
  exitCode: number | null;
}

const SLOTS = ['--unsupervised', '--threads', '1', '--jobs-per-thread', '4'];

export async function runOnRunPod(run: RunPodRun): Promise<RunPodResult> {
  const random = createRandom(run.seed);
  let struck = 0;
  const fault = (route: RunPodRoute) => {
    const faults = run.faults?.[route];
    if (!faults || random() >= faults.share) return undefined;
    struck += 1;
    return faults.kinds[Math.floor(random() * faults.kinds.length)];
  };
  const { templates = 'query' } = run;
  const server = await RunPodServer.start({ templates, fault });
  const worker = await RunPodWorker.start(server, { args: SLOTS });
  try {
    const asked = Array.from({ length: run.jobs }, (_, n) => chooseJob(n, random));
    submitAll(server, asked, run);
    await server.until(() => {
      const over = asked.filter(({ n }) => isOver(server, n));
      if (run.hasLateStops) for (const { n } of over.slice(-1)) server.stop(nameJob(n));
      return over.length === asked.length || hasEnded(worker.process);
    });
    const exitCode = await worker.process.end();
    const wrong = asked.flatMap((job) => findFlaw(job, server.jobs.get(nameJob(job.n)), run) ?? []);
    const bad = run.hasBadElements ? findUnanswered(server, asked) : [];
    if (wrong.length > 0 || exitCode !== 0) console.log(worker.process.output);
    const answered = asked.filter(({ n }) => isOver(server, n)).length;
    return { answered, struck, wrong: [...wrong, ...bad], exitCode };
  } finally {
    await worker.close();
    await server.close();
  }
}

function submitAll(server: RunPodServer, asked: readonly Count[], run: RunPodRun): void {
  for (const job of asked) {
    const id = nameJob(job.n);
    server.submit(id, job);
    if (run.isTwice && job.n % 3 === 0) server.submit(id, job);
    if (!run.hasBadElements || job.n % 2 === 0) continue;
    server.offer(job.n % 4 === 1 ? { id: `bad-${job.n}` } : 'not a job');
  }
}

/** Every second job streams. */
function chooseJob(n: number, random: () => number): Count {
  if (n % 2 === 0) return { n, ms: Math.floor(random() * 50) };
  return { n, ms: Math.floor(random() * 5), yields: 5 + Math.floor(random() * 16) };
}

function nameJob(n: number): string {
  return `job-${n}-u1`;
}

function isOver(server: RunPodServer, n: number): boolean {
  return (server.jobs.get(nameJob(n))?.results.length ?? 0) > 0;
}

function hasEnded({ child }: Process): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

function findUnanswered(server: RunPodServer, asked: readonly Count[]): string[] {
  const bad = asked.filter(({ n }) => n % 4 === 1).map(({ n }) => `bad-${n}`);
  return bad.filter(
    (id) => String(server.jobs.get(id)?.results[0]?.error).includes('no input') === false,
  );
}

/** Returns undefined if the worker answered the job correctly. */
function findFlaw(asked: Count, job: StandInJob | undefined, run: RunPodRun): string | undefined {
  const { n, yields } = asked;
  const output =
    yields === undefined
      ? { n, square: n * n }
      : Array.from({ length: yields }, (_, index) => ({ n, index, attempt: 1 }));
  const [result, ...more] = job?.results ?? [];
  const chunks = job?.stream.map((chunk) => chunk.output) ?? [];
  // The worker repeats a chunk whose acknowledgement was lost, directly after the first copy.
  const isLossy = run.faults?.stream?.kinds.some(({ kind }) => kind === 'reset');
  const seen = isLossy
    ? chunks.filter((chunk, at) => !isDeepStrictEqual(chunk, chunks[at - 1]))
    : chunks;
  const isRight =
    isDeepStrictEqual(result?.output, output) &&
    more.every((again) => isDeepStrictEqual(again, result)) &&
    (run.isTwice || isDeepStrictEqual(seen, yields === undefined ? [] : output));
  return isRight ? undefined : JSON.stringify({ asked, job });
}
