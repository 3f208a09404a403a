// Runs jobs on a worker with a model process that is killed again and again, and checks that each
// job ends once, with its own output.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { ModelJob } from '../handlers/model.ts';
import { listChildren } from '../process-tree.ts';
import { PlatformProcess, type Process } from '../processes.ts';

export interface ModelRun {
  jobs: number;
  /** Kills of the model process from outside, spread over the jobs. */
  kills: number;
  random: () => number;
}

export interface ModelResult {
  kills: number;
  /** Jobs that were delivered more than once. */
  repeated: number;
  /** One line for each job with a wrong end. */
  wrong: string[];
  exitCode: number | null;
}

const ENDPOINT = 'model';
const CLIENTS = 12;
const POLL_MS = 100;
/** Few jobs kill the process themselves, because a job that is released more than ten times fails. */
const DIES_EVERY = 40;
/** A kill that hits a job alone counts as its failure. */
const MAX_ATTEMPTS = '4';

const jobRef = z.object({ id: z.string() });
const jobRecord = z.object({
  status: z.string(),
  attempt: z.int().optional(),
  output: z.unknown().optional(),
  error: z.object({ code: z.string() }).optional(),
});

export async function runWithModelKills({ jobs, kills, random }: ModelRun): Promise<ModelResult> {
  const platform = await PlatformProcess.start({
    endpoints: [ENDPOINT],
    args: ['--max-attempts', MAX_ATTEMPTS],
  });
  try {
    const worker = platform.startWorker(ENDPOINT, 'model.ts');
    const result: ModelResult = { kills: 0, repeated: 0, wrong: [], exitCode: null };
    let next = 0;
    let ended = 0;
    const client = async () => {
      while (next < jobs) {
        const job = chooseJob(next++);
        const { flaw, isRepeated } = await runJob(platform, job);
        ended += 1;
        if (flaw !== undefined) result.wrong.push(flaw);
        if (isRepeated) result.repeated += 1;
      }
    };
    const killer = async () => {
      for (let number = 0; number < kills; number += 1) {
        const share = (jobs * (number + random())) / (kills + 1);
        while (ended < share) await sleep(5);
        result.kills += await killModel(worker, random() < 0.7 ? 'SIGKILL' : 'SIGTERM');
      }
    };
    await Promise.all([killer(), ...Array.from({ length: CLIENTS }, client)]);
    result.exitCode = await worker.end();
    if (result.wrong.length > 0) console.log(worker.output.slice(-20_000));
    return result;
  } finally {
    await platform.close();
  }
}

function chooseJob(n: number): ModelJob {
  if (n % DIES_EVERY === DIES_EVERY - 1) return { n, do: 'die' };
  return { n, do: n % 3 === 0 ? 'call' : 'stream' };
}

async function runJob(platform: PlatformProcess, job: ModelJob) {
  const path = `/v2/${ENDPOINT}`;
  const { id } = jobRef.parse(await (await platform.post(`${path}/run`, { input: job })).json());
  for (;;) {
    const record = jobRecord.parse(await (await platform.fetch(`${path}/status/${id}`)).json());
    if (record.status === 'IN_QUEUE' || record.status === 'IN_PROGRESS') {
      await sleep(POLL_MS);
      continue;
    }
    const found = JSON.stringify(record.error?.code ?? record.output);
    const flaw =
      found === expectEnd(job) ? undefined : `job ${JSON.stringify(job)} ended: ${found}`;
    return { flaw, isRepeated: (record.attempt ?? 1) > 1 };
  }
}

function expectEnd({ do: kind, n }: ModelJob): string {
  if (kind === 'die') return '"model_process_crashed"';
  if (kind === 'call') return JSON.stringify({ n });
  return JSON.stringify(Array.from({ length: 10 }, (_, item) => [n, item]));
}

/** @returns how many were killed: 0 while the next one starts */
async function killModel(worker: Process, signal: NodeJS.Signals): Promise<number> {
  for (let tries = 0; tries < 100; tries += 1) {
    const supervisor = worker.child.pid ?? 0;
    const models = listChildren(supervisor).flatMap(listChildren);
    if (models.some((pid) => sendSignal(pid, signal))) return 1;
    await sleep(POLL_MS);
  }
  return 0;
}

function sendSignal(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    // It has just ended by itself.
    return false;
  }
}
