// Jobs through real processes while one of them is killed again and again: what was acknowledged has
// to end, once, with the right output.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { PlatformProcess, type Process } from './processes.ts';
import { createRandom } from './random.ts';

export interface KillRun {
  victim: 'platform' | 'worker';
  jobs: number;
  kills: number;
  seed: number;
}

export interface KillResult {
  acknowledged: number;
  /** One line for each job that is not COMPLETED with the right output. */
  wrong: string[];
  /** Statuses that were seen after a terminal one, as `<id>: <from> → <to>`. */
  changed: string[];
}

const ENDPOINT = 'square';
const CLIENTS = 8;
const END_LIMIT_MS = 120_000;

export async function runUnderKills({ victim, jobs, kills, seed }: KillRun): Promise<KillResult> {
  const random = createRandom(seed);
  const platform = await PlatformProcess.start({
    endpoints: [ENDPOINT],
    args: ['--lease-ms', '2000', '--renew-every-ms', '500'],
  });
  let worker = startWorker(platform);
  const accepted = new Map<string, number>();
  try {
    const submitting = submitAll(platform, jobs, random, accepted);
    for (let kill = 0; kill < kills; kill++) {
      await waitForShare(platform, victim, (jobs * (kill + random())) / kills, accepted);
      if (victim === 'platform') {
        await platform.kill();
        await platform.restart();
      } else {
        await worker.end('SIGKILL');
        worker = startWorker(platform);
      }
    }
    await submitting;
    return await checkAll(platform, accepted);
  } finally {
    await worker.end('SIGKILL');
    await platform.close();
  }
}

/** Spreads the kills over the jobs: the platform's over submissions, the worker's over completions. */
async function waitForShare(
  platform: PlatformProcess,
  victim: KillRun['victim'],
  share: number,
  accepted: Map<string, number>,
): Promise<void> {
  const count = async () => {
    if (victim === 'platform') return accepted.size;
    const answer = await platform.fetch(`/v2/${ENDPOINT}/health`);
    return seenHealth.parse(await answer.json()).jobs.completed;
  };
  while ((await count()) < Math.floor(share)) await sleep(5);
}

function startWorker(platform: PlatformProcess): Process {
  return platform.startWorker(
    ENDPOINT,
    'square.ts',
    '--worker-id',
    'w1',
    '--threads',
    '1',
    '--jobs-per-thread',
    '16',
  );
}

/** Each job once more if its answer did not come: only those that were answered count. */
async function submitAll(
  platform: PlatformProcess,
  jobs: number,
  random: () => number,
  accepted: Map<string, number>,
): Promise<void> {
  let next = 0;
  const client = async () => {
    while (next < jobs) {
      const n = next++;
      const body = { input: { n, ms: Math.floor(random() * 50) } };
      const id = await submit(platform, body);
      accepted.set(id, n);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
}

async function submit(platform: PlatformProcess, body: unknown): Promise<string> {
  for (;;) {
    try {
      const answer = await platform.post(`/v2/${ENDPOINT}/run`, body);
      if (answer.status === 200) return jobRef.parse(await answer.json()).id;
    } catch {
      // The platform is dead at the moment.
    }
    await sleep(20);
  }
}

async function checkAll(
  platform: PlatformProcess,
  accepted: Map<string, number>,
): Promise<KillResult> {
  const ended = new Map<string, string>();
  const changed: string[] = [];
  const wrong: string[] = [];
  const until = Date.now() + END_LIMIT_MS;
  for (const [id, n] of accepted) {
    const record = await waitForEnd(platform, id, until);
    ended.set(id, record.status);
    const right = record.status === 'COMPLETED' && record.output?.square === n * n;
    if (!right) wrong.push(`${id} (n=${n}): ${JSON.stringify(record)}`);
  }
  for (const [id, status] of ended) {
    const now = (await readRecord(platform, id)).status;
    if (now !== status) changed.push(`${id}: ${status} → ${now}`);
  }
  return { acknowledged: accepted.size, wrong, changed };
}

const jobRef = z.object({ id: z.string() });
const seenRecord = z.looseObject({
  status: z.string(),
  output: z.looseObject({ square: z.number() }).exactOptional(),
});
type SeenRecord = z.infer<typeof seenRecord>;
const seenHealth = z.object({ jobs: z.looseObject({ completed: z.number() }) });

async function waitForEnd(
  platform: PlatformProcess,
  id: string,
  until: number,
): Promise<SeenRecord> {
  for (;;) {
    const record = await readRecord(platform, id);
    const live = record.status === 'IN_QUEUE' || record.status === 'IN_PROGRESS';
    if (!live || Date.now() > until) return record;
    await sleep(20);
  }
}

async function readRecord(platform: PlatformProcess, id: string): Promise<SeenRecord> {
  const answer = await platform.fetch(`/v2/${ENDPOINT}/status/${id}`);
  return seenRecord.parse(await answer.json());
}
