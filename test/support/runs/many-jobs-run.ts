// Submits many short jobs as fast as the platform takes them, while processes are killed at random, and checks the
// end of each acknowledged job after a restart.
import { isDeepStrictEqual } from 'node:util';
import type { Peril } from '../handlers/perilous.ts';
import { PlatformProcess } from '../processes.ts';
import { createRandom } from '../random.ts';
import { KilledWorker } from '../workers/killed-worker.ts';
import { ENDPOINT, killAll, TERMS, WORKERS } from './kill-run.ts';
import { jobRef, persist, readRecord, untilIdle } from './peril-clients.ts';

export interface ManyJobsRun {
  jobs: number;
  kills: number;
  seed: number;
  /** Called now and then with the number of acknowledged jobs. */
  onProgress: (acknowledged: number) => void;
}

export interface ManyJobsResult {
  acknowledged: number;
  /** Number of kills by process and signal. */
  kills: Record<string, number>;
  /** One line for each of the first jobs with a wrong end. */
  wrong: string[];
  /** Exit codes of the supervisors: 0 if everything was delivered. */
  exitCodes: (number | null)[];
}

const CLIENTS = 32;
const PROGRESS_EVERY = 20_000;
const MAX_LINES = 10;

export async function runManyJobs(run: ManyJobsRun): Promise<ManyJobsResult> {
  const random = createRandom(run.seed);
  const platform = await PlatformProcess.start({ endpoints: [ENDPOINT], args: TERMS });
  const workers = WORKERS.map((id) => new KilledWorker(platform, { id, endpoint: ENDPOINT }));
  try {
    const ids: string[] = [];
    let acknowledged = 0;
    const submitting = forEachNumber(run.jobs, async (n) => {
      const input: Peril = { do: 'count', count: { n, ms: 0 } };
      const answer = await persist(() => platform.post(`/v2/${ENDPOINT}/run`, { input }));
      ids[n] = jobRef.parse(answer).id;
      acknowledged++;
      if (acknowledged % PROGRESS_EVERY === 0) run.onProgress(acknowledged);
    });
    const kills: Record<string, number> = {};
    const progress = () => acknowledged;
    await Promise.all([submitting, killAll({ run, platform, workers, random, progress, kills })]);
    await untilIdle(platform, [ENDPOINT]);
    const exitCodes = await Promise.all(workers.map((worker) => worker.leave()));
    await platform.process.end('SIGKILL');
    await platform.restart();
    return { acknowledged, kills, wrong: await findWrong(platform, ids), exitCodes };
  } finally {
    await platform.close();
  }
}

/** Calls it with 0 to `count` - 1, some of them at a time. */
async function forEachNumber(count: number, act: (n: number) => Promise<void>): Promise<void> {
  let next = 0;
  const client = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
}

async function findWrong(platform: PlatformProcess, ids: readonly string[]): Promise<string[]> {
  const wrong: string[] = [];
  await forEachNumber(ids.length, async (n) => {
    const record = await readRecord(platform, { endpoint: ENDPOINT, id: ids[n] ?? '' });
    const isRight =
      record.status === 'COMPLETED' && isDeepStrictEqual(record.output, { n, square: n * n });
    if (!isRight && wrong.length < MAX_LINES) wrong.push(`${n}: ${JSON.stringify(record)}`);
  });
  return wrong;
}
