import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHarness, type JobFailedError } from 'millrace/testing';
import handler from './handler.ts';

test('counts the words of each line', async () => {
  await using harness = await createHarness({ handler });
  assert.deepEqual(await harness.run({ text: 'one two\nthree' }), [
    { line: 1, words: 2 },
    { line: 2, words: 1 },
  ]);
});

test('refuses a job without a text', async () => {
  await using harness = await createHarness({ handler });
  // @ts-expect-error The handler's type says so too.
  await assert.rejects(harness.run({}), ({ record }: JobFailedError) => {
    assert.equal(record.error?.code, 'input_invalid');
    return true;
  });
});
