// BullMQ on Redis. The worker keeps at most 1,000 finished jobs, so that Redis does not grow.
import { Queue, QueueEvents, Worker } from 'bullmq';
import { Completions, type Peer, type PeerQueue, SLOTS, submitFrom, timeEachRun } from './peer.ts';
import { startRedis } from './services.ts';

const NAME = 'jobs';

export const bullmqAlways: Peer = describeBullmq('always');
export const bullmqEverysec: Peer = describeBullmq('everysec');

function describeBullmq(fsync: 'always' | 'everysec'): Peer {
  return {
    name: `BullMQ, appendfsync ${fsync}`,
    settings: `concurrency ${SLOTS}, removeOnComplete 1,000`,
    startService: () => startRedis(fsync),
    open: openBullmq,
  };
}

async function openBullmq(port: number): Promise<PeerQueue> {
  const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
  const queue = new Queue(NAME, { connection });
  const events = new QueueEvents(NAME, { connection });
  const completions = new Completions();
  const worker = new Worker(NAME, async ({ data }) => data, {
    connection,
    concurrency: SLOTS,
    removeOnComplete: { count: 1_000 },
  });
  worker.on('completed', ({ id }) => completions.add(id ?? ''));
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady(), worker.waitUntilReady()]);
  return {
    submitMany: ({ input, ...load }) => submitFrom(load, () => queue.add('job', input)),
    waitForCompleted: (count) => completions.reach(count),
    timeRoundTrips: (count, input) =>
      timeEachRun(count, async () => (await queue.add('job', input)).waitUntilFinished(events)),
    async close() {
      await worker.close();
      await Promise.all([queue.close(), events.close()]);
    },
  };
}
