// Endpoints that take turns on GPUs while jobs come, workers die and the platform restarts, over seeds. `SEED=…` repeats one, `SEEDS=…`
// sets their number.
import { expect, it, onTestFinished } from 'vitest';
import { FleetWorld } from '../../../support/containers/fleet-world.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';
import { chooseSeed, createRandom } from '../../../support/random.ts';

const isRepeated = process.env['SEED'] !== undefined;
const COUNT = Number(process.env['SEEDS'] ?? (isRepeated ? 1 : 3));
const FIRST = chooseSeed(1);
const SEEDS = Array.from({ length: COUNT }, (_, index) => FIRST + index);
const GPU = 'NVIDIA L4';
const STEPS = 40;

it.each(SEEDS)('no GPU has two models, and no job is lost: seed %i', async (seed) => {
  const random = createRandom(seed);
  const pick = <T>(...all: [T, ...T[]]): T => all[Math.floor(random() * all.length)] ?? all[0];
  const world = await FleetWorld.open({
    gpus: makeGpus(GPU, pick(1, 1, 2, 3)),
    ...{ jobMs: pick(50, 500, 3_000), bootMs: pick(200, 2_000) },
    ...{ parkMs: pick(0, 100, 1_000), parkMemory: pick(1, 2, 10) },
  });
  onTestFinished(() => world.close());
  const ids: string[] = [];
  for (let n = 0; n < pick(2, 3, 4); n++) {
    ids.push(
      await world.createEndpoint({
        ...{ name: `e${n}`, gpuTypeIds: [GPU], workersMax: pick(1, 1, 2) },
        ...{ idleTimeout: pick(1, 5, 3_600), minResidenceMs: pick(0, 1_000) },
        ...{
          parkSeconds: pick(0, 5, 3_600, 3_600),
          spareWorkers: pick(0, 0, 1),
          gpuWeight: pick(1, 3),
          yields: random() < 0.5,
        },
        ...{ scaler: { type: 'REQUEST_COUNT', perWorker: pick(1, 5) }, maxAttempts: 100 },
      }),
    );
  }
  const sent = new Map(ids.map((id) => [id, 0]));
  let kills = 0;
  for (let step = 0; step < STEPS; step++) {
    const id = ids[Math.floor(random() * ids.length)] ?? '';
    const count = pick(1, 1, 1, 5);
    await world.submit(id, count);
    sent.set(id, (sent.get(id) ?? 0) + count);
    const chance = random();
    const running = world.listRunning();
    if (chance < 0.05 && running.length > 0) {
      kills++;
      world.host.end(running[Math.floor(random() * running.length)] ?? '', 137);
    } else if (chance < 0.07) {
      await world.leave();
      await world.start();
    }
    for (let passed = 0, ms = pick(50, 500, 3_000); passed < ms; passed += 50) {
      await world.run(50);
      world.listResidents();
    }
  }
  const isDone = async () => {
    world.listResidents();
    const all = await Promise.all(ids.map((id) => world.countJobs(id)));
    return all.every(({ completed }, n) => completed === sent.get(ids[n] ?? ''));
  };
  await world.until(isDone, 900_000);
  const counts = await Promise.all(ids.map((id) => world.countJobs(id)));
  const retried = counts.reduce((sum, each) => sum + each.retried, 0);
  expect(retried, 'only killed workers lose their job').toBeLessThanOrEqual(kills);
  expect(counts.every(({ failed }) => failed === 0)).toBe(true);
});
