import { spawnSync } from 'node:child_process';
import { createHarness } from 'millrace/testing';
import { describe, expect, it, vi } from 'vitest';
import embed from './embed.ts';
import generate, { model } from './generate.ts';

const hasNumpy = spawnSync('python3', ['-c', 'import numpy']).status === 0;
if (!hasNumpy) console.warn('examples/python-model is left out: python3-numpy is not installed');

describe.skipIf(!hasNumpy && !process.env['CI'])('the model', () => {
  it('computes the embeddings of a batch of jobs', async () => {
    await using harness = await createHarness({ handler: embed });
    const texts = ['mill', 'mill', 'wheel', 'river'];
    const records = await harness.runBatch(texts.map((text) => ({ text })));
    const found = records.map(({ output }) => JSON.stringify(output));
    expect(found[0]).toBe(found[1]);
    expect(new Set(found).size).toBe(3);
    expect(found[0]).toMatch(/^\{"embedding":\[(-?[\d.]+,?){8}\]\}$/);
  });

  it('refuses a prompt without a second attempt', async () => {
    await using harness = await createHarness({ handler: generate });
    await expect(harness.run({ prompt: '1 2 3' })).rejects.toMatchObject({
      record: { attempt: 1, error: { code: 'handler_error', type: 'NonRetryableError' } },
    });
  });

  it('streams letters with metrics, again from the first if it dies in the middle', async () => {
    await using harness = await createHarness({ handler: generate });
    const prompt = 'the m';
    const whole = await harness.run({ prompt, letters: 50 });
    const job = await harness.submit({ prompt, letters: 50, pauseMs: 20 });
    const { value: first } = await job.chunks().next();
    expect(first).toMatchObject({ metrics: { letters: 1 } });
    process.kill(model.pid ?? 0, 'SIGKILL');
    await vi.waitUntil(async () => (await job.record()).status === 'IN_QUEUE', 60_000);
    // Time passes: the queue waits before it retries.
    while ((await job.record()).attempt < 2) await harness.advance(1_000);
    const { error, output, status } = await job.end();
    expect({ error, output, status }).toEqual({
      error: undefined,
      output: whole,
      status: 'COMPLETED',
    });
  });

  it('stops at once when the job is cancelled', async () => {
    await using harness = await createHarness({ handler: generate });
    const { pid } = model;
    const job = await harness.submit({ prompt: 'the m', letters: 1_000, pauseMs: 50 });
    await job.chunks().next();
    await job.cancel();
    expect((await job.end()).status).toBe('CANCELLED');
    expect(await harness.run({ prompt: 'the m', letters: 1 })).toEqual(['i']);
    expect(model.pid).toBe(pid);
  });
});
