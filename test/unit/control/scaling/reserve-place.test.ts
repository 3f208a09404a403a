import { expect, it } from 'vitest';
import { reservePlace } from '../../../../src/control/scaling/version-check.ts';
import type { ScalerInput } from '../../../../src/wire/resources/scaling.ts';

const INPUT: ScalerInput = {
  ...{ now: 0, type: 'QUEUE', workersMin: 0, workersMax: 2, idleTimeoutMs: 5_000 },
  scaler: { type: 'QUEUE_DELAY', seconds: 4 },
  load: { waiting: 1, running: 0, oldestQueuedAt: 0, peak: 1 },
  ...{ workers: [], lastStartAt: null, lastWant: null, places: null },
  crashes: { streak: 0, notBefore: 0, reason: null },
};

it('takes one free GPU, of the first type that has one', () => {
  const gpus = [
    { id: 'small', free: 0 },
    { id: 'middle', free: 2 },
    { id: 'large', free: 1 },
  ];
  const reserved = reservePlace({ ...INPUT, places: 3, gpus });
  expect(reserved.places).toBe(2);
  expect(reserved.gpus?.map(({ free }) => free)).toEqual([0, 1, 1]);
});

it('leaves nothing below zero', () => {
  const headroom = { places: 0, shortage: 'no memory' };
  const reserved = reservePlace({ ...INPUT, places: 0, gpus: [{ id: 'a', free: 0 }], headroom });
  expect(reserved).toMatchObject({ places: 0, gpus: [{ free: 0 }], headroom: { places: 0 } });
});

it('changes nothing where places are not counted', () => {
  expect(reservePlace(INPUT)).toEqual(INPUT);
});
