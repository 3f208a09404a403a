import { describe, expect, it } from 'vitest';
import { runInSlices, yieldToLoop, yieldToUrgent } from '../../../src/base/slices.ts';

const done: string[] = [];

function* count(name: string, slices: number): Generator<void, string> {
  for (let slice = 1; slice < slices; slice += 1) yield;
  done.push(name);
  return name;
}

describe('work in slices', () => {
  it('has ended when the call returns if it ends within its first slice', async () => {
    const ended = runInSlices('me', count('short', 1));
    expect(done.splice(0)).toEqual(['short']);
    expect(await ended).toBe('short');
  });

  it('takes turns between owners, and keeps the order of each', async () => {
    await Promise.all([
      runInSlices('a', count('a1', 20)),
      runInSlices('a', count('a2', 20)),
      runInSlices('a', count('a3', 20)),
      runInSlices('b', count('b1', 22)),
    ]);
    expect(done.splice(0)).toEqual(['a1', 'b1', 'a2', 'a3']);
  });

  it('runs one slice per iteration of the event loop, however much is pending', async () => {
    let slices = 0;
    const counts: number[] = [];
    function* observed(): Generator<void, void> {
      for (let slice = 0; slice < 6; slice += 1) {
        slices += 1;
        yield;
      }
    }
    const all = Promise.all(['a', 'b', 'c'].map((owner) => runInSlices(owner, observed())));
    const observe = () => {
      counts.push(slices);
      if (slices < 18) setImmediate(observe);
    };
    setImmediate(observe);
    await all;
    const steps = counts.map((value, at) => value - (counts[at - 1] ?? 3));
    expect(Math.max(...steps)).toBe(1);
  });

  it('rejects if it fails, and other work continues', async () => {
    function* failing(): Generator<void, void> {
      yield;
      throw new Error('no');
    }
    const other = runInSlices('me', count('other', 3));
    await expect(runInSlices('me', failing())).rejects.toThrow('no');
    expect(await other).toBe('other');
    done.splice(0);
  });
});

it('gives an iteration of the event loop to one caller alone', async () => {
  let turn = 0;
  let isOver = false;
  const countIterations = () => {
    turn += 1;
    if (!isOver) setImmediate(countIterations);
  };
  setImmediate(countIterations);
  const turns = await Promise.all(Array.from({ length: 5 }, () => yieldToLoop().then(() => turn)));
  isOver = true;
  expect(new Set(turns).size).toBe(5);
});

describe('what yields to urgent work', () => {
  it('waits for the promise callbacks that follow, but for no iteration of the event loop', async () => {
    const order: string[] = [];
    setImmediate(() => order.push('next phase'));
    const urgent = async () => {
      for (let step = 0; step < 100; step += 1) await undefined;
      order.push('urgent');
    };
    const yielded = yieldToUrgent().then(() => order.push('yielded'));
    await Promise.all([yielded, Promise.resolve().then(urgent)]);
    expect(order).toEqual(['urgent', 'yielded']);
  });
});
