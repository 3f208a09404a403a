import { expect, it } from 'vitest';
import { PayloadPieces } from '../../../../src/queue/payloads/large-payloads.ts';

function createRecorder() {
  const pieces = new PayloadPieces();
  const order: string[] = [];
  const run = (kind: 'input' | 'output', endpointId: string, name: string) =>
    pieces.run({ kind, endpointId }, async () => {
      order.push(name);
      await new Promise(setImmediate);
    });
  return { pieces, order, run };
}

it('large writes run one at a time, the endpoints by turns', async () => {
  const { order, run } = createRecorder();
  const names = ['a1', 'a2', 'a3', 'a4', 'b1', 'c1', 'b2'];
  await Promise.all(names.map((name) => run('input', name.slice(0, 1), name)));
  expect(order).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
});

it('outputs come before inputs, but inputs are written as well', async () => {
  const { order, run } = createRecorder();
  const inputs = ['i1', 'i2', 'i3'].map((name) => run('input', 'a', name));
  const outputs = ['o1', 'o2', 'o3', 'o4', 'o5'].map((name) => run('output', 'b', name));
  await Promise.all([...inputs, ...outputs]);
  expect(order).toEqual(['i1', 'o1', 'o2', 'o3', 'i2', 'o4', 'o5', 'i3']);
});

it('the next part of a payload gets a turn before the payloads of others with lower rank', async () => {
  const { order, run } = createRecorder();
  const upload = async () => {
    for (const name of ['o1', 'o2', 'o3']) await run('output', 'a', name);
  };
  await Promise.all([run('input', 'b', 'i1'), run('input', 'b', 'i2'), upload()]);
  expect(order).toEqual(['i1', 'o1', 'o2', 'o3', 'i2']);
});

const failures: [string, () => Promise<never>][] = [
  ['rejects', () => Promise.reject(new Error('full'))],
  [
    'throws at once',
    () => {
      throw new Error('full');
    },
  ],
];

it.each(failures)('a write that %s does not stop the ones behind it', async (_how, fail) => {
  const { order, run, pieces } = createRecorder();
  const failed = pieces.run({ kind: 'input', endpointId: 'a' }, fail);
  const second = run('input', 'a', 'a2');
  await expect(failed).rejects.toThrow('full');
  await second;
  await run('output', 'a', 'a3');
  expect(order).toEqual(['a2', 'a3']);
});
