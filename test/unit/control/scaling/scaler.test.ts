// How many workers, by cases. What holds for all cases is in scaler-laws.test.ts.
import { describe, expect, it } from 'vitest';
import { decide } from '../../../../src/control/scaling/scaler.ts';
import type { ScaledWorker, ScalerInput } from '../../../../src/wire/resources/scaling.ts';

const NOW = 1_000_000;
const DELAY = { type: 'QUEUE_DELAY', seconds: 4 } as const;
const COUNT = { type: 'REQUEST_COUNT', perWorker: 4 } as const;

type Changes = Partial<Omit<ScalerInput, 'load' | 'crashes'>> & {
  load?: Partial<ScalerInput['load']>;
  crashes?: Partial<ScalerInput['crashes']>;
};

function input({ crashes, load, ...changes }: Changes = {}): ScalerInput {
  return {
    ...{
      now: NOW,
      type: 'QUEUE',
      workersMin: 0,
      workersMax: 5,
      idleTimeoutMs: 5_000,
      scaler: DELAY,
    },
    ...{ workers: [], lastStartAt: null, lastWant: null, places: null },
    ...changes,
    load: { waiting: 0, running: 0, oldestQueuedAt: null, peak: 0, ...load },
    crashes: { streak: 0, notBefore: 0, reason: null, ...crashes },
  };
}

const waiting = (count: number, waitedMs: number) => ({
  waiting: count,
  oldestQueuedAt: NOW - waitedMs,
});

function worker(id: string, changes: Partial<ScaledWorker> = {}): ScaledWorker {
  return { id, state: 'ready', jobs: 0, idleSince: null, isCurrent: true, ...changes };
}

const busy = (id: string, changes: Partial<ScaledWorker> = {}) =>
  worker(id, { jobs: 1, ...changes });
const idle = (id: string, idleMs: number, changes: Partial<ScaledWorker> = {}) =>
  worker(id, { idleSince: NOW - idleMs, ...changes });
const starting = (id: string) => worker(id, { state: 'starting' });
const draining = (id: string, changes: Partial<ScaledWorker> = {}) =>
  worker(id, { state: 'draining', jobs: 1, ...changes });
const old = { isCurrent: false };
const parked = (id: string, ms: number, changes: object = {}) =>
  worker(id, {
    ...{ state: 'parked', idleSince: NOW },
    parking: { since: NOW - ms, canWake: false, lacksMemory: false, ...changes },
  });
/** A spare worker that still has its GPU. */
const coming = (id: string, ms = 10) => parked(id, ms, { canWake: true, isStarting: true });
const give = (worker: string, isTurnOver = false) => ({
  ...{ worker, to: 'image', since: NOW - 200, isTurnOver },
});

interface Case {
  when: string;
  given: Changes;
  decision: {
    want?: number;
    start: number;
    drain: string[];
    park?: string[];
    wake?: string[];
    startSpares?: number;
    cause: string;
  };
}

const cases: Case[] = [
  {
    when: 'there is nothing to do and nobody there',
    given: {},
    decision: { want: 0, start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'the first job comes',
    given: { load: waiting(1, 0) },
    decision: { want: 1, start: 1, drain: [], cause: 'first' },
  },
  {
    when: 'many jobs come at once: still one, until they have waited',
    given: { load: waiting(200, 0) },
    decision: { want: 1, start: 1, drain: [], cause: 'first' },
  },
  {
    when: 'a job waits, not too long yet',
    given: { load: waiting(3, 4_000), workers: [busy('a')] },
    decision: { want: 1, start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'a job waits too long: twice as many',
    given: { load: waiting(3, 4_001), workers: [busy('a'), busy('b')] },
    decision: { want: 4, start: 2, drain: [], cause: 'delay' },
  },
  {
    when: 'a job waits too long: never more than there are jobs for',
    given: { load: waiting(1, 60_000), workers: [busy('a'), busy('b'), busy('c')] },
    decision: { want: 4, start: 1, drain: [], cause: 'delay' },
  },
  {
    when: 'a job waits too long, and the workers that are there have nothing to do',
    given: { load: waiting(1, 60_000), workers: [worker('a'), worker('b')] },
    decision: { want: 2, start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'one is on its way that may be enough',
    given: {
      ...{ load: waiting(30, 9_000), workers: [busy('a'), starting('b')] },
      lastStartAt: NOW - 3_999,
    },
    decision: { want: 2, start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'one has been on its way for too long',
    given: {
      ...{ load: waiting(30, 9_000), workers: [busy('a'), starting('b')] },
      lastStartAt: NOW - 4_000,
    },
    decision: { want: 4, start: 2, drain: [], cause: 'delay' },
  },
  {
    when: 'there are as many as there may be',
    given: { workersMax: 2, load: waiting(30, 9_000), workers: [busy('a'), busy('b')] },
    decision: { want: 2, start: 0, drain: [], cause: 'at_maximum' },
  },
  {
    when: 'there are as many as there may be, those that leave included',
    given: { workersMax: 2, load: waiting(3, 0), workers: [draining('a'), draining('b')] },
    decision: { want: 1, start: 0, drain: [], cause: 'at_maximum' },
  },
  {
    when: 'some are to be kept warm',
    given: { workersMin: 2, workers: [idle('a', 60_000)] },
    decision: { want: 2, start: 1, drain: [], cause: 'minimum' },
  },
  {
    when: 'some have had nothing to do for long enough: the longest idle go',
    given: { workersMin: 1, workers: [idle('a', 5_000), idle('b', 9_000), idle('c', 7_000)] },
    decision: { want: 1, start: 0, drain: ['b', 'c'], cause: 'idle' },
  },
  {
    when: 'they have not had nothing to do for long enough',
    given: { workers: [idle('a', 4_999), busy('b')] },
    decision: { want: 1, start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'one is idle while a job waits that it does not take',
    given: { load: waiting(1, 100), workers: [idle('a', 60_000), busy('b')] },
    decision: { start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'none may be there any more: those with the least to do go, and those not ready first',
    given: {
      workersMax: 1,
      workers: [busy('a'), worker('b', { jobs: 3 }), idle('c', 10), starting('d')],
    },
    decision: { want: 1, start: 0, drain: ['d', 'c', 'a'], cause: 'above_maximum' },
  },
  {
    when: 'the endpoint is switched off',
    given: { workersMax: 0, load: waiting(3, 9_000), workers: [busy('a')] },
    decision: { want: 0, start: 0, drain: ['a'], cause: 'above_maximum' },
  },
  {
    when: 'it is by count, and nobody is there',
    given: { scaler: COUNT, load: { waiting: 9, running: 0, peak: 9 } },
    decision: { want: 3, start: 3, drain: [], cause: 'first' },
  },
  {
    when: 'it is by count, and more come',
    given: { scaler: COUNT, load: { waiting: 1, running: 4, peak: 5 }, workers: [busy('a')] },
    decision: { want: 2, start: 1, drain: [], cause: 'count' },
  },
  {
    when: 'it is by count, and those that are there are on their way',
    given: {
      scaler: COUNT,
      load: { waiting: 5, running: 0, peak: 5 },
      workers: [starting('a'), starting('b')],
    },
    decision: { want: 2, start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'a balancer has few requests now, and had more within the idle timeout',
    given: {
      ...{ scaler: COUNT, type: 'LOAD_BALANCER' },
      load: { running: 1, peak: 5 },
      workers: [busy('a'), idle('b', 100), idle('c', 300)],
    },
    decision: { want: 1, start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'a balancer has had so few requests for the idle timeout that half as many would do',
    given: {
      ...{ scaler: COUNT, type: 'LOAD_BALANCER' },
      load: { running: 1, peak: 2 },
      workers: [busy('a'), idle('b', 100), idle('c', 300)],
    },
    decision: { want: 1, start: 0, drain: ['c', 'b'], cause: 'surplus' },
  },
  {
    when: 'a balancer has few requests, the least of which any one worker could have',
    given: {
      ...{ scaler: COUNT, type: 'LOAD_BALANCER', load: { peak: 1 } },
      workers: [idle('a', 100), idle('b', 300)],
    },
    decision: { want: 0, start: 0, drain: ['b'], cause: 'surplus' },
  },
  {
    when: 'a queue by count has few jobs, spread over all workers',
    given: {
      scaler: COUNT,
      load: { running: 1, peak: 2 },
      workers: [busy('a'), idle('b', 100), idle('c', 300)],
    },
    decision: { want: 1, start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'it is by count, and nothing has come for the idle timeout',
    given: { scaler: COUNT, load: {}, workers: [idle('a', 6_000), idle('b', 5_000)] },
    decision: { want: 0, start: 0, drain: ['a', 'b'], cause: 'idle' },
  },
  {
    when: 'there are GPUs for fewer',
    given: { scaler: COUNT, load: { waiting: 12, peak: 12 }, places: 2 },
    decision: { want: 3, start: 2, drain: [], cause: 'first' },
  },
  {
    when: 'there is no GPU',
    given: { load: waiting(1, 0), places: 0 },
    decision: { want: 1, start: 0, drain: [], cause: 'no_gpu' },
  },
  {
    when: 'the machine has capacity for fewer',
    given: {
      ...{ scaler: COUNT, load: { waiting: 12, peak: 12 } },
      headroom: { places: 2, shortage: 'memory' },
    },
    decision: { want: 3, start: 2, drain: [], cause: 'first' },
  },
  {
    when: 'the machine is full',
    given: { load: waiting(1, 0), headroom: { places: 0, shortage: 'memory' } },
    decision: { want: 1, start: 0, drain: [], cause: 'no_capacity' },
  },
  {
    when: 'a budget is used up',
    given: {
      load: waiting(1, 0),
      headroom: { places: 0, shortage: 'the budget "b" is used up', budget: true },
    },
    decision: { want: 1, start: 0, drain: [], cause: 'budget' },
  },
  {
    when: 'the last one crashed just now',
    given: {
      load: waiting(1, 0),
      crashes: { streak: 3, notBefore: NOW + 1, reason: 'it exited with code 1' },
    },
    decision: { want: 1, start: 0, drain: [], cause: 'crashed' },
  },
  {
    when: 'the pause after a crash is over: one on trial',
    given: { workersMin: 3, crashes: { streak: 3, notBefore: NOW } },
    decision: { want: 3, start: 1, drain: [], cause: 'minimum' },
  },
  {
    when: 'one is on trial',
    given: { workersMin: 3, workers: [starting('a')], crashes: { streak: 3, notBefore: NOW } },
    decision: { want: 3, start: 0, drain: [], cause: 'crashed' },
  },
  {
    when: 'all are old: new ones first, one more than the maximum',
    given: { workersMax: 3, workers: [busy('a', old), busy('b', old), busy('c', old)] },
    decision: { want: 3, start: 1, drain: [], cause: 'rolling' },
  },
  {
    when: 'a new one is ready: the old one with the least to do goes',
    given: {
      workersMax: 3,
      lastWant: 3,
      workers: [
        worker('a', { ...old, jobs: 2 }),
        busy('b', old),
        worker('c', { ...old, jobs: 2 }),
        busy('d'),
      ],
    },
    decision: { drain: ['b'], start: 0, cause: 'rolling' },
  },
  {
    when: 'a new one is on its way: the old ones stay',
    given: {
      workersMax: 3,
      lastWant: 3,
      workers: [busy('a', old), busy('b', old), busy('c', old), starting('d')],
    },
    decision: { want: 3, drain: [], start: 0, cause: 'rolling' },
  },
  {
    when: 'old and new ones are there, and jobs wait: no more than were wanted before',
    given: {
      ...{ workersMax: 9, lastWant: 2, load: waiting(8, 100) },
      workers: [busy('a', old), busy('b', old), starting('c'), starting('d')],
    },
    decision: { want: 2, drain: [], start: 0, cause: 'enough' },
  },
  {
    when: 'all are old and have nothing to do: they just go',
    given: { workers: [idle('a', 10, old), idle('b', 20, old)] },
    decision: { want: 0, start: 0, drain: ['b', 'a'], cause: 'rolling' },
  },
  {
    when: 'one old one is to be kept warm: not before a new one is there',
    given: { workersMin: 1, workersMax: 1, workers: [idle('a', 60_000, old)] },
    decision: { want: 1, start: 1, drain: [], cause: 'rolling' },
  },
  {
    when: 'all are old and have all the GPUs: one goes before a new one comes',
    given: {
      ...{ workersMax: 2, places: 0, lastWant: 2 },
      workers: [busy('a', old), worker('b', { ...old, jobs: 2 })],
    },
    decision: { want: 2, start: 0, drain: ['a'], cause: 'rolling' },
  },
  {
    when: 'an old one is about to leave its GPU',
    given: {
      ...{ workersMax: 2, places: 0, lastWant: 2 },
      workers: [busy('a', old), draining('b', old)],
    },
    decision: { start: 0, drain: [], cause: 'no_gpu' },
  },
  {
    when: 'another endpoint waits for the GPU of an idle one',
    given: { workers: [idle('a', 10), idle('b', 20)], giveWay: [give('a')] },
    decision: { want: 0, start: 0, drain: ['a'], cause: 'gives_way' },
  },
  {
    when: 'it has got a job meanwhile',
    given: { workers: [busy('a')], giveWay: [give('a')] },
    decision: { start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'a job for it has come meanwhile',
    given: { workers: [idle('a', 10)], load: waiting(1, 0), giveWay: [give('a')] },
    decision: { start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'the turn of a busy one is over',
    given: { workers: [busy('a')], load: waiting(9, 0), giveWay: [give('a', true)] },
    decision: { want: 1, start: 0, drain: ['a'], cause: 'gives_way' },
  },
  {
    when: 'it drains already',
    given: { workers: [draining('a')], giveWay: [give('a', true)] },
    decision: { start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'the one that gives way can be parked',
    given: {
      ...{ parkMs: 60_000, giveWay: [give('a')] },
      workers: [idle('a', 10, { canPark: true }), idle('b', 20)],
    },
    decision: { start: 0, drain: [], park: ['a'], cause: 'gives_way' },
  },
  {
    when: 'of the idle ones, some can be parked',
    given: { parkMs: 60_000, workers: [idle('a', 5_000, { canPark: true }), idle('b', 5_000)] },
    decision: { want: 0, start: 0, drain: ['b'], park: ['a'], cause: 'idle' },
  },
  {
    when: 'those above the maximum can be parked: they end all the same',
    given: { parkMs: 60_000, workersMax: 0, workers: [idle('a', 10, { canPark: true })] },
    decision: { want: 0, start: 0, drain: ['a'], cause: 'above_maximum' },
  },
  {
    when: 'a job comes, and the GPU of a parked one is free',
    given: { parkMs: 60_000, workers: [parked('a', 10, { canWake: true })], load: waiting(1, 0) },
    decision: { want: 1, start: 0, drain: [], wake: ['a'], cause: 'first' },
  },
  {
    when: 'two parked ones can wake, and one is enough: the last one that was parked',
    given: {
      ...{ parkMs: 60_000, load: waiting(1, 0) },
      workers: [parked('a', 10, { canWake: true }), parked('b', 20, { canWake: true })],
    },
    decision: { start: 0, drain: [], wake: ['a'], cause: 'first' },
  },
  {
    when: 'two are needed, and the GPU of the parked one is the only free one',
    given: {
      ...{ parkMs: 60_000, places: 1, scaler: COUNT, load: waiting(8, 0) },
      workers: [parked('a', 10, { canWake: true })],
    },
    decision: { want: 2, start: 0, drain: [], wake: ['a'], cause: 'first' },
  },
  {
    when: 'the GPU of the parked one is not free, and no other is',
    given: { parkMs: 60_000, places: 0, workers: [parked('a', 10)], load: waiting(1, 0) },
    decision: { want: 1, start: 0, drain: [], cause: 'no_gpu' },
  },
  {
    when: 'the GPU of the parked one is not free, but another is',
    given: {
      ...{ parkMs: 60_000, places: 1, workersMax: 1, load: waiting(1, 0) },
      workers: [parked('a', 10)],
    },
    decision: { want: 1, start: 1, drain: [], cause: 'first' },
  },
  {
    when: 'a new one has taken the place of the parked one',
    given: { parkMs: 60_000, workersMax: 1, workers: [parked('a', 10), busy('b')] },
    decision: { want: 1, start: 0, drain: ['a'], cause: 'parked_ends' },
  },
  {
    when: 'one has been parked for too long, one is old, and one has no memory',
    given: {
      ...{ parkMs: 60_000, workersMax: 9 },
      workers: [
        ...[parked('a', 60_000), { ...parked('b', 10), ...old }],
        ...[parked('c', 10, { lacksMemory: true }), parked('d', 10)],
      ],
    },
    decision: { start: 0, drain: ['a', 'b', 'c'], cause: 'parked_ends' },
  },
  {
    when: 'one that is to be parked still runs a job: it counts, and does not end',
    given: {
      ...{ parkMs: 60_000, workersMax: 1, places: 1, load: waiting(1, 0) },
      workers: [{ ...parked('a', 0), jobs: 1 }],
    },
    decision: { start: 0, drain: [], cause: 'at_maximum' },
  },
  {
    when: 'one that is to be parked is old and still runs a job: it does not end',
    given: { parkMs: 60_000, workers: [{ ...parked('a', 0), ...old, jobs: 1 }] },
    decision: { start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'a spare worker is missing, and a GPU is free',
    given: { spares: { count: 2 }, places: 1, workers: [busy('a'), parked('b', 10)] },
    decision: { want: 1, start: 0, startSpares: 1, drain: [], cause: 'spare' },
  },
  {
    when: 'a spare worker is missing, and no GPU is free',
    given: { spares: { count: 1 }, places: 0 },
    decision: { start: 0, drain: [], cause: 'no_spare' },
  },
  {
    when: 'a spare worker is missing, and none can be parked',
    given: { spares: { count: 1, obstacle: 'its model offers no way' }, places: 1 },
    decision: { start: 0, drain: [], cause: 'no_spare' },
  },
  {
    when: 'a spare worker is missing, and a budget is used up',
    given: {
      ...{ spares: { count: 1 }, places: 1 },
      headroom: { places: 0, shortage: 'the budget is used up', budget: true },
    },
    decision: { start: 0, drain: [], cause: 'no_spare' },
  },
  {
    when: 'two spare workers are missing, and the first one still starts',
    given: { spares: { count: 2 }, parkMs: 60_000, places: 1, workers: [coming('a')] },
    decision: { start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'a spare worker and one for a job are missing: the job comes first',
    given: { spares: { count: 1 }, places: 1, load: waiting(1, 0) },
    decision: { want: 1, start: 1, drain: [], cause: 'first' },
  },
  {
    when: 'a spare worker is missing, and workers crash',
    given: { spares: { count: 1 }, places: 1, crashes: { streak: 1, notBefore: NOW + 500 } },
    decision: { start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'a job comes while its spare worker still starts: it is no longer spare',
    given: { spares: { count: 1 }, places: 0, workers: [coming('a')], load: waiting(1, 0) },
    decision: { want: 1, start: 0, drain: [], wake: ['a'], cause: 'first' },
  },
  {
    when: 'one of the spare workers is parked, and the other one still starts',
    given: {
      ...{ spares: { count: 2 }, parkMs: 60_000, places: 1, load: waiting(1, 0) },
      workers: [parked('a', 99_000, { canWake: true }), coming('b')],
    },
    decision: { start: 0, drain: [], wake: ['a'], cause: 'first' },
  },
  {
    when: 'others wait for the GPU of a spare worker that starts',
    given: { spares: { count: 1 }, parkMs: 60_000, workers: [coming('a')], giveWay: [give('a')] },
    decision: { start: 0, drain: ['a'], cause: 'gives_way' },
  },
  {
    when: 'others wait for the GPU of a spare worker, and so does a job of its own',
    given: {
      ...{ spares: { count: 1 }, parkMs: 60_000, workers: [coming('a')] },
      ...{ giveWay: [give('a')], load: waiting(1, 0) },
    },
    decision: { start: 0, drain: [], wake: ['a'], cause: 'first' },
  },
  {
    when: 'spare workers have been parked for long: only those beyond spareWorkers end',
    given: {
      ...{ spares: { count: 2 }, parkMs: 60_000 },
      workers: [parked('a', 99_000), parked('b', 98_000), parked('c', 97_000)],
    },
    decision: { start: 0, drain: ['a'], cause: 'parked_ends' },
  },
  {
    when: 'a job comes in the moment in which the time of the parked one is over',
    given: {
      ...{ parkMs: 60_000, load: waiting(1, 0) },
      workers: [parked('a', 60_000, { canWake: true })],
    },
    decision: { want: 1, start: 0, drain: [], wake: ['a'], cause: 'first' },
  },
  {
    when: 'spare workers are parked beside the maximum of workers',
    given: {
      ...{ spares: { count: 2 }, parkMs: 60_000, workersMax: 1 },
      workers: [busy('a'), parked('b', 10), parked('c', 10)],
    },
    decision: { start: 0, drain: [], cause: 'enough' },
  },
  {
    when: 'parkSeconds is 0: idle workers are parked only as spare ones',
    given: {
      ...{ spares: { count: 1 }, parkMs: 0 },
      workers: [idle('a', 9_000, { canPark: true }), idle('b', 8_000, { canPark: true })],
    },
    decision: { start: 0, drain: ['b'], park: ['a'], cause: 'idle' },
  },
  {
    when: 'the new ones crash: the old ones stay',
    given: {
      ...{ workersMax: 2, lastWant: 2, crashes: { streak: 1, notBefore: NOW + 500 } },
      workers: [busy('a', old), busy('b', old)],
    },
    decision: { want: 2, start: 0, drain: [], cause: 'crashed' },
  },
];

describe('the scaler', () => {
  it.each(cases)('when $when', ({ given, decision }) => {
    expect(decide(input(given))).toMatchObject(decision);
  });

  it('gives the reason in one sentence with the numbers', () => {
    const reasonOf = (given: Changes) => decide(input(given)).reason;
    expect(reasonOf({ load: waiting(3, 5_200), workers: [busy('a')] })).toBe(
      '3 jobs waiting, the oldest for 5.2 s, over 4 s: starting 1 worker, 2 of at most 5',
    );
    expect(reasonOf({ load: { ...waiting(1, 0), running: 2 } })).toBe(
      '1 job waiting, 2 running, no worker: starting 1 worker, 1 of at most 5',
    );
    expect(reasonOf({ workers: [idle('a', 5_000), idle('b', 5_000)] })).toBe(
      'idle for 5 s: draining 2 workers, 0 of at most 5',
    );
    expect(reasonOf({ workers: [busy('a')], giveWay: [give('a', true)] })).toBe(
      'jobs of endpoint image wait for a GPU, and the turn of this endpoint is over: draining 1 worker, 0 of at most 5',
    );
    const wakes = parked('a', 10, { canWake: true });
    expect(reasonOf({ parkMs: 60_000, workers: [wakes], load: waiting(1, 0) })).toBe(
      '1 job waiting, no worker: waking 1 worker, 1 of at most 5',
    );
    expect(reasonOf({ parkMs: 60_000, workers: [parked('a', 90_000)] })).toBe(
      'ending 1 parked worker: parked for 60 s, outdated, or beyond workersMax',
    );
    expect(reasonOf({ spares: { count: 2 }, workers: [parked('a', 10)] })).toBe(
      'spareWorkers is 2, 1 parked: starting 1 spare worker',
    );
    expect(reasonOf({ spares: { count: 1, obstacle: 'its model offers no way' } })).toBe(
      'spareWorkers is 1, 0 parked, and none starts: its model offers no way',
    );
    expect(reasonOf({ spares: { count: 1 }, places: 0 })).toBe(
      "spareWorkers is 1, 0 parked, and none starts: no GPU of the endpoint's types is free",
    );
    expect(reasonOf({ workers: [coming('a')], giveWay: [give('a')] })).toBe(
      'jobs of endpoint image wait for a GPU, and this endpoint has a spare worker that starts: draining 1 worker, 0 of at most 5',
    );
    const reason = 'it exited with code 1';
    const crashes = { streak: 3, notBefore: NOW + 4_000, reason };
    expect(reasonOf({ workersMin: 1, crashes })).toBe(
      '3 workers in a row failed: it exited with code 1; next start in 4 s',
    );
  });
});
