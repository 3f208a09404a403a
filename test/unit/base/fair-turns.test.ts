import { describe, expect, it } from 'vitest';
import { FairTurns } from '../../../src/base/fair-turns.ts';

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('fair turns', () => {
  it('start a task at once outside a burst', () => {
    const turns = new FairTurns(2);
    const started: string[] = [];
    turns.run('a', () => started.push('a'));
    expect(started).toEqual(['a']);
  });

  it('start a bounded number of tasks of a burst in one turn of the event loop', async () => {
    const turns = new FairTurns(3);
    let started = 0;
    for (let n = 0; n < 10; n += 1) turns.run('a', () => (started += 1));
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
      turns.run(name.slice(0, 1), () => started.push(name));
    }
    while (started.length < 6) await nextTurn();
    expect(started).toEqual(['a1', 'a2', 'b1', 'a3', 'b2', 'a4']);
  });

  it('count a task that a task starts', async () => {
    const turns = new FairTurns(2);
    let depth = 0;
    const deepen = () => {
      depth += 1;
      if (depth < 6) turns.run('a', deepen);
    };
    turns.run('a', deepen);
    expect(depth).toBe(2);
    await nextTurn();
    expect(depth).toBe(4);
  });
});
