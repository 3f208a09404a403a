// Endpoints that take turns on GPUs: real platform and workers, with models whose every step may fail, processes that die, links
// that lose calls and a platform that restarts, over seeds. `SEED=…` repeats one, `SEEDS=…` sets their number.
import { expect, it, onTestFinished } from 'vitest';
import { playTurns } from '../../../support/containers/turns.ts';
import { chooseSeed } from '../../../support/random.ts';

const isRepeated = process.env['SEED'] !== undefined;
const COUNT = Number(process.env['SEEDS'] ?? (isRepeated ? 1 : 3));
const FIRST = chooseSeed(1);
const SEEDS = Array.from({ length: COUNT }, (_, index) => FIRST + index);

it.each(SEEDS)('no GPU has two models, and no job is lost or fails: seed %i', async (seed) => {
  const { faults } = await playTurns(seed, onTestFinished);
  expect(faults).toEqual([]);
});
