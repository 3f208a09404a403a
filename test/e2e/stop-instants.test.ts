// Sends SIGTERM to busy workers at random instants, whose seed is printed: no job may be lost, run twice
// or fail.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Client, createClient } from '../../src/client.ts';
import { fetchChecked } from '../support/network/checked-fetch.ts';
import { chooseSeed, createRandom } from '../support/random.ts';
import { type CommandRun, Workplace } from './cli/command-run.ts';

/** Those that hold do so whatever they are told, until there is a file. */
const handler = `import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
export const config = { concurrency: 4 };
export default async function* ({ input }, { attempt }) {
  appendFileSync('runs', input.n + '\\n');
  yield attempt;
  if (!input.holds) await sleep(input.ms);
  while (input.holds && !existsSync('go')) await sleep(5);
  return input.n;
}`;

const ROUNDS = 3;
/** Some are stopped while they start, some while they work, on a slow machine as well. */
const WORKERS = [
  { id: 'a', since: /supervisor started/ },
  { id: 'b', since: /supervisor started/ },
  { id: 'c', since: /"worker ready"/ },
];
/** More than the workers do in their time, of which one holds. */
const JOBS_PER_ROUND = 200;
const LATEST_MS = 1_500;

let place: Workplace;
let client: Client;
let env: Record<string, string>;

beforeEach(async () => {
  place = new Workplace();
  place.write('sums.mjs', handler);
  // What a lease that runs out would bring back is not back in time for this test.
  const terms = ['--lease-ms', '600000', '--retry-base-ms', '1'];
  const serve = ['serve', '--port', '0', '--data', 'data', '--endpoint', 'sums', ...terms];
  const platform = place.start(serve);
  const url = await platform.until('stdout', /is ready at (\S+)\n/);
  const key = await platform.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
  const worker = await platform.until('stdout', /MILLRACE_WORKER_KEY=(\S+)\n/);
  client = createClient({ fetch: fetchChecked, url, key, endpoint: 'sums' });
  env = { MILLRACE_URL: url, MILLRACE_ENDPOINT: 'sums', MILLRACE_KEY: worker };
});

afterEach(() => place.close());

function startWorker(id: string, ...more: string[]): CommandRun {
  const stop = ['--drain-ms', '1500', '--force-ms', '100'];
  const args = ['worker', 'sums.mjs', '--worker-id', id, '--state-dir', 'state', ...stop, ...more];
  return place.start(args, { env });
}

interface Asked {
  id: string;
  n: number;
  holds: boolean;
}

async function submit(n: number, random: () => number): Promise<Asked> {
  const holds = n % JOBS_PER_ROUND === 0;
  const { id } = await client.run({ n, holds, ms: Math.floor(random() * 120) });
  return { id, n, holds };
}

/** Stops a new worker `ms` after it has logged what matches `since`. */
async function stopSomewhere({ id, since }: (typeof WORKERS)[number], ms: number) {
  const run = startWorker(id);
  await run.until('stderr', since);
  await sleep(ms);
  return run.end('SIGTERM');
}

describe('a worker that is stopped at any instant', () => {
  it('releases jobs that arrive at that instant, loses nothing, and exits with 0', async () => {
    const seed = chooseSeed(1);
    console.log(`stop instants: SEED=${seed}`);
    const random = createRandom(seed);
    const asked: Asked[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const first = asked.length;
      const jobs = Array.from({ length: JOBS_PER_ROUND }, (_, n) => submit(first + n, random));
      asked.push(...(await Promise.all(jobs)));
      const ends = await Promise.all(
        WORKERS.map((worker) => stopSomewhere(worker, Math.floor(random() * LATEST_MS))),
      );
      for (const { code, stderr } of ends) expect(code, stderr).toBe(0);
      expect((await client.health()).jobs, `round ${round}`).toMatchObject({
        inProgress: 0,
        failed: 0,
        retried: 0,
      });
    }
    place.write('go', '');
    startWorker('last', '--jobs-per-thread', '64');
    for (const { id, n } of asked) {
      let record = await client.status(id);
      while (record.status === 'IN_QUEUE' || record.status === 'IN_PROGRESS') {
        await sleep(20);
        record = await client.status(id);
      }
      expect(record).toMatchObject({ status: 'COMPLETED', output: n });
    }
    const runs = place.read('runs').split('\n');
    const repeated = asked.filter(
      ({ holds, n }) => !holds && runs.filter((line) => line === `${n}`).length !== 1,
    );
    expect(repeated).toEqual([]);
  });
});
