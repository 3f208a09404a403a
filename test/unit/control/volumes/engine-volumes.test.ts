// Network volumes that grow: what the engine is told, and how often.
import { expect, it } from 'vitest';
import { silentLog as log } from '../../../../src/base/log.ts';
import { VolumeGrowth } from '../../../../src/control/volumes/engine-volumes.ts';
import { EngineError } from '../../../../src/engine/engine.ts';

function openEngine() {
  const calls: [string, number][] = [];
  const state = { running: 0, most: 0, isBroken: false };
  const volumes = {
    remove: async () => {},
    async grow(source: string, sizeGb: number) {
      calls.push([source, sizeGb]);
      state.most = Math.max(state.most, ++state.running);
      await new Promise((resolve) => setImmediate(resolve));
      state.running--;
      if (state.isBroken) throw new EngineError('unavailable', 'no node answers');
    },
  };
  return { calls, growth: new VolumeGrowth({ volumes, log }), state };
}

it('calls the engine once at a time, and once for all sizes that wait', async () => {
  const { calls, growth, state } = openEngine();
  const grown = [growth.grow('a', 1)];
  for (let sizeGb = 2; sizeGb <= 1_000; sizeGb++) grown.push(growth.grow('a', sizeGb));
  grown.push(growth.grow('b', 7));
  await Promise.all(grown);
  expect(calls).toEqual([
    ['a', 1],
    ['a', 1_000],
    ['b', 7],
  ]);
  expect(state.most).toBe(1);
});

it('goes on after an engine that does not answer', async () => {
  const { calls, growth, state } = openEngine();
  state.isBroken = true;
  await growth.grow('a', 2);
  state.isBroken = false;
  await growth.grow('a', 3);
  expect(calls).toEqual([
    ['a', 2],
    ['a', 3],
  ]);
});

it('has nothing to do for an engine whose volumes do not grow', async () => {
  await new VolumeGrowth({ volumes: undefined, log }).grow('a', 2);
});
