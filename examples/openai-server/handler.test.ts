import { spawnSync } from 'node:child_process';
import { createHarness } from 'millrace/testing';
import { describe, expect, it } from 'vitest';
import * as handler from './handler.ts';
import { ModelServer } from './model-server.ts';

const hasPython = spawnSync('python3', ['--version']).status === 0;
if (!hasPython) console.warn('examples/openai-server is left out: python3 is not installed');

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

  it('ends a server that accepts connections but does not get ready', async () => {
    const program = `import os, socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(os.getpid(), flush=True)
time.sleep(600)`;
    const server = new ModelServer((port) => ['python3', '-c', program, String(port)], '/health');
    const abort = new AbortController();
    let pid = 0;
    const info = (_: object, line: string) => {
      pid = Number(line);
      setTimeout(() => abort.abort(new Error('given up')), 500);
    };
    await expect(server.start({ log: { info }, signal: abort.signal })).rejects.toThrow();
    expect(pid).toBeGreaterThan(0);
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });

  it('ends a request with its job', async () => {
    await using harness = await createHarness({ handler });
    const job = await harness.submit({ prompt: 'word '.repeat(10_000) });
    await job.chunks().next();
    await job.cancel();
    expect((await job.end()).status).toBe('CANCELLED');
    expect(await harness.run({ prompt: 'next' })).toEqual(['next']);
  });
});
