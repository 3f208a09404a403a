import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHarness } from 'millrace/testing';
import sharp from 'sharp';
import handler from './handler.ts';

test('resizes an image', async () => {
  await using harness = await createHarness({ handler });
  const red = { width: 40, height: 20, channels: 3 as const, background: '#f00' };
  const image = (await sharp({ create: red }).png().toBuffer()).toString('base64');
  const output = await harness.run({ image, resize: { width: 20 }, format: 'webp' });
  assert.partialDeepStrictEqual(output, { format: 'webp', width: 20, height: 10 });
});

test('refuses what is no image', async () => {
  await using harness = await createHarness({ handler });
  await assert.rejects(harness.run({ image: 'AAAA' }), /cannot be processed/);
});
