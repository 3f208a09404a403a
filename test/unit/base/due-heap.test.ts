import { describe, expect, it } from 'vitest';
import { DueHeap } from '../../../src/base/due-heap.ts';
import { createRandom } from '../../support/random.ts';

describe('a heap of due items', () => {
  it('lists the first due items, and keeps them', () => {
    const heap = new DueHeap<string>();
    for (const [item, at] of [
      ['c', 30],
      ['a', 10],
      ['b', 20],
    ] as const)
      heap.set(item, at);
    expect(heap.list(20, 9)).toEqual(['a', 'b']);
    expect(heap.list(99, 2)).toEqual(['a', 'b']);
    expect(heap.firstAt).toBe(10);
    expect(heap.size).toBe(3);
  });

  it('is empty without items', () => {
    const heap = new DueHeap<string>();
    heap.delete('a');
    expect(heap.firstAt).toBe(Number.POSITIVE_INFINITY);
    expect(heap.list(99, 9)).toEqual([]);
  });

  it('agrees with a sorted list after any changes', () => {
    const random = createRandom(1);
    const int = (below: number) => Math.floor(random() * below);
    const heap = new DueHeap<number>();
    const times = new Map<number, number>();
    for (let step = 0; step < 5_000; step++) {
      const item = int(60);
      if (int(3) === 0) {
        heap.delete(item);
        times.delete(item);
      } else {
        // No two are equal, so that the order is certain.
        const at = int(1_000) + item / 100;
        heap.set(item, at);
        times.set(item, at);
      }
      const now = int(1_000);
      const due = [...times].filter(([, at]) => at <= now).sort(([, a], [, b]) => a - b);
      expect(heap.list(now, 5)).toEqual(due.slice(0, 5).map(([each]) => each));
      expect(heap.size).toBe(times.size);
    }
  });
});
