// Calls of a model process in Python: values, streams, batches, errors, logs.
import { ModelCallError, type ModelProcess } from 'millrace/process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { retryAdvice } from '../../../src/handler/thrown.ts';
import {
  type ModelStand,
  openModel,
  RecordedLog,
  startModel,
} from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

describe.skipIf(leaveOutWithoutPython('model-calls.test.ts'))('a model process', () => {
  let shared: ModelStand;
  let model: ModelProcess;
  beforeAll(async () => {
    shared = await openModel();
    model = shared.model;
  });
  afterAll(() => model.stop());

  it.each(['echo', 'echo_async'])('returns the value of %s', async (name) => {
    const input = { text: 'é\u2028', list: [1, null, { deep: [true] }], number: 0.1 };
    expect(await model.call(name, input)).toEqual(input);
  });

  it('carries bytes in both directions as bytes', async () => {
    const bytes = new Uint8Array([1, 2, 200]);
    expect(await model.call('types', { bytes, text: 'x' })).toEqual({
      bytes: 'memoryview',
      text: 'str',
    });
    const { data, more, size } = await model.call<{ data: Buffer; more: Buffer[]; size: number }>(
      'double',
      { data: bytes },
    );
    expect([...data]).toEqual([2, 4, 144]);
    expect(more.map(String)).toEqual(['', 'abc']);
    expect(size).toBe(3);
    expect(await model.call('echo', bytes)).toEqual(Buffer.from(bytes));
  });

  it('carries 20 MB in one frame', async () => {
    const bytes = Buffer.alloc(20_000_003, 7);
    expect(bytes.equals(await model.call<Buffer>('echo', bytes))).toBe(true);
  });

  it('runs sync functions in the main thread, which know their call', async () => {
    expect(await model.call('whose', {})).toEqual({ call: 'whose', main: true });
  });

  it('runs functions with the import of Python, which was measured until the model was ready', async () => {
    expect(await model.call('importer', {})).toBe('builtin_function_or_method');
    const ready = shared.log.entries.find(({ message }) => message === 'model process ready');
    expect(ready?.fields).toMatchObject({
      importMs: expect.any(Number),
      setupMs: expect.any(Number),
    });
  });

  it('streams the items of a generator and then its result, with metrics of each item', async () => {
    const recorded: unknown[] = [];
    const metrics = {
      add: (name: string, value: number) => recorded.push(['add', name, value]),
      set: (name: string, value: number) => recorded.push(['set', name, value]),
    };
    const stream = model.stream('count', { to: 2, result: 'all' }, { metrics });
    expect(await stream.next()).toEqual({ done: false, value: 0 });
    expect(recorded.splice(0)).toEqual([
      ['add', 'tokens', 2],
      ['set', 'last', 0],
    ]);
    expect(await stream.next()).toEqual({ done: false, value: 1 });
    expect(await stream.next()).toEqual({ done: true, value: 'all' });
  });

  it('streams an async generator, and collects a generator for a plain call', async () => {
    expect(await Array.fromAsync(model.stream('count_async', { to: 5 }))).toEqual([0, 1, 2, 3, 4]);
    expect(await model.call('count_async', { to: 3 })).toEqual([0, 1, 2]);
    expect(await model.call('count', { to: 3 })).toEqual([0, 1, 2]);
    expect(await Array.fromAsync(model.stream('echo', { a: 1 }))).toEqual([{ a: 1 }]);
  });

  it('delivers the items before an error', async () => {
    const items: unknown[] = [];
    const read = async () => {
      for await (const item of model.stream('count', { to: 3, fail: true })) items.push(item);
    };
    await expect(read()).rejects.toThrow('failed after the last item');
    expect(items).toEqual([0, 1, 2]);
  });

  it('makes a generator wait while its consumer does', async () => {
    const { model } = await startModel({ maxConcurrent: 2, streamWindowBytes: 100_000 });
    const stream = model.stream<Buffer>('large_items', { to: 100, bytes: 40_000 });
    expect((await stream.next()).value).toHaveLength(40_000);
    // The window of 100,000 bytes has been open for less than 3 more, and one waits to be sent.
    await expect.poll(() => model.call('how_many', {})).toBeGreaterThanOrEqual(3);
    for (let calls = 0; calls < 20; calls += 1) {
      expect(await model.call('how_many', {})).toBeLessThanOrEqual(6);
    }
    let items = 1;
    for await (const item of stream) items += item.length === 40_000 ? 1 : 0;
    expect(items).toBe(100);
  });

  it('gives each input of a batch its own result or error', async () => {
    const results = await model.callBatch<number>('halves', [2, 3, 8]);
    expect(results).toEqual([
      { status: 'fulfilled', value: 1 },
      { status: 'rejected', reason: expect.objectContaining({ name: 'ValueError' }) },
      { status: 'fulfilled', value: 4 },
    ]);
    await expect(model.callBatch('halves', [1, 2, 3, 4, 5])).rejects.toThrow(
      'halves takes at most 4 inputs, got 5',
    );
    await expect(model.callBatch('too_few', [1, 2])).rejects.toThrow('1 outputs for 2 inputs');
    await expect(model.callBatch('echo', [1])).rejects.toThrow('echo is no batch function');
  });

  it('streams the outputs of a batch with their index', async () => {
    expect(await Array.fromAsync(model.streamBatch('letters', ['ab', 'c']))).toEqual([
      { index: 1, output: 'c' },
      { index: 0, output: 'a' },
      { index: 0, output: 'b' },
    ]);
  });

  it.each([
    ['plain', 'KeyError', undefined],
    ['never', 'NonRetryableError', { kind: 'never' }],
    ['later', 'RetryAfterError', { kind: 'after', ms: 1_500, counts: true }],
    ['uncounted', 'RetryAfterError', { kind: 'after', ms: 1_500, counts: false }],
    ['silent', 'AssertionError', undefined],
  ])(
    'throws an exception of kind %s with its class, traceback and advice',
    async (kind, type, advice) => {
      const error = await model.call('fail', { kind }).catch((thrown: unknown) => thrown);
      if (!(error instanceof ModelCallError)) throw error;
      expect(error.name).toBe(type);
      expect(error.message).not.toBe('');
      expect(error.stack).toMatch(/calls\.py", line \d+, in fail/);
      expect(error.stack).not.toContain('millrace_model.py');
      expect(retryAdvice(error)).toEqual(advice);
    },
  );

  it('throws a group with its exceptions and their causes', async () => {
    const error = await model.call('fail', { kind: 'group' }).catch((thrown: unknown) => thrown);
    if (!(error instanceof ModelCallError)) throw error;
    expect(error.name).toBe('ExceptionGroup');
    expect(error.message).toBe('two models (2 sub-exceptions): no weights; no memory');
    expect(error.stack).toMatch(
      /OSError: disk[\s\S]*direct cause[\s\S]*no weights[\s\S]*no memory/,
    );
  });

  it('refuses what is larger than a frame, in both directions', async () => {
    const { model } = await startModel({ maxFrameBytes: 100_000 });
    await expect(model.call('echo', Buffer.alloc(100_000))).rejects.toThrow(
      /the input of echo is 100\d\d\d bytes; the limit of its process is 100000 \(maxFrameBytes\)/,
    );
    await expect(model.call('large', { bytes: 100_000 })).rejects.toThrow(/limit is 100000/);
    expect(await model.call('echo', 1)).toBe(1);
  });

  it('refuses an unknown function with the names of those that exist', async () => {
    await expect(model.call('ecko', 1)).rejects.toThrow(/no function "ecko"; it has echo, /);
  });

  it('writes what a call logs and prints to its log, with progress', async () => {
    const log = new RecordedLog();
    const progress: unknown[] = [];
    await model.call('talk', { s: 0.3 }, { log, progress: (value) => progress.push(value) });
    expect(log.entries).toEqual(
      expect.arrayContaining([
        { level: 'info', message: 'to stdout', fields: { stream: 'stdout' } },
        { level: 'warn', message: 'to stderr: é', fields: { stream: 'stderr' } },
        { level: 'warn', message: 'by the call', fields: { size: 3 } },
        { level: 'info', message: 'by logging', fields: { logger: 'library' } },
      ]),
    );
    expect(progress).toEqual([{ done: 0.5 }]);
    expect(shared.log.messages).toContain('loading the model');
  });

  it('tells a call how much time it has', async () => {
    expect(await model.call('remaining', {})).toBeNull();
    const left = await model.call('remaining', {}, { timeoutMs: 60_000 });
    expect(left).toBeGreaterThan(1);
    expect(left).toBeLessThanOrEqual(60);
  });

  it('runs maxConcurrent calls at a time and lets maxWaiting wait', async () => {
    const { model } = await startModel({ maxConcurrent: 2, maxWaiting: 1 });
    const running = [model.call('wait', { s: 0.5 }), model.call('wait', { s: 0.5 })];
    const waiting = model.call('echo', 'waited');
    await expect(model.call('echo', 1)).rejects.toThrow(
      '1 calls wait for the model process already',
    );
    expect(await waiting).toBe('waited');
    await Promise.all(running);
  });

  it("has the worker's variables and its own", async () => {
    process.env['MODEL_TEST_DEVICE'] = 'GPU-7';
    const { model } = await startModel({ env: { OWN: 'yes', HOME: undefined } });
    delete process.env['MODEL_TEST_DEVICE'];
    const names = ['MODEL_TEST_DEVICE', 'OWN', 'HOME', 'MILLRACE_MODEL_FD'];
    expect(await model.call('environment', names)).toEqual({
      MODEL_TEST_DEVICE: 'GPU-7',
      OWN: 'yes',
      HOME: null,
      MILLRACE_MODEL_FD: null,
    });
  });
});
