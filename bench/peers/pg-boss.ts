// pg-boss on Postgres, woken by LISTEN/NOTIFY. A round trip ends when the handler has run.
import { randomUUID } from 'node:crypto';
import { PgBoss } from 'pg-boss';
import { Completions, type Peer, type PeerQueue, submitFrom, timeEachRun } from './peer.ts';
import { startPostgres } from './services.ts';

const NAME = 'jobs';
const BATCH = 1_000;
const CONNECTIONS = 32;

export const pgBoss: Peer = {
  name: 'pg-boss',
  settings: `batchSize ${BATCH}, burstWhenBatchFull, notify`,
  startService: startPostgres,
  open: openPgBoss,
};

async function openPgBoss(port: number): Promise<PeerQueue> {
  const connectionString = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const boss = new PgBoss({ connectionString, max: CONNECTIONS, useListenNotify: true });
  let isClosing = false;
  // Its pool outlives `stop` and loses its connections with Postgres.
  boss.on('error', (error) => isClosing || console.error(error));
  await boss.start();
  await boss.createQueue(NAME, { notify: true });
  const completions = new Completions();
  await boss.work(
    NAME,
    { batchSize: BATCH, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 },
    async (jobs) => {
      for (const { id } of jobs) completions.add(id);
    },
  );
  return {
    submitMany: ({ input, ...load }) => submitFrom(load, () => boss.send(NAME, input)),
    waitForCompleted: (count) => completions.reach(count),
    timeRoundTrips: (count, input) =>
      timeEachRun(count, async () => {
        const id = randomUUID();
        const ended = completions.ended(id);
        await boss.send(NAME, input, { id });
        await ended;
      }),
    async close() {
      isClosing = true;
      await boss.stop({ graceful: true, timeout: 5_000 });
    },
  };
}
