import { describe, expect, it } from 'vitest';
import { FairTurns } from '../../../src/base/fair-turns.ts';

const ofA = () => ({ group: 'users', owner: 'a' });
const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('fair turns', () => {
  it('start a task at once outside a burst', () => {
    const turns = new FairTurns(2);
    const started: string[] = [];
    turns.run(ofA, () => started.push('a'));
    expect(started).toEqual(['a']);
  });

  it('start a bounded number of tasks of a burst in one turn of the event loop', async () => {
    const turns = new FairTurns(3);
    let started = 0;
    for (let n = 0; n < 10; n += 1) turns.run(ofA, () => (started += 1));
    const counts = [started];
    while (started < 10) {
      await nextTurn();
      counts.push(started);
    }
    expect(counts).toEqual([3, 6, 9, 10]);
  });

  it('serve the owners by turns, and the tasks of one owner in order', async () => {
    const turns = new FairTurns(1);
    const started: string[] = [];
    for (const name of ['a1', 'a2', 'a3', 'a4', 'b1', 'b2']) {
      turns.run(
        () => ({ group: 'users', owner: name.slice(0, 1) }),
        () => started.push(name),
      );
    }
    while (started.length < 6) await nextTurn();
    expect(started).toEqual(['a1', 'a2', 'b1', 'a3', 'b2', 'a4']);
  });

  it('serve the groups by turns, however many owners one has', async () => {
    const turns = new FairTurns(1);
    const started: string[] = [];
    for (const name of ['first', 'x1', 'x2', 'x3', 'x4', 'user', 'probe']) {
      const group = name.startsWith('x') ? 'addresses' : name;
      turns.run(
        () => ({ group, owner: name }),
        () => started.push(name),
      );
    }
    while (started.length < 7) await nextTurn();
    expect(started).toEqual(['first', 'x1', 'user', 'probe', 'x2', 'x3', 'x4']);
  });

  it('count a task that a task starts', async () => {
    const turns = new FairTurns(2);
    let depth = 0;
    const deepen = () => {
      depth += 1;
      if (depth < 6) turns.run(ofA, deepen);
    };
    turns.run(ofA, deepen);
    expect(depth).toBe(2);
    await nextTurn();
    expect(depth).toBe(4);
  });
});
