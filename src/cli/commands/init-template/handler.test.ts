import { createHarness, type Harness } from 'millrace/testing';
import { afterEach, beforeEach, expect, test } from 'vitest';
import handler from './handler.ts';

let harness: Harness;

beforeEach(async () => {
  harness = await createHarness({ handler });
});

afterEach(() => harness.close());

test('counts the words of each line', async () => {
  expect(await harness.run({ text: 'one two\nthree' })).toEqual([
    { line: 1, words: 2 },
    { line: 2, words: 1 },
  ]);
});

test('refuses a job without a text', async () => {
  await expect(harness.run({})).rejects.toMatchObject({
    record: { status: 'FAILED', error: { code: 'input_invalid' } },
  });
});
