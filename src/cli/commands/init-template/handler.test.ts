import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { createHarness, type Harness, type JobFailedError } from 'millrace/testing';
import handler from './handler.ts';

let harness: Harness;

beforeEach(async () => {
  harness = await createHarness({ handler });
});

afterEach(() => harness.close());

test('counts the words of each line', async () => {
  assert.deepEqual(await harness.run({ text: 'one two\nthree' }), [
    { line: 1, words: 2 },
    { line: 2, words: 1 },
  ]);
});

test('refuses a job without a text', async () => {
  await assert.rejects(harness.run({}), ({ record }: JobFailedError) => {
    assert.equal(record.error?.code, 'input_invalid');
    return true;
  });
});
