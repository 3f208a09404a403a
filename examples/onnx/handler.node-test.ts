import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHarness } from 'millrace/testing';
import { z } from 'zod';
import handler from './handler.ts';
import { BIAS, DENSE, FILTERS, LABELS } from './network.ts';

const result = z.object({ label: z.enum(LABELS), probability: z.number(), batchSize: z.int() });

/** The network without ONNX Runtime: convolution, ReLU, mean, dense layer, softmax. */
function compute(rows: readonly string[]): number[] {
  const pixelAt = (row: number, column: number) => Number(rows[row]?.[column] === '#');
  const [height, width] = [rows.length - 2, (rows[0]?.length ?? 0) - 2];
  const means = FILTERS.map((filter) => {
    let sum = 0;
    for (let place = 0; place < height * width; place++) {
      const [row, column] = [Math.floor(place / width), place % width];
      const response = filter.reduce(
        (total, weight, index) =>
          total + weight * pixelAt(row + Math.floor(index / 3), column + (index % 3)),
        0,
      );
      sum += Math.max(0, response);
    }
    return sum / (height * width);
  });
  const exponentials = BIAS.map((bias, column) =>
    Math.exp(means.reduce((sum, mean, row) => sum + mean * (DENSE[row]?.[column] ?? 0), bias)),
  );
  const total = exponentials.reduce((sum, value) => sum + value);
  return exponentials.map((value) => value / total);
}

/** Pictures of many sizes, the same in each run. */
function* drawPictures(count: number) {
  let state = 1;
  const draw = (below: number) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % below;
  };
  for (let index = 0; index < count; index++) {
    const [height, width] = [3 + draw(3), 3 + draw(3)];
    const drawRow = () => Array.from({ length: width }, () => '.#'[draw(2)]).join('');
    yield { rows: Array.from({ length: height }, drawRow) };
  }
}

test('computes the same probabilities as plain code, in batches of pictures of one size', async () => {
  await using harness = await createHarness({ handler });
  const pictures = [...drawPictures(100)];
  const records = await harness.runBatch(pictures);
  const batchSizes = new Set<number>();
  for (const [index, { output }] of records.entries()) {
    const { batchSize, label, probability } = result.parse(output);
    const probabilities = compute(pictures[index]?.rows ?? []);
    // Of equally likely labels, either is right.
    const highest = Math.max(...probabilities);
    assert(highest - (probabilities[LABELS.indexOf(label)] ?? 0) < 1e-6);
    assert(Math.abs(probability - highest) < 0.0006);
    batchSizes.add(batchSize);
  }
  assert(batchSizes.size > 1);
});

test('names the direction of a line', async () => {
  await using harness = await createHarness({ handler });
  const pictures = {
    horizontal: ['.....', '#####', '.....', '.....'],
    vertical: ['.#..', '.#..', '.#..', '.#..', '.#..'],
    falling: ['#....', '.#...', '..#..', '...#.', '....#'],
    rising: ['....#', '...#.', '..#..', '.#...', '#....'],
  };
  for (const [label, rows] of Object.entries(pictures)) {
    assert.partialDeepStrictEqual(await harness.run({ rows }), { label, batchSize: 1 });
  }
});

test('refuses a picture with rows of different lengths', async () => {
  await using harness = await createHarness({ handler });
  await assert.rejects(
    harness.run({ rows: ['...', '...', '..#.'] }),
    /rows must have the same length/,
  );
});
