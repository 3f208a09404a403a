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
/** Jobs before the first figure. */
const FIRST = 1_000;
const INPUT = { text: 'hello' };

interface Speed {
  /** Submitted by 32 clients and completed, a second, by processes that have just started: V8 still compiles. */
  atFirst: number;
  /** The same after `--warm-up` further jobs. */
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
    'warm-up': { type: 'string', default: '20000' },
    trips: { type: 'string', default: '1000' },
    only: { type: 'string', multiple: true, default: [''] },
  },
});
const rounds = Number(values.rounds);
const jobs = Number(values.jobs);
const trips = Number(values.trips);
const warmUp = Number(values['warm-up']);

async function measureQueue(queue: Omit<PeerQueue, 'close'>): Promise<Speed> {
  let submitted = 0;
  const measureRate = async (count: number): Promise<number> => {
    const startedAt = performance.now();
    await queue.submitMany({ clients: CLIENTS, jobs: count, input: INPUT });
    submitted += count;
    await queue.waitForCompleted(submitted);
    return count / ((performance.now() - startedAt) / 1_000);
  };
  await measureRate(FIRST);
  const atFirst = await measureRate(jobs);
  await measureRate(warmUp);
  const jobsPerSecond = await measureRate(jobs);
  await queue.timeRoundTrips(Math.min(200, trips), INPUT);
  const times = await queue.timeRoundTrips(trips, INPUT);
  return { atFirst, jobsPerSecond, ...describeTimes(times) };
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
    const measureRate = (requests: number) => sendLoad({ ...load, clients: CLIENTS, requests });
    await measureRate(FIRST);
    const atFirst = await measureRate(jobs);
    await measureRate(warmUp);
    const jobsPerSecond = await measureRate(jobs);
    const times = await timeEach({ ...load, requests: trips });
    await floor.stop();
    return { atFirst, jobsPerSecond, ...describeTimes(times) };
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

const titles = [
  ...['queue', `first ${jobs}, jobs/s`, 'warm, jobs/s'],
  ...['Millrace is', 'client library', 'on Postgres', 'round trip p50, ms', 'p99, ms'],
];
console.log(`| ${titles.join(' | ')} | settings |`);
console.log(`|${'---|'.repeat(titles.length + 1)}`);
for (const contestant of contestants) {
  const rates = (['atFirst', 'jobsPerSecond'] as const).map((figure) =>
    Math.round(of(contestant, figure)).toLocaleString('en'),
  );
  const ours = [millrace, millraceClient, millraceOnPostgres];
  const columns = [
    ...[contestant.name, ...rates, ...ours.map((each) => compare(each, contestant))],
    ...[of(contestant, 'p50').toFixed(2), of(contestant, 'p99').toFixed(2)],
    contestant.settings,
  ];
  console.log(`| ${columns.join(' | ')} |`);
}
console.log(`\nprocessor time stolen by other virtual machines: ${readStolen().toFixed(1)} %`);
