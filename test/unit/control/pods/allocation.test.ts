// Who gets which GPUs.
import { describe, expect, it } from 'vitest';
import { allocateGpus, type GpuWish } from '../../../../src/control/limits/capacity.ts';

const devices = ['a', 'b', 'c', 'd'];

function wish(podId: string, count: number, among: readonly string[] | null = null): GpuWish {
  return { podId, count, among };
}

function allocate(wishes: GpuWish[], held: string[] = []) {
  return Object.fromEntries(allocateGpus({ devices, held: new Set(held), wishes }));
}

describe('GPUs', () => {
  it('are assigned in the order of requests, each once', () => {
    expect(allocate([wish('one', 2), wish('two', 1), wish('three', 1)])).toEqual({
      one: ['a', 'b'],
      two: ['c'],
      three: ['d'],
    });
  });

  it('are not assigned while another pod holds them', () => {
    expect(allocate([wish('one', 2)], ['a', 'c'])).toEqual({ one: ['b', 'd'] });
    expect(allocate([wish('one', 3)], ['a', 'c'])).toEqual({});
  });

  it('are reserved for a large request that came before small ones', () => {
    expect(allocate([wish('large', 3), wish('small', 1)], ['a', 'b'])).toEqual({});
  });

  it('are those that a pod is bound to, or none at all', () => {
    expect(allocate([wish('bound', 2, ['b', 'c'])])).toEqual({ bound: ['b', 'c'] });
    expect(allocate([wish('bound', 2, ['b', 'c'])], ['b'])).toEqual({});
    expect(allocate([wish('bound', 2, ['b'])])).toEqual({});
    expect(allocate([wish('bound', 1, ['x'])])).toEqual({});
  });

  it('do not wait for a pod that is bound to other GPUs', () => {
    const wishes = [wish('bound', 1, ['a']), wish('any', 1)];
    expect(allocate(wishes, ['a'])).toEqual({ any: ['b'] });
  });

  it('of a bound pod are not assigned to the next', () => {
    expect(allocate([wish('bound', 1, ['a']), wish('any', 1)])).toEqual({
      bound: ['a'],
      any: ['b'],
    });
  });
});
