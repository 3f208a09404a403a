import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { createHarness } from 'millrace/testing';
import { describe, expect, it, onTestFinished } from 'vitest';
import handler from './handler.ts';
import llamaCpp from './llama-cpp.ts';
import vllm from './vllm.ts';

const hasPython = spawnSync('python3', ['--version']).status === 0;
if (!hasPython) console.warn('examples/openai-server is left out: python3 is not installed');

/** A program of this name on the PATH that is the small server. */
function standIn(name: string): void {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-example-'));
  const program = join(folder, name);
  const server = resolve(import.meta.dirname, 'small_server.py');
  writeFileSync(program, `#!/bin/sh\nexec python3 '${server}' "$@"\n`);
  chmodSync(program, 0o755);
  const path = process.env['PATH'];
  process.env['PATH'] = `${folder}${delimiter}${path}`;
  onTestFinished(() => {
    process.env['PATH'] = path;
    rmSync(folder, { recursive: true });
  });
}

describe.skipIf(!hasPython && !process.env['CI'])('the server', () => {
  it('streams the tokens of several jobs at a time', async () => {
    await using harness = await createHarness({ handler });
    const prompts = ['the mill turns', 'one', 'two words'];
    const outputs = await Promise.all(prompts.map((prompt) => harness.run({ prompt })));
    expect(outputs).toEqual(prompts.map((prompt) => prompt.split(' ')));
  });

  it('fails a job that the server refuses, without a retry', async () => {
    await using harness = await createHarness({ handler });
    await expect(harness.run({ prompt: ' ' })).rejects.toMatchObject({
      record: { attempt: 1, error: { message: 'prompt is empty' } },
    });
  });

  it('ends a request with its job', async () => {
    await using harness = await createHarness({ handler });
    const job = await harness.submit({ prompt: 'word '.repeat(10_000) });
    await job.chunks().next();
    await job.cancel();
    expect((await job.end()).status).toBe('CANCELLED');
    expect(await harness.run({ prompt: 'next' })).toEqual(['next']);
  });

  it.each([
    ['vllm', vllm],
    ['llama-server', llamaCpp],
  ])('may be %s', async (name, other) => {
    standIn(name);
    await using harness = await createHarness({ handler: other });
    expect(await harness.run({ prompt: 'the mill turns' })).toEqual(['the', 'mill', 'turns']);
  });
});
