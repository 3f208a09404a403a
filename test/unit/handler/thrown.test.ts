// The error of a job: how it describes the errors within the thrown one.
import { describe, expect, it } from 'vitest';
import { describeThrown } from '../../../src/handler/thrown.ts';

/** Without frames. */
function lines(thrown: unknown): string[] {
  const { stack = '' } = describeThrown(thrown);
  return stack.split('\n').filter((line) => !/^\s+at /.test(line));
}

describe('the description of an error', () => {
  it('has the errors of an AggregateError, with their own causes', async () => {
    const refused = new Error('refused', { cause: new Error('socket') });
    const failing = [Promise.reject(refused), Promise.reject('no error')];
    const thrown = await Promise.any(failing).catch((error: unknown) => error);
    expect(describeThrown(thrown)).toMatchObject({
      message: "All promises were rejected: refused; 'no error'",
      type: 'AggregateError',
    });
    expect(lines(thrown)).toEqual([
      'AggregateError: All promises were rejected',
      '    error 1 of 2: Error: refused',
      '    caused by: Error: socket',
      "    error 2 of 2: 'no error'",
    ]);
  });

  it('has the message of the first errors if an AggregateError has none', () => {
    const errors = [1, 2, 3, 4, 5].map((n) => new Error(`no ${n}`));
    expect(describeThrown(new AggregateError(errors)).message).toBe('no 1; no 2; no 3; 2 more');
  });

  it('has both errors of a SuppressedError', () => {
    const thrown = new SuppressedError(new Error('dispose'), new TypeError('run'), 'two errors');
    expect(describeThrown(thrown).message).toBe('two errors: dispose; run');
    expect(lines(thrown).slice(1)).toEqual([
      '    error: Error: dispose',
      '    suppressed: TypeError: run',
    ]);
  });

  it('has a chain of causes', () => {
    const thrown = new Error('a', { cause: new Error('b', { cause: { code: 7 } }) });
    expect(lines(thrown)).toEqual(['Error: a', 'caused by: Error: b', 'caused by: { code: 7 }']);
  });

  it('ends if errors are causes of each other', () => {
    const first = new AggregateError([], 'first');
    first.errors.push(first);
    first.cause = new Error('second', { cause: first });
    expect(lines(first)).toEqual([
      'AggregateError: first',
      '    error 1 of 1: an error from above',
      'caused by: Error: second',
      'caused by: an error from above',
    ]);
  });

  it('is bounded in depth, number and size', () => {
    let deep = new Error('deepest');
    for (let n = 0; n < 10_000; n++) deep = new Error('x', { cause: deep });
    expect(lines(deep)).toHaveLength(18);
    const wide = new AggregateError(
      Array.from({ length: 100_000 }, () => new Error('x')),
      'wide',
    );
    expect(lines(wide).at(-1)).toBe('… (99984 more errors)');
    const large = () => new Error('x'.repeat(1_000_000));
    const { message, stack = '' } = describeThrown(new AggregateError([large(), large()], 'large'));
    expect(message.length).toBeLessThan(2_000);
    expect(stack.length).toBeLessThan(33_000);
  });

  it('never throws, whatever the members of the error do', () => {
    const thrown = new AggregateError([1]);
    Object.defineProperty(thrown, 'errors', {
      get: () => {
        throw new Error('no');
      },
    });
    expect(describeThrown(thrown).message).toMatch(/cannot be described/);
  });
});
