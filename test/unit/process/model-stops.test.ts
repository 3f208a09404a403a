// Cancelled calls, dead and hanging children: what the calls see, and that nothing is left behind.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { createModelProcess, ModelProcessError } from 'millrace/process';
import { describe, expect, it, onTestFinished } from 'vitest';
import { isRunning, MODEL, RecordedLog, startModel } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const caught = (promise: Promise<unknown>) => promise.then(undefined, (error: unknown) => error);

describe.skipIf(leaveOutWithoutPython('model-stops.test.ts'))('a model process', () => {
  it.each(['wait', 'wait_async'])('leaves a cancelled call of %s and goes on', async (name) => {
    const { model } = await startModel({ cancelTimeoutMs: 30_000 });
    const { pid } = model;
    const abort = new AbortController();
    const call = model.call(name, { s: 600 }, { signal: abort.signal });
    await model.call('echo', 1, { signal: AbortSignal.timeout(50) }).catch(() => undefined);
    abort.abort(new Error('not wanted'));
    await expect(call).rejects.toThrow('not wanted');
    expect(await model.call('take_notes', {})).toEqual(name === 'wait' ? [] : ['cancelled: True']);
    expect(model.pid).toBe(pid);
  });

  it('cancels a generator at its yield when the consumer leaves the loop', async () => {
    const { model } = await startModel({ cancelTimeoutMs: 30_000 });
    for await (const number of model.stream('endless', {})) if (number === 5) break;
    expect(await model.call('take_notes', {})).toEqual([
      'endless was cancelled',
      'endless cleaned up',
    ]);
  });

  it('cancels a generator that waits for its consumer', async () => {
    const { model } = await startModel({ cancelTimeoutMs: 30_000, streamWindowBytes: 100 });
    const abort = new AbortController();
    const stream = model.stream('endless', {}, { signal: abort.signal });
    await stream.next();
    abort.abort(new Error('enough'));
    await expect(Array.fromAsync(stream)).rejects.toThrow('enough');
    expect(await model.call('take_notes', {})).toHaveLength(2);
  });

  it('ends a call after its timeout', async () => {
    const { model } = await startModel({ callTimeoutMs: 50, cancelTimeoutMs: 30_000 });
    await expect(model.call('wait', { s: 600 })).rejects.toThrow('the call took longer than 50 ms');
    await expect(caught(model.call('wait', { s: 600 }, { timeoutMs: 20 }))).resolves.toMatchObject({
      name: 'TimeoutError',
      message: 'the call took longer than 20 ms',
    });
  });

  it('is replaced if a call does not leave, which alone is to blame', async () => {
    const { log, model } = await startModel({ cancelTimeoutMs: 50, maxConcurrent: 2 });
    const { pid } = model;
    const neighbour = caught(model.call('wait', { s: 600 }));
    const deaf = model.call('deaf', { s: 600 }, { timeoutMs: 200 });
    await expect(caught(deaf)).resolves.toMatchObject({
      name: 'ModelProcessError',
      blame: 'culprit',
    });
    expect(await neighbour).toMatchObject({ blame: 'neighbour' });
    expect(await model.call('pid', {})).not.toBe(pid);
    expect(log.messages).toContain('model process ended, restarting');
  });

  it('rejects with the reason of the signal if a cancelled call does not leave', async () => {
    const { model } = await startModel({ cancelTimeoutMs: 50 });
    const signal = AbortSignal.timeout(100);
    expect(await caught(model.call('deaf', { s: 600 }, { signal }))).toBe(signal.reason);
    expect(await model.call('echo', 1)).toBe(1);
  });

  it.each([
    ['exit', 'exited with code 7'],
    ['sys.exit', 'exited with code 3'],
    ['SIGKILL', 'was killed by SIGKILL'],
    ['SIGSEGV', 'was killed by SIGSEGV'],
  ])(
    'fails only its call with the reason if it dies by %s, and is replaced',
    async (how, reason) => {
      const { model } = await startModel();
      const error = await caught(model.call('die', { how }));
      if (!(error instanceof Error)) throw new Error('the call did not fail');
      expect(`${error.name}: ${error.message}`).toContain(reason);
      expect(error).toMatchObject({ blame: 'culprit' });
      expect(error.message).toContain('its last lines on standard error:\nabout to die');
      expect(error.message).toMatch(/^the model process \(python3 .*calls\.py, PID \d+\)/);
      expect(await model.call('echo', 1)).toBe(1);
    },
  );

  it('makes suspects of several calls if it dies', async () => {
    const { model } = await startModel({ maxConcurrent: 3 });
    const { signal } = new AbortController();
    const others = [1, 2].map(() => caught(model.call('wait', { s: 600 }, { signal })));
    const culprit = caught(model.call('die', { how: 'exit', s: 0.2 }));
    for (const error of [await culprit, ...(await Promise.all(others))]) {
      if (!(error instanceof ModelProcessError)) throw error;
      expect(error.blame).toBe('suspect');
    }
  });

  it('keeps the results that arrived before it died', async () => {
    const { model } = await startModel({ maxConcurrent: 2 });
    const items: unknown[] = [];
    const read = async () => {
      for await (const item of model.stream('count', { to: 1_000 })) items.push(item);
    };
    const [, error] = await Promise.all([
      read(),
      caught(model.call('die', { how: 'exit', after_end: true })),
    ]);
    expect(items).toHaveLength(1_000);
    expect(error).toMatchObject({ blame: 'culprit' });
  });

  it('is replaced if it is frozen', async () => {
    const { model } = await startModel({ hangTimeoutMs: 1_000 });
    const { pid = 0 } = model;
    const call = model.call('wait', { s: 600 });
    process.kill(pid, 'SIGSTOP');
    await expect(call).rejects.toThrow('has not answered for 1000 ms');
    expect(await model.call('echo', 1)).toBe(1);
    expect(isRunning(pid)).toBe(false);
  });

  it('is not taken for one that hangs if it works for long', async () => {
    const { model } = await startModel({ hangTimeoutMs: 2_000 });
    const { pid } = model;
    expect(await model.call('wait', { s: 3 })).toBe('waited');
    expect(model.pid).toBe(pid);
  });

  it.each([
    ['no JSON', [0, 0, 0, 2, 0, 0, 0, 0, 0x7b, 0x7b], 'the head of a frame is not JSON'],
    ['a huge frame', [255, 255, 255, 255, 0, 0, 0, 0], 'maxFrameBytes is 268435456'],
    [
      'a call that does not run',
      [0, 0, 0, 24, 0, 0, 0, 0, ...Buffer.from('{"type":"result","id":9}')],
      'names call 9',
    ],
  ])('is replaced if it sends %s', async (_, bytes, reason) => {
    const { model } = await startModel();
    const error = await caught(model.call('write_raw', { bytes }));
    expect(error).toMatchObject({ blame: 'culprit' });
    expect(String(error)).toContain(`broke the protocol: `);
    expect(String(error)).toContain(reason);
    expect(await model.call('echo', 1)).toBe(1);
  });

  it('takes its own children with it', async () => {
    const { model } = await startModel();
    const child = await model.call<number>('start_child', {});
    await caught(model.call('die', { how: 'SIGKILL' }));
    await expect.poll(() => isRunning(child)).toBe(false);
  });

  it('ends in order on stop', async () => {
    const { log, model } = await startModel({ stopTimeoutMs: 60_000 });
    const { pid = 0 } = model;
    await model.stop();
    expect(isRunning(pid)).toBe(false);
    expect(log.messages).toContain('ended in order');
    await expect(model.call('echo', 1)).rejects.toThrow('the model process does not run');
  });

  it('can be started again, and only once at a time', async () => {
    const { model } = await startModel();
    const { pid } = model;
    await model.start();
    expect(model.pid).toBe(pid);
    await model.stop();
    await Promise.all([model.start(), model.start()]);
    expect(await model.call('pid', {})).toBe(model.pid);
    expect(model.pid).not.toBe(pid);
  });

  it('is killed on stop if it does not exit', async () => {
    const { model } = await startModel({ stopTimeoutMs: 20 });
    const { pid = 0 } = model;
    const call = caught(model.call('deaf', { s: 600 }));
    await model.stop();
    expect(isRunning(pid)).toBe(false);
    expect(await call).toBeInstanceOf(ModelProcessError);
  });

  it('is not logged as started if there is no such program', async () => {
    const log = new RecordedLog();
    const model = createModelProcess({ command: '/no/such/program' });
    await expect(model.start({ log })).rejects.toThrow('could not be started');
    expect(log.messages).toEqual([]);
  });

  it.each([
    [
      'cannot be started',
      { command: '/no/such/program' },
      'could not be started: spawn /no/such/program ENOENT',
    ],
    [
      'exits before it is ready',
      { args: ['-c', 'import sys; sys.exit("no weights")'] },
      'no weights',
    ],
    [
      'does not get ready',
      { env: { LOAD_SECONDS: '600' }, startTimeoutMs: 300 },
      'was not ready after 300 ms',
    ],
    [
      'is no model process',
      { args: ['-c', 'import os,time; os.close(3); time.sleep(600)'] },
      'closed the descriptor for its frames',
    ],
  ])('fails the start with the reason if it %s', async (_, options, message) => {
    const model = createModelProcess({ command: 'python3', args: [MODEL], ...options });
    onTestFinished(() => model.stop());
    await expect(model.start()).rejects.toThrow(message);
    await expect(model.call('echo', 1)).rejects.toThrow('start() failed');
  });

  it('can be given up while it starts', async () => {
    const model = createModelProcess({
      command: 'python3',
      args: [MODEL],
      env: { LOAD_SECONDS: '600' },
    });
    const signal = AbortSignal.timeout(300);
    expect(await caught(model.start({ signal }))).toBe(signal.reason);
  });

  it('returns waiting jobs to the queue if the next child does not start, and recovers later', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'model-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'fail');
    const { log, model } = await startModel({ env: { FAIL_FILE: file }, maxBackoffMs: 100 });
    writeFileSync(file, '');
    expect(existsSync(file)).toBe(true);
    await caught(model.call('die', { how: 'exit' }));
    const error = await caught(model.call('echo', 1));
    expect(error).toMatchObject({ name: 'ModelProcessError', blame: 'neighbour' });
    expect(String(error)).toContain('the weights are gone');
    rmSync(file);
    await expect.poll(() => model.call('echo', 1).catch(() => undefined)).toBe(1);
    expect(log.messages).toContain('model process did not start, retrying');
  });

  it.each(['wait', 'block_in_native_code'])(
    'dies with the thread that started it, in %s',
    async (name) => {
      const source = `
      const { parentPort, workerData } = require('node:worker_threads');
      import(workerData.module).then(async ({ createModelProcess }) => {
        const model = createModelProcess({ command: 'python3', args: [workerData.script] });
        await model.start();
        parentPort.postMessage(model.pid);
        model.call(workerData.name, { s: 600 }).catch(() => undefined);
      });`;
      const module = new URL('../../../src/process.ts', import.meta.url).href;
      const workerData = { module, script: MODEL, name };
      const thread = new Worker(source, { eval: true, workerData });
      const pid = await new Promise<number>((resolve, reject) => {
        thread.once('message', resolve);
        thread.once('error', reject);
      });
      await new Promise((resolve) => setTimeout(resolve, 200));
      await thread.terminate();
      await expect.poll(() => isRunning(pid)).toBe(false);
    },
  );

  it('dies with its worker process, also in native code', async () => {
    const source = `
      const { createModelProcess } = await import(process.argv[1]);
      const model = createModelProcess({ command: 'python3', args: [process.argv[2]] });
      await model.start();
      model.call('block_in_native_code', { s: 600 }).catch(() => undefined);
      setTimeout(() => console.log(model.pid), 200);`;
    const module = new URL('../../../src/process.ts', import.meta.url).href;
    const args = ['--input-type=module', '--eval', source, module, MODEL];
    const worker = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = await once(worker.stdout, 'data');
    const pid = Number(String(line));
    expect(isRunning(pid)).toBe(true);
    worker.kill('SIGKILL');
    await expect.poll(() => isRunning(pid)).toBe(false);
  });
});
