// What libraries and functions of a model process do to the library, and what happens between children.
import { readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { ModelCallError } from 'millrace/process';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readProcess } from '../../../src/base/process/process-table.ts';
import { completeOptions } from '../../../src/process/options.ts';
import { isRunning, RecordedLog, startModel } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const FAULTS = resolve(import.meta.dirname, '../../support/models/faults.py');
const start = (options = {}) => startModel({ args: [FAULTS], ...options });
const caught = (promise: Promise<unknown>) => promise.then(undefined, (error: unknown) => error);

/** Without an iteration of the event loop, so that no event tells of the death. */
function blockUntilDead(pid: number): void {
  // A thread that is left keeps the descriptors open.
  const isDead = () =>
    / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')) &&
    readdirSync(`/proc/${pid}/task`).length === 1;
  const pause = new Int32Array(new SharedArrayBuffer(4));
  while (!isDead()) Atomics.wait(pause, 0, 0, 5);
}

describe.skipIf(leaveOutWithoutPython('model-faults.test.ts'))('a model process', () => {
  it('sends no item after the end of an async stream that was cancelled meanwhile', async () => {
    const { model } = await start({ streamWindowBytes: 100, cancelTimeoutMs: 30_000 });
    const { pid } = model;
    const abort = new AbortController();
    const log = new RecordedLog();
    const stream = model.stream('slow_item', {}, { signal: abort.signal, log });
    await stream.next();
    const next = caught(stream.next());
    await expect.poll(() => log.messages).toContain('encoding');
    abort.abort(new Error('enough'));
    expect(String(await next)).toContain('enough');
    await new Promise((done) => setTimeout(done, 500));
    expect(await model.call('echo', 1)).toBe(1);
    expect(model.pid).toBe(pid);
  });

  it('has threads for its functions while many async streams wait for their consumers', async () => {
    const { model } = await start({ streamWindowBytes: 100, maxConcurrent: 50 });
    const streams = Array.from({ length: 40 }, () => model.stream('endless', {}));
    await Promise.all(streams.map((stream) => stream.next()));
    expect(await model.call('in_thread', {}, { timeoutMs: 10_000 })).toBe('done');
    await Promise.all(streams.map((stream) => stream.return(undefined)));
  });

  it('names its interpreter, which MILLRACE_PYTHON chooses, if it cannot import', async () => {
    const args = ['-c', 'import no_such_module_here'];
    const starting = caught(start({ args, maxBackoffMs: 0, startTimeoutMs: 1_000 }));
    expect(String(await starting)).toMatch(/\(it ran with \/\S+\/python3\).*ModuleNotFoundError/s);
    const variables = { MILLRACE_PYTHON: '/nowhere/python' };
    expect(completeOptions({ command: 'python3' }, variables).command).toBe('/nowhere/python');
    expect(completeOptions({ command: './venv/bin/python3' }, variables).command).toBe(
      './venv/bin/python3',
    );
  });

  it('names no interpreter if it ends for another reason', async () => {
    const args = ['-c', 'raise SystemExit("no licence")'];
    const starting = caught(start({ args, maxBackoffMs: 0, startTimeoutMs: 1_000 }));
    expect(String(await starting)).toMatch(/on standard error:\nno licence/);
    expect(String(await starting)).not.toContain('it ran with');
  });

  it('reports an exception without a text', async () => {
    const { model } = await start();
    const { pid } = model;
    expect(await caught(model.call('odd', {}))).toMatchObject({ name: 'Odd' });
    expect(model.pid).toBe(pid);
  });

  it('shortens an error that is larger than a frame', async () => {
    const { model } = await start({ maxFrameBytes: 1_024 });
    const { pid } = model;
    const error = await caught(model.call('long_error', 5_000));
    expect(error).toBeInstanceOf(ModelCallError);
    expect(String(error)).toMatch(/^ValueError: xxx/);
    expect(model.pid).toBe(pid);
  });

  it('does not end a call at once whose timeout is longer than timers allow', async () => {
    const { model } = await startModel();
    const call = model.call('wait', { s: 0.3 }, { timeoutMs: 3_000_000_000 });
    expect(await call).toBe('waited');
  });

  it('shortens the text of an error', async () => {
    const { model } = await start();
    const error = await caught(model.call('long_error', 1_000_000));
    expect(String(error).length).toBeLessThan(50_000);
  });

  it('does not mix its frames with those of a process that it forks', async () => {
    const { log, model } = await start();
    const { pid } = model;
    const bytes = 30_000_000;
    const data = await model.call<Buffer>('fork_and_log', { bytes, lines: 3_000 });
    expect(data.length).toBe(bytes);
    expect(await model.call('wait_for_children', {})).toEqual([0]);
    await expect
      .poll(() => log.entries)
      .toContainEqual({
        level: 'warn',
        message: 'info: line 2999',
        fields: { stream: 'stderr' },
      });
    expect(model.pid).toBe(pid);
  });

  it('sends logs of signal handlers between its frames', async () => {
    const { model } = await start({ hangTimeoutMs: 5_000 });
    const { pid } = model;
    for (let call = 0; call < 5; call += 1) {
      expect(await model.call<Buffer>('log_in_signals', 20_000_000)).toHaveLength(20_000_000);
    }
    await model.call('end_signals', {});
    expect(model.pid).toBe(pid);
  });

  it('sorts the outputs of a decorated batch generator', async () => {
    const { model } = await start();
    const results = await model.callBatch('reversed_pairs', ['a', 'b', 'c']);
    expect(results.map((result) => 'value' in result && result.value)).toEqual(['a', 'b', 'c']);
  });

  it('survives an input that is nested too deep for Python', async () => {
    const { model } = await start();
    const { pid } = model;
    const input: unknown = JSON.parse(`${'['.repeat(998)}${']'.repeat(998)}`);
    const answer = await caught(model.call('echo', input));
    if (answer !== undefined) expect(answer).toBeInstanceOf(ModelCallError);
    expect(model.pid).toBe(pid);
  });

  it('gives no call to a child that is dead, even if its output is still awaited', async () => {
    const { model } = await start();
    const { pid = 0 } = model;
    const daemon = await model.call<number>('start_daemon', {});
    onTestFinished(() => void process.kill(daemon));
    process.kill(pid, 'SIGKILL');
    await expect.poll(() => readProcess(pid)).toBeUndefined();
    expect(await model.call('echo', 1)).toBe(1);
  });

  it('blames no call for a death before it, which nobody has noticed yet', async () => {
    const { model } = await start();
    const { pid = 0 } = model;
    process.kill(pid, 'SIGKILL');
    blockUntilDead(pid);
    const error = await caught(model.call('echo', 1));
    expect(error).toMatchObject({ name: 'ModelProcessError', blame: 'neighbour' });
    expect(await model.call('echo', 2)).toBe(2);
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

  it('is kept if it is started while the one before it ends', async () => {
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
