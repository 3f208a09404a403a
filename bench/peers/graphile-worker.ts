// graphile-worker on Postgres. It stores no output: a round trip ends when the task has run.
import { Logger, makeWorkerUtils, run, WorkerPreset } from 'graphile-worker';
import { Pool } from 'pg';
import { Completions, type Peer, type PeerQueue, SLOTS, submitFrom, timeEachRun } from './peer.ts';
import { startPostgres } from './services.ts';

const CLIENT_CONNECTIONS = 32;

/** It logs a line for each job. */
const silent = new Logger(() => () => {});

export const graphileWorker: Peer = {
  name: 'graphile-worker',
  settings: `concurrentJobs ${SLOTS}, localQueue 500, completeJobBatchDelay 0`,
  startService: startPostgres,
  open: openGraphileWorker,
};

async function openGraphileWorker(port: number): Promise<PeerQueue> {
  const connectionString = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const clients = new Pool({ connectionString, max: CLIENT_CONNECTIONS });
  // Of idle connections, which end with Postgres; a failed query rejects.
  clients.on('error', () => {});
  clients.on('connect', (client) => client.on('error', () => {}));
  const utils = await makeWorkerUtils({ pgPool: clients, logger: silent });
  await utils.migrate();
  const completions = new Completions();
  const runner = await run({
    preset: {
      extends: [WorkerPreset],
      worker: {
        connectionString,
        logger: silent,
        concurrentJobs: SLOTS,
        maxPoolSize: SLOTS,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    parsedCronItems: [],
    taskList: { job: (_payload, { job }) => completions.add(job.key ?? '') },
  });
  let keys = 0;
  return {
    submitMany: ({ input, ...load }) => submitFrom(load, () => utils.addJob('job', input)),
    waitForCompleted: (count) => completions.reach(count),
    timeRoundTrips: (count, input) =>
      timeEachRun(count, async () => {
        const jobKey = `trip-${keys++}`;
        const ended = completions.ended(jobKey);
        await utils.addJob('job', input, { jobKey });
        await ended;
      }),
    async close() {
      await runner.stop();
      await utils.release();
      await clients.end();
    },
  };
}
