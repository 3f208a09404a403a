// Errors as the service tells them.
import { describe, expect, it } from 'vitest';
import { PROBLEMS, type ProblemCode, ProblemError } from '../../../src/wire/problem.ts';

function isCode(code: string): code is ProblemCode {
  return code in PROBLEMS;
}

describe('ProblemError', () => {
  it.each(Object.keys(PROBLEMS))('%s has its status and title', (code) => {
    if (!isCode(code)) throw new Error(code);
    const [status, title] = PROBLEMS[code];
    expect(new ProblemError(code, 'what went wrong').toProblem()).toEqual({
      title,
      status,
      detail: 'what went wrong',
      code,
    });
    expect(new ProblemError(code, 'what went wrong').status).toBe(status);
  });

  it('names every failure of a validation', () => {
    const errors = ['input: must be an object', 'policy.ttl: too small'];
    expect(new ProblemError('invalid', 'two', { errors }).toProblem()).toMatchObject({ errors });
  });

  it('keeps its cause for the log, not the answer', () => {
    const problem = new ProblemError('internal', 'id 1', { cause: new Error('secret') });
    expect(problem.cause).toBeInstanceOf(Error);
    expect(JSON.stringify(problem.toProblem())).not.toContain('secret');
  });
});
