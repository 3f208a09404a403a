// Thousands of jobs end once with their own result while processes are killed at random.
import { describe, expect, it } from 'vitest';
import { startCluster } from '../support/kubernetes/cluster.ts';
import { runKillRounds } from '../support/kubernetes/kill-world.ts';
import { GPU_NODE } from '../support/kubernetes/kube-platform.ts';
import { leaveOutWithoutPython } from '../support/python.ts';
import { chooseSeed, createRandom } from '../support/random.ts';
import { runUnderKills } from '../support/runs/kill-run.ts';
import { runManyJobs } from '../support/runs/many-jobs-run.ts';
import { runWithModelKills } from '../support/runs/model-run.ts';

it('ends 2,000 jobs once with the right result while threads and processes are killed', async () => {
  const seed = chooseSeed();
  console.log(`kills: SEED=${seed}`);
  const run = { jobs: 2_000, kills: 60, limitMs: 25 * 60_000, seed };
  const { kills, repeated, ...result } = await runUnderKills(run);
  console.log(`kills: ${JSON.stringify(kills)}, ${repeated} jobs delivered more than once`);
  expect(Object.keys(kills)).toHaveLength(6);
  expect(repeated).toBeGreaterThan(0);
  expect(result).toEqual({ acknowledged: 2_000, wrong: [], changed: [], exitCodes: [0, 0] });
});

it('ends 2,000 jobs in batches once with their own result while threads and processes are killed', async () => {
  const seed = chooseSeed();
  console.log(`batch kills: SEED=${seed}`);
  const run = {
    jobs: 2_000,
    kills: 60,
    limitMs: 25 * 60_000,
    seed,
    handler: 'perilous-batches.ts',
  };
  const { kills, repeated, ...result } = await runUnderKills(run);
  console.log(`kills: ${JSON.stringify(kills)}, ${repeated} jobs delivered more than once`);
  expect(repeated).toBeGreaterThan(0);
  expect(result).toEqual({ acknowledged: 2_000, wrong: [], changed: [], exitCodes: [0, 0] });
});

it.skipIf(leaveOutWithoutPython('kills.test.ts'))(
  'ends 2,000 jobs once with their own output while their model process is killed',
  async () => {
    const seed = chooseSeed();
    console.log(`model kills: SEED=${seed}`);
    const run = { jobs: 2_000, kills: 100, random: createRandom(seed) };
    const { repeated, ...result } = await runWithModelKills(run);
    expect(repeated).toBeGreaterThan(0);
    expect(result).toEqual({ kills: 100, wrong: [], exitCode: 0 });
  },
);

describe('many jobs', () => {
  const jobs = Number(process.env['JOBS'] ?? 200_000);

  it(`end once with the right output while processes are killed: ${jobs} jobs`, async () => {
    const seed = chooseSeed();
    console.log(`many jobs: SEED=${seed}`);
    const onProgress = (acknowledged: number) => console.log(`${acknowledged} jobs acknowledged`);
    const { kills, ...result } = await runManyJobs({ jobs, kills: 42, seed, onProgress });
    console.log(`kills: ${JSON.stringify(kills)}`);
    expect(result).toEqual({ acknowledged: jobs, wrong: [], exitCodes: [0, 0] });
  });
});

describe('Kubernetes', () => {
  const ROUNDS = Number(process.env['ROUNDS'] ?? 60);

  it('leaves exactly the objects of the pods in the namespace after many kills of the platform', async () => {
    const seed = chooseSeed();
    console.log(`kills on Kubernetes: SEED=${seed}`);
    const { cluster } = await startCluster({ nodes: [GPU_NODE], secondMs: 100 });
    try {
      await runKillRounds({ cluster, rounds: ROUNDS, seed });
    } finally {
      await cluster.close();
    }
  });
});
