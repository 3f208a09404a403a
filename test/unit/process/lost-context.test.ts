// Which lines and errors of a model process say that it has lost its context on a device, in every order.
import { describe, expect, it } from 'vitest';
import { RunningCall, RunningCalls } from '../../../src/process/calls.ts';

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
