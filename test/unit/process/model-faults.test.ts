// What libraries and functions of a model process do to the library, and what happens between children.
import { resolve } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readProcess } from '../../../src/base/process-table.ts';
import { isRunning, startModel } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const FAULTS = resolve(import.meta.dirname, '../../support/models/faults.py');
const start = (options = {}) => startModel({ args: [FAULTS], ...options });
const caught = (promise: Promise<unknown>) => promise.then(undefined, (error: unknown) => error);

describe.skipIf(leaveOutWithoutPython('model-faults.test.ts'))('a model process', () => {
  it('gives no call to a child that is dead, even if its output is still awaited', async () => {
    const { model } = await start();
    const { pid = 0 } = model;
    const daemon = await model.call<number>('start_daemon', {});
    onTestFinished(() => void process.kill(daemon));
    process.kill(pid, 'SIGKILL');
    await expect.poll(() => readProcess(pid)).toBeUndefined();
    expect(await model.call('echo', 1)).toBe(1);
  });

  it('starts again after the system refused to start a process', async () => {
    const { log, model } = await start({ maxBackoffMs: 50 });
    const { pid = 0 } = model;
    // Longer than the system allows for one variable.
    process.env['MILLRACE_TEST_HUGE'] = 'x'.repeat(300_000);
    onTestFinished(() => void delete process.env['MILLRACE_TEST_HUGE']);
    process.kill(pid, 'SIGKILL');
    await caught(model.call('echo', 1));
    await expect.poll(() => log.messages).toContain('model process did not start, retrying');
    delete process.env['MILLRACE_TEST_HUGE'];
    await expect.poll(() => model.call('echo', 1).catch(() => undefined)).toBe(1);
  });

  it('that is started while the one before it ends is kept', async () => {
    const { model } = await start({ env: { EXIT_SECONDS: '0.5' }, stopTimeoutMs: 30_000 });
    const { pid = 0 } = model;
    const stopping = model.stop();
    await model.start();
    const next = model.pid;
    await stopping;
    expect(isRunning(pid)).toBe(false);
    await new Promise((done) => setTimeout(done, 200));
    expect(model.pid).toBe(next);
  });
});
