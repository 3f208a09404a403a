// Plays one seed of the world with nodes to its end and returns its faults.
import '../global-time.ts';

import { describeEnd } from '../../../src/queue/lifecycle/links.ts';
import type { StoredJob } from '../../../src/store/store.ts';
import { createRandom } from '../../support/random.ts';
import { CALM } from '../flaky-link.ts';
import { judgeSchedule } from '../schedule-plan.ts';
import { judgeJob } from '../verdict.ts';
import { type NodesFlow, STREAM_PAUSE_MS } from './node-clients.ts';
import { breakSomething, chooseStormFate } from './node-faults.ts';
import { NodesWorld } from './nodes-world.ts';
import { separateProcesses } from './simulated-process.ts';

const STORM_STEPS = 12;
const STEP_MS = 4_000;
/** Now and then nothing happens for longer than a takeover takes. */
const QUIET_MS = 20_000;
const START_MS = 3_000;
const CALM_LIMIT_MS = 2_400_000;
const CALM_STEP_MS = 4_000;
/** Longer than the platform sleeps between two looks for work. */
const SWEEP_LIMIT_MS = 60_000;
const SEEDS = 7_000_003;
/** One seed in this many has a schedule. */
const SCHEDULE_ONE_IN = 3;

export interface PlayedNodes {
  faults: string[];
  trace: string[];
  events: ReadonlyMap<string, number>;
}

export async function playNodes(seed: number): Promise<PlayedNodes> {
  const random = createRandom(seed + SEEDS);
  const world = new NodesWorld(random);
  const giveBack = world.clock.takeOver(random);
  const join = separateProcesses(world.clock);
  const faults: string[] = [];
  try {
    faults.push(...(await play(world, seed)));
  } catch (error) {
    faults.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  } finally {
    world.close();
    // What is left ends.
    await world.clock.advance(1);
    join();
    giveBack();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const ledgers = [...world.ledgers.values()];
  const all = [...world.faults, ...ledgers.flatMap((ledger) => ledger.faults), ...faults];
  const trace = ledgers.flatMap((ledger) => ledger.trace);
  return { faults: all, trace, events: world.events.counts };
}

async function play(world: NodesWorld, seed: number): Promise<string[]> {
  const { clock, random } = world;
  world.start(random() < 0.3 ? 2 : 1);
  await clock.advance(START_MS);
  if (seed % SCHEDULE_ONE_IN === 0) world.clients.schedule(seed / SCHEDULE_ONE_IN);
  world.chooseFate = () => chooseStormFate(world);
  world.failedWrites = 0.02;
  world.lost = random() * 0.03;
  world.weather = { ...CALM, lostRequests: random() * 0.1, repeated: random() * 0.1 };
  for (let step = 0; step < STORM_STEPS; step++) {
    playStep(world);
    await clock.advance(random() < 0.05 ? QUIET_MS : Math.floor(random() * STEP_MS));
  }
  world.calmDown();
  await waitForAll(world);
  return [...(await judge(world)), ...(await judgeRest(world))];
}

function playStep(world: NodesWorld): void {
  const { random, workers } = world;
  const below = (limit: number) => Math.floor(random() * limit);
  const dice = random();
  if (dice < 0.08) world.clients.submitFlow();
  else if (dice < 0.42) world.clients.submit();
  else if (dice < 0.52) playClient(world, dice);
  else if (dice < 0.6) playWorker(world, dice, workers[below(workers.length)]);
  else breakSomething(world);
}

function playClient(world: NodesWorld, dice: number): void {
  const { random } = world;
  const { jobs } = world.clients;
  const below = (limit: number) => Math.floor(random() * limit);
  const id = [...jobs.keys()][below(jobs.size)];
  if (id === undefined) return;
  if (dice < 0.46) world.clients.cancel(id);
  else if (dice < 0.5) world.clients.retry(id);
  else world.clients.doom(id, 10_000 + below(60_000));
}

function playWorker(
  world: NodesWorld,
  dice: number,
  place: NodesWorld['workers'][number] | undefined,
): void {
  if (!place) return;
  if (dice < 0.55) place.worker.recycle();
  else if (dice < 0.58) place.worker.kill();
  else {
    void place.worker.drain();
    world.workers.splice(world.workers.indexOf(place), 1);
    world.addWorker(place.endpointId);
  }
}

/** Waits until all jobs have ended or are removed, and until clients have read their streams. */
async function waitForAll(world: NodesWorld): Promise<void> {
  const isOver = () => world.clients.areCallsOver && listLive(world).length === 0;
  await advanceUntil(world, isOver, CALM_LIMIT_MS);
  await world.clock.advance(2 * STREAM_PAUSE_MS);
}

/** Also those of which no client knows: the answer to a submission may be lost. */
function listLive({ endpointIds, monitor }: NodesWorld): StoredJob[] {
  return endpointIds.flatMap((id) => monitor.listLive(id));
}

async function advanceUntil(
  { clock }: NodesWorld,
  isOver: () => boolean,
  limitMs: number,
): Promise<void> {
  for (const until = clock.now() + limitMs; !isOver() && clock.now() < until; ) {
    await clock.advance(CALM_STEP_MS);
  }
}

async function judge(world: NodesWorld): Promise<string[]> {
  const faults: string[] = [];
  for (const [id, { endpointId, stream, ...job }] of world.clients.jobs) {
    const ledger = world.ledgers.get(endpointId);
    if (!ledger) throw new Error(`endpoint ${endpointId} has no ledger`);
    const readChunks = () => world.clients.readChunks(id, endpointId);
    const record = await world.clients.readRecord(id, endpointId);
    const played = { ...job, id, record, streamed: stream?.outputs };
    faults.push(...(await judgeJob({ isSheltered: false, ledger, readChunks }, played)));
  }
  for (const flow of world.clients.flows) faults.push(...(await judgeFlow(world, flow)));
  for (const [endpointId, ledger] of world.ledgers) {
    const schedules = await world.clients.readSchedules(endpointId);
    for (const schedule of schedules ?? []) faults.push(...judgeSchedule(schedule, ledger));
  }
  return faults;
}

/** The record of the flow has counted each end. */
async function judgeFlow({ clients, monitor }: NodesWorld, flow: NodesFlow): Promise<string[]> {
  const record = await clients.readFlow(flow);
  if (!record) return [`flow ${flow.id}: is no longer stored`];
  return record.jobs.flatMap(({ endpoint: endpointId, id, state }) => {
    const job = monitor.findStored({ endpointId, id });
    const end = job ? describeEnd(job) : undefined;
    return !job || end === state
      ? []
      : [`flow ${flow.id}: ${id} is ${state}, and has ended: ${end}`];
  });
}

/** Returns the faults of jobs that no client knows, and of payloads that no job has. */
async function judgeRest(world: NodesWorld): Promise<string[]> {
  const { clients, endpointIds, monitor } = world;
  // A node may submit a job after its client has given up.
  await advanceUntil(world, () => listLive(world).length === 0, CALM_LIMIT_MS);
  const unknown = listLive(world).filter(({ id }) => !clients.jobs.has(id));
  // A job may have been removed a moment ago.
  const listUnused = () => endpointIds.flatMap((id) => monitor.listUnused(id));
  await advanceUntil(world, () => listUnused().length === 0, SWEEP_LIMIT_MS);
  const unused = listUnused();
  return [
    ...unknown.map((job) => `job ${job.id}: has not ended: ${JSON.stringify(job)}`),
    ...(unused.length > 0 ? [`payloads are left: ${JSON.stringify(unused)}`] : []),
  ];
}
