// One seed of endpoints that take turns on GPUs while everything fails that can.
import { CALM, type Weather } from '../../simulation/flaky-link.ts';
import { createRandom } from '../random.ts';
import { FleetWorld } from './fleet-world.ts';
import { makeGpus } from './gpus.ts';
import { ModelMachine } from './model-machine.ts';
import type { ModelHabits } from './model-worker.ts';

const GPU = 'NVIDIA L4';
const STEPS = 30;
const STORM: Weather = {
  ...{ lostRequests: 0.05, lostAnswers: 0.05, halfOpen: 0.005, repeated: 0.02, strayed: 0.02 },
  maxDelayMs: 300,
};
/** After the last fault: leases run out, processes start again, and each endpoint has a turn for each job. */
const HEALED_MS = 900_000;
/** The last moves end. */
const QUIET_MS = 30_000;

/** @returns what must not have happened */
export async function playTurns(
  seed: number,
  onFinished: (close: () => Promise<void>) => void,
): Promise<{ faults: string[] }> {
  const random = createRandom(seed);
  const choose = <T>(all: readonly T[]): T | undefined => all[Math.floor(random() * all.length)];
  const pick = <T>(...all: [T, ...T[]]): T => choose(all) ?? all[0];
  const chance = (share: number) => random() < share;
  const gpus = pick(1, 1, 2, 3);
  const share = pick(0, 0.05, 0.3);
  const storm = chance(0.5) ? STORM : CALM;
  let isTroubled = true;
  const machine = new ModelMachine(pick(3, 5));
  const kills = { working: 0 };
  const hostLimitBytes = pick(2, 4, 20);
  const habits = new Map<string, ModelHabits>();
  const draw = (): ModelHabits => ({
    ...{ way: pick('hooks', 'driver'), bytes: pick(1, 2, 3), hostLimitBytes },
    ...{
      bootMs: pick(200, 2_000, 10_000),
      moveMs: pick(50, 500, 3_000),
      jobMs: pick(50, 500, 3_000),
    },
  });
  const habitsOf = (id: string) => {
    const known = habits.get(id) ?? draw();
    habits.set(id, known);
    return known;
  };
  const faultsNow = () => (isTroubled ? share : 0);
  const world = await FleetWorld.open({
    gpus: makeGpus(GPU, gpus),
    models: {
      habitsOf,
      open: ({ clock }) => ({
        ...{ clock, machine, random, kills, faults: faultsNow },
        weather: () => (isTroubled ? storm : CALM),
      }),
    },
  });
  onFinished(() => world.close());
  const ids: string[] = [];
  for (let n = 0; n < pick(2, 3, 4); n++) {
    const id = await world.createEndpoint({
      ...{ name: `e${n}`, gpuTypeIds: [GPU], workersMax: pick(1, 1, 2) },
      ...{ idleTimeout: pick(1, 5, 3_600), minResidenceMs: pick(0, 1_000) },
      ...{ parkSeconds: pick(0, 5, 3_600, 3_600), gpuWeight: pick(1, 3), yields: chance(0.5) },
      spareWorkers: pick(0, 0, 1),
      ...{ preemptible: chance(0.6), preemptAbovePriority: pick(null, 0, 4) },
      ...{ maxSuspensions: pick(1, 20), maxSuspendedSeconds: pick(1, 5, 600) },
      // Suffices for a job whose time away does not count.
      executionTimeout: 20_000,
      ...{ scaler: { type: 'REQUEST_COUNT', perWorker: pick(1, 5) }, maxAttempts: 100 },
    });
    ids.push(id);
    habitsOf(id);
  }
  const sent = new Map(ids.map((id) => [id, 0]));
  let mayExpire = storm !== CALM;
  for (let step = 0; step < STEPS; step++) {
    const id = choose(ids) ?? '';
    const count = pick(1, 1, 1, 5);
    await world.submit(id, count, { priority: pick(0, 0, 2, 5, 9) });
    sent.set(id, (sent.get(id) ?? 0) + count);
    const dice = random();
    if (dice < 0.04) {
      const victim = choose(world.listRunning());
      if (victim !== undefined) world.host.end(victim, 137);
    } else if (dice < 0.12) {
      choose(world.listModelWorkers())?.crash();
    } else if (dice < 0.16) {
      mayExpire = true;
      await world.leave();
      await world.clock.advance(pick(0, 1_000, 20_000));
      await world.start();
    }
    await world.clock.advance(pick(50, 500, 3_000, 8_000));
  }
  isTroubled = false;
  const isDone = async () => {
    const all = await Promise.all(ids.map((each) => world.countJobs(each)));
    return all.every(({ completed }, n) => completed === sent.get(ids[n] ?? ''));
  };
  const faults: string[] = [];
  for (let ms = 0; !(await isDone()); ms += 1_000) {
    if (ms >= HEALED_MS) {
      const waits = await Promise.all(ids.map((each) => describeWait(world, each)));
      faults.push(`jobs still wait ${HEALED_MS} ms after the last fault: ${waits.join('; ')}`);
      break;
    }
    await world.clock.advance(1_000);
  }
  const counts = await Promise.all(ids.map((each) => world.countJobs(each)));
  const failed = counts.reduce((sum, each) => sum + each.failed, 0);
  const retried = counts.reduce((sum, each) => sum + each.retried, 0);
  if (failed > 0) faults.push(`${failed} jobs failed`);
  if (!mayExpire && retried > kills.working) {
    faults.push(
      `${retried} attempts were lost by ${kills.working} deaths of workers that took jobs`,
    );
  }
  await world.clock.advance(QUIET_MS);
  if (share === 0) faults.push(...machine.compareLedger());
  return { faults: [...faults, ...new Set(machine.violations)] };
}

async function describeWait(world: FleetWorld, endpointId: string): Promise<string> {
  const { inProgress, inQueue } = await world.countJobs(endpointId);
  const { message = 'no reason' } = inQueue > 0 ? await world.explainWait(endpointId) : {};
  const pods = world.platform.pods.ofEndpoint(endpointId).map(({ desired, gpus, id, parked }) => {
    return `${id} ${desired} has [${gpus}]${parked ? ` parked from [${parked.gpus}]` : ''}`;
  });
  return `${inQueue} wait and ${inProgress} run (${message}) with ${pods.join(', ') || 'no pod'}`;
}
