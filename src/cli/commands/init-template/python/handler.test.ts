import { createHarness } from 'millrace/testing';
import { expect, test } from 'vitest';
import handler from './handler.ts';

test('counts the words of each line', async () => {
  await using harness = await createHarness({ handler });
  expect(await harness.run({ text: 'one two\nthree' })).toEqual([
    { line: 1, words: 2 },
    { line: 2, words: 1 },
  ]);
});

test('refuses a job without a text', async () => {
  await using harness = await createHarness({ handler });
  // @ts-expect-error The handler's type says so too.
  await expect(harness.run({})).rejects.toMatchObject({
    record: { status: 'FAILED', error: { code: 'input_invalid' } },
  });
});
