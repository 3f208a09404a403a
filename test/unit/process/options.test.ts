// The options of a model process and their errors.
import { createModelProcess, type ModelProcessOptions } from 'millrace/process';
import { expect, it } from 'vitest';
import { completeOptions } from '../../../src/process/options.ts';

it('completes options with the documented defaults', () => {
  expect(completeOptions({ command: 'python3' }, {})).toEqual({
    inherited: {},
    command: 'python3',
    args: [],
    env: {},
    cwd: undefined,
    callTimeoutMs: undefined,
    maxConcurrent: 1,
    maxWaiting: 1_000,
    startTimeoutMs: 600_000,
    cancelTimeoutMs: 1_500,
    stopTimeoutMs: 3_000,
    hangTimeoutMs: 60_000,
    maxFrameBytes: 268_435_456,
    streamWindowBytes: 262_144,
    maxBackoffMs: 30_000,
  });
});

it.each<[Partial<ModelProcessOptions>, string]>([
  [{ command: '' }, 'command is ""; name a program'],
  [{ maxConcurrent: 0 }, 'maxConcurrent is 0; it must be a whole number from 1 to 1000'],
  [{ startTimeoutMs: 1.5 }, 'startTimeoutMs is 1.5'],
  [{ callTimeoutMs: -1 }, 'callTimeoutMs is -1'],
  [{ maxFrameBytes: Number.NaN }, 'maxFrameBytes is null'],
])('refuses %j', (options, message) => {
  expect(() => createModelProcess({ command: 'python3', ...options })).toThrow(message);
});
