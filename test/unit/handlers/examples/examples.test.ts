import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import batch from '../../../../examples/batch/handler.ts';
import count from '../../../../examples/durable-pipeline/handler.ts';
import unpack from '../../../../examples/external-process/handler.ts';
import hello from '../../../../examples/hello/handler.ts';
import totals from '../../../../examples/schema/handler.ts';
import streamPrimes from '../../../../examples/stream/handler.ts';
import { createHarness } from '../../../../src/testing.ts';
import { collectStream, makeContext } from '../../../support/handler-context.ts';

describe('examples/hello', () => {
  it('greets by name, and the world without one', async () => {
    expect(await hello({ id: 'j', input: { name: 'Ada' } })).toEqual({ greeting: 'Hello, Ada!' });
    expect(await hello({ id: 'j', input: {} })).toEqual({ greeting: 'Hello, world!' });
  });
});

describe('examples/stream', () => {
  it('streams the primes, each with how many digits it has', async () => {
    const { ctx } = makeContext();

    const { outputs, metrics } = await collectStream(
      streamPrimes({ id: 'j', input: { limit: 12 } }, ctx),
    );

    expect(outputs).toEqual([2, 3, 5, 7, 11]);
    expect(metrics.at(-1)).toEqual({ digits: 2 });
  });
});

describe('examples/schema', () => {
  it('adds up an invoice, with the defaults of its schema', async () => {
    const input = totals.input?.parse({ lines: [{ item: 'tea', cents: 350 }], taxPercent: 20 });
    if (input === undefined) throw new Error('no schema');

    expect(await totals.run({ id: 'j', input }, makeContext().ctx)).toEqual({
      net: 350,
      tax: 70,
      gross: 420,
    });
  });
});

describe('examples/batch', () => {
  it('embeds the texts of one batch, and fails an empty one alone', async () => {
    await using harness = await createHarness({ handler: batch, maxAttempts: 1 });
    const records = await harness.runBatch([{ text: 'tea' }, { text: '' }, { text: 'coffee' }]);
    expect(records).toMatchObject([
      { status: 'COMPLETED', output: { batchSize: 3 } },
      { status: 'FAILED', error: { message: 'there is nothing to embed' } },
      { status: 'COMPLETED', output: { batchSize: 3 } },
    ]);
  });
});

describe('examples/external-process', () => {
  it('unpacks the input with gzip', async () => {
    const gzip = gzipSync('grün\n').toString('base64');

    expect(await unpack.run({ id: 'j', input: { gzip } }, makeContext().ctx)).toEqual({
      text: 'grün\n',
      bytes: 6,
    });
  });

  it('fails with the message of gzip, which is also logged', async () => {
    const { ctx, logged } = makeContext();

    await expect(unpack.run({ id: 'j', input: { gzip: 'AAAA' } }, ctx)).rejects.toThrow(
      /^gzip .*\b1: .*not in gzip format/,
    );
    expect(logged.map(({ msg }) => msg).join()).toContain('not in gzip format');
  });
});

describe('examples/durable-pipeline', () => {
  it('counts the words of all chapters, without a slot while the children run', async () => {
    await using harness = await createHarness({ handler: count, slots: 1, clock: 'manual' });
    const job = await harness.submit({ chapters: ['It was a dark night.', 'The rain fell.'] });
    await harness.advance(60_000);
    expect(await job.result()).toMatchObject({ words: 8 });
    expect(await job.record()).toMatchObject({ attempt: 2 });
  });
});
