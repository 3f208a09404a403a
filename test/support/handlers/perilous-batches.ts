// Does in batches what perilous.ts does for single jobs: counts, streams, kills its thread, blocks it forever.
import { setTimeout as sleep } from 'node:timers/promises';
import type { BatchJob } from 'millrace';
import type { Peril } from './perilous.ts';

type PerilJob = BatchJob<Peril>;

const isStream = ({ count }: Peril): boolean => count.yields !== undefined;

async function square(jobs: readonly PerilJob[]) {
  // Whoever shares the batch is taken down as well.
  for (const { input } of jobs) {
    if (input.do === 'exit') process.exit(input.count.n % 2);
    for (; input.do === 'spin'; );
  }
  await sleep(Math.max(...jobs.map(({ input }) => input.count.ms)));
  return jobs.map(({ input: { count } }) => ({ n: count.n, square: count.n ** 2 }));
}

/** The jobs take turns; each value contains the number of the attempt. */
async function* countUp(jobs: readonly PerilJob[]) {
  const longest = Math.max(...jobs.map(({ input }) => input.count.yields ?? 0));
  for (let index = 0; index < longest; index++) {
    await sleep(5);
    for (const job of jobs) {
      const { n, yields = 0 } = job.input.count;
      if (index < yields) yield { job, output: { n, index, attempt: job.attempt } };
    }
  }
}

export default {
  batch: {
    maxSize: 4,
    maxWaitMs: 20,
    maxInFlight: 2,
    key: (input: Peril) => (isStream(input) ? 'stream' : 'value'),
  },
  run: (jobs: readonly PerilJob[]) =>
    jobs.some(({ input }) => isStream(input)) ? countUp(jobs) : square(jobs),
};
