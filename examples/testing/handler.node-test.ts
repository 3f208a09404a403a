import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHarness } from 'millrace/testing';
import countWords from './handler.ts';

test('counts the words of each line and of all', async () => {
  await using harness = await createHarness({ handler: countWords });
  assert.deepEqual(await harness.run({ text: 'one two\nthree' }), { total: 3 });
});
