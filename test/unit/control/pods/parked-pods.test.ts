// What becomes of a pod whose worker leaves its GPUs and comes back to them.
import { describe, expect, it } from 'vitest';
import {
  act,
  decideStep,
  isParked,
  observe,
  parkPod,
  returnGpus,
  settleRemoval,
  settleWake,
  terminate,
} from '../../../../src/control/pods/pod-lifecycle.ts';
import { NOW, sights, states } from '../../../support/containers/pod-states.ts';

const running = { ...states.runningGpu, endpointId: 'ep_1' };
const left = { since: NOW - 900, bytes: 7, way: 'driver' } as const;
const parked = parkPod(running, left, NOW);

describe('a parked pod', () => {
  it('runs on without GPUs, and knows which it had', () => {
    const pod = parked;
    expect(pod).toMatchObject({ gpus: [], parked: { since: NOW, gpus: ['g1'], bytes: 7 } });
    expect(isParked(pod)).toBe(true);
    expect(observe(pod, sights.running, NOW)).toBe(pod);
    expect(decideStep(pod, sights.running, NOW)).toEqual({ kind: 'none' });
  });

  it('is not parked again, nor is one that ends or has no GPUs', () => {
    const pod = parked;
    expect(parkPod(pod, left, NOW + 1)).toBe(pod);
    const ending = terminate(running, NOW);
    expect(parkPod(ending, left, NOW)).toBe(ending);
    const waiting = { ...running, gpus: [] };
    expect(parkPod(waiting, left, NOW)).toBe(waiting);
  });

  it('has its GPUs back before it is awake', () => {
    const waking = returnGpus(parked, NOW + 5_000);
    expect(waking).toMatchObject({ gpus: ['g1'], parked: { gpus: ['g1'] } });
    expect(isParked(waking)).toBe(false);
    expect(returnGpus(waking, NOW)).toBe(waking);
    const { timeline, ...awake } = settleWake(waking, NOW + 5_300);
    expect(awake).toEqual(running);
    expect(timeline).toEqual([
      { at: NOW - 900, event: 'parking' },
      { at: NOW, event: 'parked', ms: 900, bytes: 7, way: 'driver' },
      { at: NOW + 5_000, event: 'waking' },
      { at: NOW + 5_300, event: 'woken', ms: 300, bytes: 7, way: 'driver' },
    ]);
    expect(settleWake(parked, NOW)).toBe(parked);
    expect(settleWake(running, NOW)).toBe(running);
  });

  it.each([
    ['exits cleanly', sights.endedWell],
    ['crashes', sights.crashed],
    ['is gone', sights.nothing],
  ])('ends for ever if its container %s: it has no GPUs for a start', (_, seen) => {
    for (const pod of [parked, returnGpus(parked, NOW + 5_000)]) {
      const ended = observe(pod, seen, NOW + 1);
      expect(ended).toMatchObject({ status: 'EXITED', desired: 'stopped', gpus: [], failures: 0 });
      expect(ended).not.toHaveProperty('parked');
      expect(ended.reason).toBe('it ended while it was parked');
    }
  });

  it('is removed like any other', () => {
    const ended = terminate(parked, NOW);
    expect(returnGpus(ended, NOW)).toBe(ended);
    const gone = observe(ended, undefined, NOW);
    expect(settleRemoval(gone)).toMatchObject({ removed: true, gpus: [] });
  });

  it('is stopped by its user like any other', () => {
    const stopped = act(parked, 'stop', NOW);
    expect(observe(stopped, sights.endedWell, NOW)).toMatchObject({
      ...{ status: 'EXITED', gpus: [], reason: 'its user stopped it' },
    });
  });
});
