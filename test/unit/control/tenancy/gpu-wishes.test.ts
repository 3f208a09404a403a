// Which GPUs an endpoint asks others for: not more than it could use.
import { describe, expect, it } from 'vitest';
import { decide } from '../../../../src/control/scaling/scaler.ts';
import { listWishes } from '../../../../src/control/tenancy/gpu-wishes.ts';
import type { ScaledWorker, ScalerInput } from '../../../../src/wire/resources/scaling.ts';

const NOW = 1_000_000;
const TYPES = ['small', 'large'];
const OUTGROWN = [{ gpuType: 'small', waiting: 1, oldestQueuedAt: NOW }];
const BUDGET = { places: 0, shortage: 'the budget is used up', budget: true } as const;
const WAITING = { running: 0, oldestQueuedAt: NOW, peak: 5, waiting: 5 };

function worker(state: ScaledWorker['state'], jobs: number): ScaledWorker {
  return { id: `w${jobs}`, state, jobs, idleSince: null, isCurrent: true, gpuType: 'small' };
}

function wish(changes: Partial<ScalerInput>, awaitsCheck = false): number[] {
  const input: ScalerInput = {
    ...{ now: NOW, type: 'QUEUE', workersMin: 0, workersMax: 3, idleTimeoutMs: 5_000 },
    ...{ scaler: { type: 'REQUEST_COUNT', perWorker: 1 }, workers: [], load: WAITING },
    ...{ lastStartAt: null, lastWant: null, places: 0 },
    ...{ crashes: { streak: 0, notBefore: 0, reason: null }, ...changes },
  };
  const given = { input, decision: decide(input), gpuTypes: TYPES, crowded: [], awaitsCheck };
  return listWishes(given).map(({ count }) => count);
}

const outgrown: Partial<ScalerInput> = {
  load: { ...WAITING, waiting: 1, outgrown: OUTGROWN },
  gpus: TYPES.map((id) => ({ id, free: 0 })),
  workers: [worker('ready', 0)],
};

describe('an endpoint asks for', () => {
  it.each<[what: string, changes: Partial<ScalerInput>, counts: number[]]>([
    ['as many GPUs as its jobs need, up to its maximum', {}, [3]],
    ['one GPU after a crash', { crashes: { streak: 2, notBefore: 0, reason: 'x' } }, [1]],
    [
      'none in a pause after a crash',
      { crashes: { streak: 2, notBefore: NOW + 1, reason: 'x' } },
      [],
    ],
    ['none in the place of a worker that drains', { workers: [worker('draining', 1)] }, [2]],
    [
      'none in the place of one that is to be parked and has a job',
      { workers: [worker('parked', 1)] },
      [2],
    ],
    ['none without budget', { headroom: BUDGET }, []],
    ['a later type for a job that needs one', outgrown, [1]],
    ['no later type without budget', { ...outgrown, headroom: BUDGET }, []],
    [
      'no later type in a pause after a crash',
      { ...outgrown, crashes: { streak: 1, notBefore: NOW + 1, reason: 'x' } },
      [],
    ],
  ])('%s', (_, changes, counts) => {
    expect(wish(changes)).toEqual(counts);
  });

  it('a GPU for the check of a version, unless its budget is used up', () => {
    const idle = { load: { ...WAITING, waiting: 0 } };
    expect(wish(idle, true)).toEqual([1]);
    expect(wish({ ...idle, headroom: BUDGET }, true)).toEqual([]);
  });
});
