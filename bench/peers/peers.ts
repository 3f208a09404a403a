// `npm run bench:peers [-- --rounds N] [-- --only TEXT --only TEXT]`: Millrace over HTTP beside other job queues on this
// machine. Each round measures all of them, and a bare HTTP server.
import { parseArgs } from 'node:util';
import { LibraryStand } from '../library-stand.ts';
import { median, percentile, sendLoad, timeEach } from '../load.ts';
import { startFloor } from '../processes.ts';
import { withStand } from '../stands.ts';
import { watchStolenTime } from '../stolen-time.ts';
import { bullmqAlways, bullmqEverysec } from './bullmq.ts';
import { graphileWorker } from './graphile-worker.ts';
import type { Peer, PeerQueue } from './peer.ts';
import { pgBoss } from './pg-boss.ts';
import { startPostgres } from './services.ts';

const CLIENTS = 32;
const WARM_UP = 1_000;
const INPUT = { text: 'hello' };

interface Speed {
  /** Submitted by 32 clients and completed, a second. */
  jobsPerSecond: number;
  /** Of one client that waits for each output, ms. */
  p50: number;
  p99: number;
}

type Contestant = { name: string; settings: string; measure(): Promise<Speed> };

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    jobs: { type: 'string', default: '10000' },
    trips: { type: 'string', default: '1000' },
    only: { type: 'string', multiple: true, default: [''] },
  },
});
const rounds = Number(values.rounds);
const jobs = Number(values.jobs);
const trips = Number(values.trips);

async function measureQueue(queue: Omit<PeerQueue, 'close'>): Promise<Speed> {
  await queue.submitMany({ clients: CLIENTS, jobs: WARM_UP, input: INPUT });
  await queue.waitForCompleted(WARM_UP);
  const startedAt = performance.now();
  await queue.submitMany({ clients: CLIENTS, jobs, input: INPUT });
  await queue.waitForCompleted(WARM_UP + jobs);
  const jobsPerSecond = jobs / ((performance.now() - startedAt) / 1_000);
  await queue.timeRoundTrips(Math.min(200, trips), INPUT);
  return { jobsPerSecond, ...describeTimes(await queue.timeRoundTrips(trips, INPUT)) };
}

function describeTimes(times: number[]): { p50: number; p99: number } {
  return { p50: percentile(times, 0.5), p99: percentile(times, 0.99) };
}

function toContestant({ name, settings, open, startService }: Peer): Contestant {
  return {
    ...{ name, settings },
    async measure() {
      const service = await startService();
      try {
        const queue = await open(service.port);
        const speed = await measureQueue(queue);
        await queue.close();
        return speed;
      } finally {
        await service.stop();
      }
    },
  };
}

const millrace: Contestant = {
  name: 'Millrace over HTTP',
  settings: 'defaults, without a rate limit',
  measure: () => withStand({ carrier: 'HTTP', handler: 'noop' }, measureQueue),
};

const millraceClient: Contestant = {
  name: 'Millrace over HTTP, client library',
  settings: 'defaults, without a rate limit; callers share one client',
  measure() {
    const connect = (...stand: ConstructorParameters<typeof LibraryStand>) =>
      new LibraryStand(...stand);
    return withStand({ carrier: 'HTTP', handler: 'noop', connect }, measureQueue);
  },
};

const millraceOnPostgres: Contestant = {
  name: 'Millrace over HTTP, on Postgres',
  settings: '--store postgres://…',
  async measure() {
    const service = await startPostgres();
    const store = `postgres://postgres@127.0.0.1:${service.port}/postgres?sslmode=disable`;
    try {
      const platformArgs = ['--store', store];
      return await withStand({ carrier: 'HTTP', handler: 'noop', platformArgs }, measureQueue);
    } finally {
      await service.stop();
    }
  },
};

const bareFastify: Contestant = {
  name: 'bare fastify, no queue',
  settings: 'one request for each job',
  async measure() {
    const floor = await startFloor('floors/fastify-server.ts');
    const load = { url: `${floor.url}/small`, body: JSON.stringify({ input: INPUT }) };
    await sendLoad({ ...load, clients: CLIENTS, requests: WARM_UP });
    const jobsPerSecond = await sendLoad({ ...load, clients: CLIENTS, requests: jobs });
    const times = await timeEach({ ...load, requests: trips });
    await floor.stop();
    return { jobsPerSecond, ...describeTimes(times) };
  },
};

const contestants = [
  ...[millrace, millraceClient, millraceOnPostgres, bareFastify],
  ...[bullmqAlways, bullmqEverysec, graphileWorker, pgBoss].map(toContestant),
].filter(({ name }) => values.only.some((text) => name.toLowerCase().includes(text.toLowerCase())));
if (contestants.length === 0) throw new Error(`no contestant has "${values.only}" in its name`);

const readStolen = watchStolenTime();
const speeds = new Map(contestants.map((contestant) => [contestant, [] as Speed[]]));
for (let round = 1; round <= rounds; round++) {
  for (const [contestant, measured] of speeds) {
    process.stderr.write(`round ${round} of ${rounds}: ${contestant.name}\n`);
    measured.push(await contestant.measure());
  }
}

const of = (contestant: Contestant, figure: keyof Speed) =>
  median((speeds.get(contestant) ?? []).map((speed) => speed[figure]));
console.log(`median of ${rounds} rounds, ${jobs} jobs from ${CLIENTS} clients\n`);
/** How many times its jobs/s `ours` has, in the same round. */
function compare(ours: Contestant, contestant: Contestant): string {
  const our = speeds.get(ours);
  if (!our) return '';
  const ratios = (speeds.get(contestant) ?? []).map(
    ({ jobsPerSecond }, round) => (our[round]?.jobsPerSecond ?? Number.NaN) / jobsPerSecond,
  );
  return `${median(ratios).toFixed(2)} ×`;
}

const titles = ['queue', 'jobs/s', 'Millrace is', 'on Postgres', 'round trip p50, ms', 'p99, ms'];
console.log(`| ${titles.join(' | ')} | settings |`);
console.log('|---|---|---|---|---|---|---|');
for (const contestant of contestants) {
  const columns = [
    ...[contestant.name, Math.round(of(contestant, 'jobsPerSecond')).toLocaleString('en')],
    ...[compare(millrace, contestant), compare(millraceOnPostgres, contestant)],
    ...[of(contestant, 'p50').toFixed(2), of(contestant, 'p99').toFixed(2)],
    contestant.settings,
  ];
  console.log(`| ${columns.join(' | ')} |`);
}
console.log(`\nprocessor time stolen by other virtual machines: ${readStolen().toFixed(1)} %`);
