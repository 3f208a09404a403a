import { describe, expect, it } from 'vitest';
import { findLastOutput } from '../../../../src/control/scaling/exit-report.ts';

const line = (level: number, rest: object) => JSON.stringify({ level, time: 1, ...rest });

describe('the last words of a worker', () => {
  it('are its last line, where errors came from apart', () => {
    const log = 'before\nError: this handler is broken\n    at file:///h.mjs:1:7\n}\n';
    expect(findLastOutput(log)).toBe('Error: this handler is broken');
  });

  it('are not that all was well', () => {
    const log = ['Error: out of luck', line(30, { msg: 'worker ready' }), ''].join('\n');
    expect(findLastOutput(log)).toBe('Error: out of luck');
    expect(findLastOutput(`${line(30, { msg: 'worker ready' })}\n`)).toBeUndefined();
  });

  it('are what a complaint in its log says, with the cause, and not its fields', () => {
    const err = { type: 'Error', message: 'no such file', stack: 'Error: no such file\n    at x' };
    expect(findLastOutput(line(50, { msg: 'worker failed', err }))).toBe(
      'worker failed: no such file',
    );
    expect(findLastOutput(line(40, { msg: 'it fails: no such file', err }))).toBe(
      'it fails: no such file',
    );
  });

  it('is a line that only looks like a log line, unchanged', () => {
    expect(findLastOutput('{"level":30,"msg":"cut o')).toBe('{"level":30,"msg":"cut o');
  });

  it('are nothing where nothing was said, and never long', () => {
    expect(findLastOutput('\n  at x\n')).toBeUndefined();
    expect(findLastOutput('x'.repeat(1_000))).toHaveLength(300);
  });
});
