import { describe, expect, it } from 'vitest';
import type { PodState } from '../../../../src/control/pods/pod-state.ts';
import { chooseGpuTypes, countFreeGpus } from '../../../../src/control/scaling/gpu-choice.ts';
import { states } from '../pod-states.ts';

const DEVICES: Record<string, string[]> = { A: ['a0', 'a1', 'a2'], B: ['b0'] };

function podOf(gpu: string, changes: Partial<PodState>): PodState {
  const { spec, ...pod } = states.provisioning;
  return { ...pod, ...changes, spec: { ...spec, gpu: { id: gpu, count: 1 } } };
}

function countFree(...pods: PodState[]) {
  return Object.fromEntries(
    countFreeGpus(['A', 'B'], { devicesOf: (type) => DEVICES[type] ?? [], pods }),
  );
}

describe('free GPUs', () => {
  it('are those without a pod', () => {
    expect(countFree()).toEqual({ A: 3, B: 1 });
    expect(countFree(podOf('A', { gpus: ['a1'] }), podOf('B', { gpus: ['b0'] }))).toEqual({
      ...{ A: 2, B: 0 },
    });
  });

  it('exclude those that a pod is about to get', () => {
    const waiting = podOf('A', { gpus: [], desired: 'running' });
    expect(countFree(waiting)).toEqual({ A: 2, B: 1 });
    expect(countFree(waiting, waiting, waiting, waiting)).toEqual({ A: 0, B: 1 });
    expect(countFree({ ...waiting, desired: 'stopped' })).toEqual({ A: 3, B: 1 });
  });
});

it('a worker gets the first type with a free device', () => {
  const free = new Map([...Object.entries({ A: 1, B: 0, C: 2 })]);
  expect(chooseGpuTypes(free, 2)).toEqual(['A', 'C']);
  expect(chooseGpuTypes(free, 9)).toEqual(['A', 'C', 'C']);
  expect(chooseGpuTypes(new Map(), 1)).toEqual([]);
});
