// Log lines as people read them.
import { stripVTControlCharacters } from 'node:util';
import { expect, it } from 'vitest';
import { createLog } from '../../../src/base/log.ts';
import { formatLogLine, formatRunPodLine } from '../../../src/cli/terminal-log.ts';

function format(entry: object): string {
  return stripVTControlCharacters(formatLogLine(JSON.stringify(entry)));
}

it('shows level, endpoint, message and fields', () => {
  const line = format({ level: 40, time: 0, endpoint: 'echo', msg: 'slow', job: 'j1', n: [1] });
  expect(line).toMatch(/^\d\d:\d\d:\d\d warn {2}echo slow job=j1 n=\[1\]$/);
});

it('shows an error with its stack, indented', () => {
  const err = { message: 'no', stack: 'Error: no\n    at x' };
  expect(format({ level: 50, time: 0, msg: 'failed', err })).toContain(
    'failed\n    Error: no\n        at x',
  );
});

it('shows the reason of an unloadable handler without Millrace’s stack', () => {
  const message = '/h.ts: has no default export';
  const err = { type: 'HandlerNotLoadedError', message, stack: `${message}\n    at ours` };
  expect(format({ level: 60, msg: 'worker failed', err })).toBe(
    `fatal worker failed\n    ${message}`,
  );
});

it('keeps an entry on one line', () => {
  const line = format({
    level: 40,
    msg: 'attempt failed: no\nerror forged',
    a: 'b\r\nc',
    'd\n': 1,
  });
  expect(line).toBe('warn  attempt failed: no\\nerror forged a=b\\nc d\\n=1');
});

it('shows a line without a time', () => {
  expect(format({ level: 40, msg: '3 lines were left out' })).toBe('warn  3 lines were left out');
});

it.each(['plain text', '{"a":1}', '[1]', 'null'])('leaves %s unchanged', (line) => {
  expect(formatLogLine(line)).toBe(line);
});

function formatOnRunPod(entry: object): unknown {
  return JSON.parse(formatRunPodLine(JSON.stringify(entry)));
}

it('names the job on RunPod like RunPod’s own client', () => {
  const entry = { level: 40, time: 0, worker: 'pod', job: 'j1-e1', msg: 'slow', ms: 3 };
  expect(formatOnRunPod(entry)).toEqual({
    requestId: 'j1-e1',
    message: 'slow worker=pod ms=3',
    level: 'WARN',
  });
});

it('names a job on RunPod only if there is one, with the stack in the message', () => {
  const err = { message: 'no', stack: 'Error: no\n    at x' };
  expect(formatOnRunPod({ level: 60, time: 0, msg: 'worker failed', err })).toEqual({
    requestId: null,
    message: 'worker failed\n    Error: no\n        at x',
    level: 'ERROR',
  });
  expect(JSON.parse(formatRunPodLine('plain text\n'))).toEqual({
    requestId: null,
    message: 'plain text',
    level: 'INFO',
  });
});

it('omits the middle of a message that is too long for RunPod', () => {
  const { message } = JSON.parse(formatRunPodLine(`begin ${'x'.repeat(9_000)} end`));
  expect(message).toHaveLength(4_096);
  expect(message).toMatch(/^begin x+…x+ end$/);
});

it.each([
  [
    'an entry',
    JSON.stringify({ level: 30, msg: '\u001b[2J', '\u009b': '\u202e', endpoint: '\u0007' }),
  ],
  [
    'an error',
    JSON.stringify({ level: 30, msg: 'x', err: { stack: 'Error: \u001b]0;owned\u0007' } }),
  ],
  ['a text', '\u001b[31mred\r'],
])('escapes the control characters of %s', (_, line) => {
  const shown = stripColours(formatLogLine(line));
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
  expect(shown).not.toMatch(/[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]/);
});

/** Takes out our own colours, and no other sequence. */
function stripColours(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a colour begins with one.
  return text.replaceAll(/\x1b\[\d{1,2}m/g, '');
}

it('truncates long texts and escapes C1 and bidirectional controls as JSON', () => {
  const lines: string[] = [];
  const log = createLog({ maxTextChars: 10, destination: { write: (line) => lines.push(line) } });
  log.info(
    { detail: 'x'.repeat(20), name: '\u009b\u202e', err: new Error('y'.repeat(20)) },
    'heard',
  );
  expect(lines[0]).toMatch(/\\u009b\\u202e/);
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({
    detail: 'xxxxxxxxxx… (10 more characters)',
    name: '\u009b\u202e',
    err: { message: 'yyyyyyyyyy… (10 more characters)' },
    msg: 'heard',
  });
});
