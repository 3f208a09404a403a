import { describe, expect, it } from 'vitest';
import { findLastOutput } from '../../../../src/control/scaling/worker-list.ts';

const line = (level: number, rest: object) => JSON.stringify({ level, time: 1, ...rest });

describe('the exit report of a worker', () => {
  it('is its last line, without the source of errors', () => {
    const log = 'before\nError: this handler is broken\n    at file:///h.mjs:1:7\n}\n';
    expect(findLastOutput(log)).toBe('Error: this handler is broken');
  });

  it('is not a success message', () => {
    const log = ['Error: out of luck', line(30, { msg: 'worker ready' }), ''].join('\n');
    expect(findLastOutput(log)).toBe('Error: out of luck');
    expect(findLastOutput(`${line(30, { msg: 'worker ready' })}\n`)).toBeUndefined();
  });

  it('is the message of its last log error with the cause, without fields', () => {
    const err = { type: 'Error', message: 'no such file', stack: 'Error: no such file\n    at x' };
    expect(findLastOutput(line(50, { msg: 'worker failed', err }))).toBe(
      'worker failed: no such file',
    );
    expect(findLastOutput(line(40, { msg: 'it fails: no such file', err }))).toBe(
      'it fails: no such file',
    );
  });

  it('is the message of its last log error with the reason that a field has', () => {
    const reason = 'Error: self-signed certificate';
    expect(findLastOutput(line(40, { reason, msg: 'version not loaded, retrying' }))).toBe(
      'version not loaded, retrying: Error: self-signed certificate',
    );
  });

  it('is a line that only looks like a log line, unchanged', () => {
    expect(findLastOutput('{"level":30,"msg":"cut o')).toBe('{"level":30,"msg":"cut o');
  });

  it('is empty without output, and never long', () => {
    expect(findLastOutput('\n  at x\n')).toBeUndefined();
    expect(findLastOutput('x'.repeat(1_000))).toHaveLength(300);
  });
});
