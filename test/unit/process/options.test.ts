// The options of a model process, and which calls are to blame for the end of their child.
import { createModelProcess, type ModelProcessOptions } from 'millrace/process';
import { describe, expect, it } from 'vitest';
import { assignBlame } from '../../../src/process/calls.ts';
import { splitStart } from '../../../src/process/child-keeper.ts';
import { completeOptions } from '../../../src/process/options.ts';

describe('the options of a model process', () => {
  it('completes options with the documented defaults', () => {
    expect(completeOptions({ command: 'python3' }, {})).toEqual({
      inherited: {},
      command: 'python3',
      preload: [],
      weights: [],
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
});

describe('the end of a child', () => {
  const calls = (...owners: string[]) => owners.map((owner, index) => ({ id: index + 1, owner }));

  it.each([
    ['one call alone', calls('a'), undefined, ['culprit']],
    ['calls of one job', calls('a', 'a'), undefined, ['culprit', 'culprit']],
    ['calls of several jobs', calls('a', 'b', 'a'), undefined, ['suspect', 'suspect', 'suspect']],
    ['a known culprit', calls('a', 'b'), 2, ['neighbour', 'culprit']],
    [
      'a known culprit with two calls',
      calls('a', 'b', 'b'),
      2,
      ['neighbour', 'culprit', 'culprit'],
    ],
    ['a culprit that has ended', calls('a', 'b'), 9, ['neighbour', 'neighbour']],
    [
      'a call that the child never got',
      [...calls('a'), { id: 2, owner: 'b', isUnsent: true }],
      undefined,
      ['culprit', 'neighbour'],
    ],
  ] as const)('%s', (_, running, culprit, blames) => {
    expect([...assignBlame(running, culprit).values()]).toEqual(blames);
  });
});

describe('the parts of a start', () => {
  it.each([
    [
      'what the program tells',
      { upAt: 1_030, importMs: 700 },
      { interpreterMs: 30, importMs: 700, setupMs: 270 },
    ],
    ['only its whole, of another program', undefined, { setupMs: 1_000 }],
    [
      'no more than the whole, if a launcher has imported before',
      { upAt: 9, importMs: 5_000 },
      { interpreterMs: 0, importMs: 1_000, setupMs: 0 },
    ],
    [
      'no more than the whole, if the clock was set',
      { upAt: 9e15, importMs: Number.NaN },
      { interpreterMs: 1_000, importMs: 0, setupMs: 0 },
    ],
  ])('are %s', (_, marks, parts) => {
    expect(splitStart(1_000, 1_000, marks)).toEqual(parts);
  });
});
