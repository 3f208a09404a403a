// Plays one seed to its end and says what was wrong with it, if anything was.
import type { JobRecord } from '../../src/wire/job.ts';
import { isTerminal } from '../../src/wire/job.ts';
import { createRandom } from '../support/random.ts';
import { CALM } from './flaky-link.ts';
import { ENDPOINT, type JobPlan, World } from './world.ts';

const STORM_STEPS = 40;
/** More attempts than these are a loop: counted failures, releases, and suspicion once each. */
const MAX_ATTEMPTS = 3 + 10 + 20;
const CALM_LIMIT_MS = 2_400_000;

/** Empty if the seed went well. */
export async function runSeed(seed: number): Promise<string[]> {
  const random = createRandom(seed);
  const realRandom = Math.random;
  // The worker's jitter has to follow from the seed too.
  Math.random = random;
  const world = new World(random);
  try {
    await world.start(1 + Math.floor(random() * 3));
    const plans = new Map<string, JobPlan>();
    const asked = new Set<string>();
    world.weather = {
      lostRequests: random() * 0.2,
      lostAnswers: random() * 0.2,
      halfOpen: random() * 0.03,
      maxDelayMs: random() * 200,
    };
    for (let step = 0; step < STORM_STEPS; step++) await playStep(world, plans, asked);
    world.weather = CALM;
    const records = await waitForAll(world, [...plans.keys()]);
    return [...world.faults, ...(await checkJobs({ world, plans, asked, records }))];
  } finally {
    await world.close();
    Math.random = realRandom;
  }
}

async function playStep(world: World, plans: Map<string, JobPlan>, asked: Set<string>) {
  const { random } = world;
  const below = (limit: number) => Math.floor(random() * limit);
  const anyJob = () => [...plans.keys()][below(plans.size)];
  const dice = random();
  if (dice < 0.5) {
    const n = plans.size;
    const plan = {
      n,
      chunks: 1 + below(4),
      stepMs: 10 + below(4_000),
      failures: below(5) === 0 ? 1 : 0,
    };
    plans.set(await world.submit(plan), plan);
  } else if (dice < 0.58) {
    const id = anyJob();
    if (id) asked.add(id);
    if (id) await world.ask('cancel', id);
  } else if (dice < 0.64) {
    const id = anyJob();
    if (id) await world.ask('retry', id);
  } else if (dice < 0.74) await world.killWorker(below(world.workers));
  else if (dice < 0.78) await world.drainWorker(below(world.workers));
  else if (dice < 0.82) await world.restartPlatform(below(30_000));
  else if (dice < 0.92) world.partWorker(below(world.workers), below(60_000));
  await world.clock.advance(below(4_000));
}

async function waitForAll(world: World, ids: string[]): Promise<Map<string, JobRecord>> {
  const until = world.clock.now() + CALM_LIMIT_MS;
  const records = new Map<string, JobRecord>();
  let open = ids;
  while (open.length > 0 && world.clock.now() < until) {
    await world.clock.advance(5_000);
    for (const id of open) {
      const { body } = await world.queue.jobs.record({ endpointId: ENDPOINT, id });
      records.set(id, JSON.parse(body.toString()));
    }
    open = open.filter((id) => !isTerminal(records.get(id)?.status ?? 'IN_QUEUE'));
  }
  return records;
}

interface Played {
  world: World;
  plans: Map<string, JobPlan>;
  asked: Set<string>;
  records: Map<string, JobRecord>;
}

async function checkJobs({ world, plans, asked, records }: Played): Promise<string[]> {
  const faults: string[] = [];
  for (const [id, plan] of plans) {
    const record = records.get(id);
    const say = (what: string) => faults.push(`job ${id}: ${what}: ${JSON.stringify(record)}`);
    if (!record || !isTerminal(record.status)) {
      say('has not ended');
      continue;
    }
    if (record.attempt > MAX_ATTEMPTS) say('was tried without end');
    if (record.status === 'CANCELLED' && !asked.has(id)) say('was cancelled by nobody');
    if (record.status === 'TIMED_OUT') say('timed out, though none runs so long');
    if (record.status === 'FAILED' && !mayFail(plan, record)) say('failed without a reason');
    const acknowledged = world.acknowledged.get(id);
    if (acknowledged !== undefined && record.status !== 'COMPLETED' && !asked.has(id)) {
      say(`the completion of attempt ${acknowledged} was acknowledged`);
    }
    if (record.status === 'COMPLETED') await checkCompleted(world, plan, record, say);
  }
  return faults;
}

/** Three processes may die or be cut off under a job; a handler error is one that was planned. */
function mayFail({ failures }: JobPlan, { error }: JobRecord): boolean {
  const codes = error?.attempts.map(({ code }) => code) ?? [];
  const handlerErrors = codes.filter((code) => code === 'handler_error').length;
  const losses = codes.filter(
    (code) => code === 'lease_expired' || code === 'worker_crashed',
  ).length;
  return handlerErrors <= failures && handlerErrors + losses === codes.length && codes.length === 3;
}

async function checkCompleted(
  world: World,
  plan: JobPlan,
  record: JobRecord,
  say: (what: string) => void,
): Promise<void> {
  const { attempt } = record;
  if (JSON.stringify(record.output) !== JSON.stringify({ n: plan.n, attempt })) say('wrong output');
  const page = await world.queue.streams.read({
    endpointId: ENDPOINT,
    id: record.id,
    after: { attempt: 0, n: -1 },
    waitMs: 0,
    maxBytes: 1_000_000,
    signal: new AbortController().signal,
  });
  const chunks = page.chunks.map((bytes) => JSON.parse(Buffer.from(bytes).toString()).output);
  const expected = Array.from({ length: plan.chunks }, (_, i) => ({ attempt, i }));
  if (JSON.stringify(chunks) !== JSON.stringify(expected)) say(`chunks ${JSON.stringify(chunks)}`);
}
