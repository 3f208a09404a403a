import { describe, expect, it } from 'vitest';
import { FairScheduler, oweAfterVisit } from '../../../src/base/fair-scheduler.ts';

const ofA = () => ({ group: 'users', owner: 'a' });
/** No time passes while tasks run. */
const stopped = () => 0;
const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('fair turns', () => {
  it('start a task at once outside a burst', () => {
    const scheduler = new FairScheduler(2, stopped);
    const started: string[] = [];
    scheduler.run(ofA, () => started.push('a'));
    expect(started).toEqual(['a']);
  });

  it('start a bounded number of tasks of a burst in one iteration of the event loop', async () => {
    const scheduler = new FairScheduler(3, stopped);
    let started = 0;
    for (let n = 0; n < 10; n += 1) scheduler.run(ofA, () => (started += 1));
    const counts = [started];
    while (started < 10) {
      await nextTurn();
      counts.push(started);
    }
    expect(counts).toEqual([3, 6, 9, 10]);
  });

  it('serve the owners by turns, and the tasks of one owner in order', async () => {
    const scheduler = new FairScheduler(1, stopped);
    const started: string[] = [];
    for (const name of ['a1', 'a2', 'a3', 'a4', 'b1', 'b2']) {
      scheduler.run(
        () => ({ group: 'users', owner: name.slice(0, 1) }),
        () => started.push(name),
      );
    }
    while (started.length < 6) await nextTurn();
    expect(started).toEqual(['a1', 'a2', 'b1', 'a3', 'b2', 'a4']);
  });

  it('serve the groups by turns, however many owners one has', async () => {
    const scheduler = new FairScheduler(1, stopped);
    const started: string[] = [];
    for (const name of ['first', 'x1', 'x2', 'x3', 'x4', 'user', 'probe']) {
      const group = name.startsWith('x') ? 'addresses' : name;
      scheduler.run(
        () => ({ group, owner: name }),
        () => started.push(name),
      );
    }
    while (started.length < 7) await nextTurn();
    expect(started).toEqual(['first', 'x1', 'user', 'probe', 'x2', 'x3', 'x4']);
  });

  it('count a task that a task starts', async () => {
    const scheduler = new FairScheduler(2, stopped);
    let depth = 0;
    const deepen = () => {
      depth += 1;
      if (depth < 6) scheduler.run(ofA, deepen);
    };
    scheduler.run(ofA, deepen);
    expect(depth).toBe(2);
    await nextTurn();
    expect(depth).toBe(4);
  });

  it('give two owners the same time, whatever their tasks cost', async () => {
    let now = 0;
    const scheduler = new FairScheduler(1, () => now);
    const spent = { cheap: 0, costly: 0 };
    for (let n = 0; n < 200; n += 1) {
      for (const [owner, ms] of [['costly', 1] as const, ['cheap', 0.1] as const]) {
        const task = () => {
          now += ms;
          spent[owner] += ms;
        };
        scheduler.run(() => ({ group: 'users', owner }), task);
      }
    }
    while (spent.cheap < 10) await nextTurn();
    expect(spent.costly).toBeGreaterThan(8);
    expect(spent.costly).toBeLessThan(15);
  });

  it('serve the owner that owes least first, in few visits, however much all owe', async () => {
    let now = 0;
    const scheduler = new FairScheduler(1, () => now);
    const started: string[] = [];
    const owners = Array.from({ length: 200 }, (_, n) => `${n}`);
    for (const round of ['first', 'second']) {
      for (const owner of owners) {
        const task = () => {
          // The last one owes least.
          now += owner === '199' ? 100_000 : 1_000_000;
          started.push(`${round} ${owner}`);
        };
        scheduler.run(() => ({ group: 'users', owner }), task);
      }
    }
    while (started.length < 202) await nextTurn();
    expect(started.slice(0, 200)).toEqual(owners.map((owner) => `first ${owner}`));
    // The first task of all started at once: it was not charged.
    expect(started.slice(200)).toEqual(['second 0', 'second 199']);
  });

  it('count the promises that a task settles', async () => {
    let now = 0;
    const scheduler = new FairScheduler(64, () => now);
    const ended: string[] = [];
    scheduler.run(ofA, () => {
      now += 4;
    });
    for (const name of ['a1', 'a2', 'a3', 'b1', 'b2', 'b3']) {
      const owner = name.slice(0, 1);
      void scheduler
        .take(() => ({ group: 'users', owner }))
        .then(() => Promise.resolve())
        .then(() => {
          now += owner === 'a' ? 1 : 0.05;
          ended.push(name);
        });
    }
    while (ended.length < 6) await nextTurn();
    expect(ended.toSorted()).toEqual(['a1', 'a2', 'a3', 'b1', 'b2', 'b3']);
    expect(ended.slice(-2)).toEqual(['a2', 'a3']);
  });

  it('end a batch when its time is over', async () => {
    let now = 0;
    let started = 0;
    const scheduler = new FairScheduler(64, () => now);
    for (let n = 0; n < 20; n += 1) {
      scheduler.run(ofA, () => {
        started += 1;
        now += 1;
      });
    }
    const counts = [started];
    while (started < 20) {
      await nextTurn();
      counts.push(started);
    }
    expect(counts).toEqual([4, 8, 12, 16, 20]);
  });
});

describe('the loop time that an owner owes', () => {
  it.each([
    { what: 'a cheap task', owed: 0, spent: 0.05, left: 0 },
    { what: 'a task of 1 ms', owed: 0, spent: 1, left: 0.95 },
    { what: 'a visit that passes over the owner', owed: 0.95, spent: 0, left: 0.9 },
    { what: 'the last such visit', owed: 0.02, spent: 0, left: 0 },
    { what: 'a task that began earlier', owed: 0.5, spent: 0.25, left: 0.7 },
  ])('after $what', ({ left, owed, spent }) => {
    expect(oweAfterVisit(owed, spent)).toBeCloseTo(left);
  });
});
