// A model process that has lost its context on a GPU is replaced before it gets another call.
import { resolve } from 'node:path';
import { ModelCallError, ModelProcessError } from 'millrace/process';
import { describe, expect, it } from 'vitest';
import { HOLD } from '../../../src/handler/attempt/hold.ts';
import { concludeThrown } from '../../../src/handler/attempt/refusal.ts';
import { RunningCall, RunningCalls } from '../../../src/process/calls.ts';
import { isRunning, startModel } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const FAULTS = resolve(import.meta.dirname, '../../support/models/faults.py');
const WORDS = 'CUDA error: device-side assert triggered';
const start = (options = {}) => startModel({ args: [FAULTS], ...options });
const caught = (promise: Promise<unknown>) => promise.then(undefined, (error: unknown) => error);

describe.skipIf(leaveOutWithoutPython('context-loss.test.ts'))('a model process', () => {
  it('is replaced before the next call, after the error of the call that lost the context', async () => {
    const { log, model } = await start();
    const first = await model.call<number>('use_device', {});
    const error = await caught(model.call('use_device', { lose: true }));
    expect(error).toBeInstanceOf(ModelCallError);
    expect(isRunning(first)).toBe(false);
    const { contextLoss, outcome } = concludeThrown(error, 1);
    expect(contextLoss).toBeUndefined();
    expect(outcome).toMatchObject({
      kind: 'failed',
      retry: 'default',
      error: {
        code: 'gpu_context_lost',
        type: 'RuntimeError',
        message: expect.stringContaining(WORDS),
      },
    });
    const holds: string[] = [];
    const hold = () => {
      holds.push('begun');
      return () => void holds.push('ended');
    };
    const ctx = { [HOLD]: hold, log };
    expect(await model.call('use_device', {}, ctx)).not.toBe(first);
    expect(holds).toEqual(['begun', 'ended']);
    for (let call = 0; call < 20; call += 1) {
      expect(await model.call('use_device', {})).not.toBe(first);
    }
    expect(log.messages).toContain('model process ended, restarting');
    expect(log.messages).toContain('waited for the start of the model process');
  });

  it('returns the jobs of its other calls to the queue', async () => {
    const { model } = await start({ maxConcurrent: 2 });
    const { signal } = new AbortController();
    const neighbour = caught(model.call('use_device', { s: 30 }, { signal }));
    const lose = model.call('use_device', { lose: true }, { signal: new AbortController().signal });
    expect(concludeThrown(await caught(lose), 1).outcome).toMatchObject({ kind: 'failed' });
    const error = await neighbour;
    expect(error).toBeInstanceOf(ModelProcessError);
    const released = { kind: 'released', reason: 'neighbour' };
    expect(concludeThrown(error, 1)).toEqual({ outcome: released });
  });

  it('is replaced if the function hides the error that it has printed', async () => {
    const { model } = await start();
    const first = await model.call('use_device', {});
    await caught(model.call('use_device', { lose: true, hide: true }));
    await expect.poll(() => model.pid, { timeout: 10_000 }).not.toBe(first);
    expect(await model.call('use_device', {})).not.toBe(first);
  });

  it('is replaced for an error of one input of a batch', async () => {
    const { model } = await start();
    const { pid } = model;
    const error = await caught(model.callBatch('use_device_each', [0, 1, 0]));
    expect(concludeThrown(error, 1).outcome).toMatchObject({ error: { code: 'gpu_context_lost' } });
    expect(await model.call('use_device', {})).not.toBe(pid);
  });

  it('is kept if the words come from the input of the call', async () => {
    const { model } = await start();
    const { pid } = model;
    const error = await caught(model.call('use_device', { quote: WORDS }));
    expect(String(error)).toContain(WORDS);
    expect(model.pid).toBe(pid);
  });

  it('is kept if it prints the words and its calls succeed', async () => {
    const { log, model } = await start();
    const { pid } = model;
    const words = ['CUDA error: ', 'misaligned address'];
    await model.call('print_line', { line: words.join('') });
    await expect.poll(() => log.messages).toContain(words.join(''));
    expect(await model.call('use_device', {})).toBe(pid);
  });
});

describe('a lost context', () => {
  const LINE = 'CUDA error: misaligned address';
  const LOST = { words: LINE, culprit: 1 };

  function start({ quotes = false } = {}) {
    const calls = new RunningCalls();
    const sinks = { log: undefined, metrics: undefined, progress: undefined };
    const begin = (id: number) => {
      const rest = { sinks, wants: 'value', grant: () => undefined, windowBytes: 1 } as const;
      calls.add(new RunningCall({ id, owner: id, quotes: () => quotes, ...rest }));
    };
    const fail = (id: number, message = 'inference failed') => {
      const error = { type: 'ValueError', message, stack: undefined, retry: 'default' } as const;
      return calls.receive({ type: 'error', id, error }, 0);
    };
    const succeed = (id: number) =>
      calls.receive({ type: 'result', id, value: 1, metrics: undefined }, 0);
    begin(1);
    return { begin, calls, fail, succeed };
  }

  describe('a line that says so', () => {
    it('counts when the call fails after it', () => {
      const { calls, fail } = start();
      expect(calls.noteLine(LINE)).toBeUndefined();
      expect(fail(1)).toEqual(LOST);
    });

    it('counts when the call has failed before it', () => {
      const { calls, fail } = start();
      expect(fail(1)).toBeUndefined();
      expect(calls.noteLine(LINE)).toEqual(LOST);
    });

    it('does not count for a failure after a result', () => {
      const { begin, calls, fail, succeed } = start();
      calls.noteLine(LINE);
      succeed(1);
      begin(2);
      expect(fail(2)).toBeUndefined();
    });

    it('does not count for a failure before a result', () => {
      const { begin, calls, fail, succeed } = start();
      fail(1);
      begin(2);
      succeed(2);
      expect(calls.noteLine(LINE)).toBeUndefined();
    });

    it('does not count if the input of a running call has the words', () => {
      const { calls, fail } = start({ quotes: true });
      calls.noteLine(LINE);
      expect(fail(1)).toBeUndefined();
    });
  });
});
