// The free slots of a thread as its worker knows them, between the reports of the thread.
import { describe, expect, it } from 'vitest';
import { LaneCapacity } from '../../../../src/worker/execution/lane-state.ts';

function create() {
  const clock = { now: 1_000 };
  const batch = { maxSize: 4, maxWaitMs: 10, maxInFlight: 2 };
  const capacity = new LaneCapacity({ slots: 8, batch, now: () => clock.now });
  return { capacity, clock };
}

describe('the capacity of a lane', () => {
  it('is what its jobs leave, of single jobs', () => {
    const capacity = new LaneCapacity({ slots: 4, batch: undefined, now: () => 0 });
    capacity.send(1);
    expect([capacity.countFree(1), capacity.freeForMs, capacity.isFilling]).toEqual([
      3,
      undefined,
      false,
    ]);
  });

  it('is limited in time as soon as the first job of a batch is sent', () => {
    const { capacity, clock } = create();
    expect(capacity.freeForMs).toBeUndefined();
    capacity.send(1);
    expect([capacity.countFree(1), capacity.freeForMs, capacity.isFilling]).toEqual([7, 10, true]);
    clock.now += 4;
    capacity.send(2);
    expect([capacity.countFree(2), capacity.freeForMs]).toEqual([6, 6]);
  });

  it('is none from the start of the batch until the thread reports', () => {
    const { capacity, clock } = create();
    capacity.send(1);
    clock.now += 10;
    expect([capacity.countFree(1), capacity.freeForMs]).toEqual([0, 0]);
    capacity.report({ received: 1, free: 4, waiting: 0, fillMs: undefined });
    expect([capacity.countFree(1), capacity.freeForMs, capacity.isFilling]).toEqual([
      4,
      undefined,
      false,
    ]);
  });

  it('subtracts jobs that the thread had not received when it reported', () => {
    const { capacity } = create();
    capacity.send(1);
    capacity.send(2);
    capacity.send(3);
    capacity.report({ received: 1, free: 7, waiting: 1, fillMs: 8 });
    expect([capacity.countFree(3), capacity.freeForMs]).toEqual([5, 8]);
    capacity.report({ received: 3, free: 0, waiting: 3, fillMs: undefined });
    expect([capacity.countFree(3), capacity.freeForMs]).toEqual([0, undefined]);
  });

  it('keeps its limit in time while jobs are on their way', () => {
    const { capacity } = create();
    capacity.send(1);
    capacity.send(2);
    capacity.report({ received: 1, free: 4, waiting: 0, fillMs: undefined });
    expect(capacity.freeForMs).toBe(10);
  });

  it('never exceeds what the slots allow', () => {
    const { capacity } = create();
    for (let number = 1; number <= 8; number++) capacity.send(number);
    capacity.report({ received: 8, free: 4, waiting: 0, fillMs: undefined });
    expect(capacity.countFree(8)).toBe(0);
    expect(capacity.countFree(5)).toBe(3);
  });
});
