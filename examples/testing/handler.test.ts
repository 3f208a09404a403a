import { createHarness, runHandler } from 'millrace/testing';
import { describe, expect, it } from 'vitest';
import countWords from './handler.ts';

describe('countWords', () => {
  it('counts the words of each line and of all', async () => {
    const run = await runHandler(countWords, { text: 'one two\nthree' });
    expect(run.output).toEqual({ total: 3 });
    expect(run.chunks).toEqual([
      { output: { line: 1, words: 2 }, metrics: { words: 2 } },
      { output: { line: 2, words: 1 }, metrics: { words: 1 } },
    ]);
  });

  it('is tried again when the backend was busy, without the test waiting for it', async () => {
    await using harness = await createHarness({ handler: countWords });
    const job = await harness.submit({ text: 'one two', busy: true });
    while ((await job.record()).status !== 'IN_QUEUE' || (await job.record()).attempt !== 1) {
      await harness.advance(0);
    }
    await harness.advance(30_000);
    expect(await job.end()).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('counts once, though the report of its result had to be sent twice', async () => {
    await using harness = await createHarness({ handler: countWords });
    harness.dropNextAnswer();
    expect(await harness.run({ text: 'one' })).toEqual({ total: 1 });
  });

  it('goes on in another worker when its own is killed', async () => {
    await using harness = await createHarness({ handler: countWords });
    const job = await harness.submit({ text: 'one two three' });
    await harness.killWorker();
    expect(await job.result()).toEqual({ total: 3 });
  });

  it('counts again when its thread dies in the middle, and gives no line twice', async () => {
    await using harness = await createHarness({ handler: countWords });
    const job = await harness.submit({ text: 'one two\nthree', pauseMs: 50 });
    // The first line has come, and it pauses before the second.
    await job.chunks().next();
    harness.killThread(job.id);
    await harness.advance(2_000);
    expect(await job.end()).toMatchObject({ status: 'COMPLETED', attempt: 2 });
    const chunks = await Array.fromAsync(job.chunks());
    expect(chunks.map(({ metrics }) => metrics)).toEqual([{ words: 2 }, { words: 1 }]);
  });

  it('keeps its result while the network is gone for longer than a lease', async () => {
    await using harness = await createHarness({ handler: countWords, clock: 'manual' });
    const job = await harness.submit({ text: 'one' });
    const release = harness.holdNextRequest();
    await harness.advance(0);
    harness.disconnect();
    release();
    await harness.advance(60_000);
    expect(await job.record()).toMatchObject({ status: 'IN_QUEUE', attempt: 1 });
    harness.reconnect();
    await harness.advance(10_000);
    expect(await job.record()).toMatchObject({ status: 'COMPLETED', attempt: 1 });
    expect(await job.result()).toEqual({ total: 1 });
  });
});
