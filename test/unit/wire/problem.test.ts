// Errors as the service tells them.
import { describe, expect, it } from 'vitest';
import { runRequest } from '../../../src/wire/job/job-schemas.ts';
import {
  describeIssues,
  PROBLEMS,
  type ProblemCode,
  ProblemError,
} from '../../../src/wire/problem.ts';
import { errorAt } from '../../support/answers.ts';

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

function describeAll(value: unknown): string[] {
  const { error } = runRequest.safeParse(value);
  return error ? describeIssues(error) : [];
}

describe('the failures of a body', () => {
  it('are named by their paths, also members that every object inherits', () => {
    const body = JSON.parse('{"input":[],"policy":{"ttl":1,"constructor":1},"__proto__":{}}');
    expect(describeAll(body)).toEqual(
      ['input', 'policy.ttl', 'policy.constructor', '__proto__'].map(errorAt),
    );
  });

  it('are counted from the twenty-first', () => {
    const extra = Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`k${i}`, 1]));
    const described = describeAll({ input: {}, ...extra });
    expect(described).toHaveLength(21);
    expect(described.at(-1)).toMatch(/^body: .*\b4980\b/);
  });
});
