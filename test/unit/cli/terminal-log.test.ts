// Log lines as people read them.
import { stripVTControlCharacters } from 'node:util';
import { expect, it } from 'vitest';
import { formatLogLine } from '../../../src/cli/terminal-log.ts';

function format(entry: object): string {
  return stripVTControlCharacters(formatLogLine(JSON.stringify(entry)));
}

it('shows level, endpoint, text and the rest', () => {
  const line = format({ level: 40, time: 0, endpoint: 'echo', msg: 'slow', job: 'j1', n: [1] });
  expect(line).toMatch(/^\d\d:\d\d:\d\d warn {2}echo slow job=j1 n=\[1\]$/);
});

it('shows an error with its stack, indented', () => {
  const err = { message: 'no', stack: 'Error: no\n    at x' };
  expect(format({ level: 50, time: 0, msg: 'failed', err })).toContain(
    'failed\n    Error: no\n        at x',
  );
});

it('shows of a handler that cannot be loaded what its author has to know, not our stack', () => {
  const message = '/h.ts: has no default export';
  const err = { type: 'HandlerNotLoadedError', message, stack: `${message}\n    at ours` };
  expect(format({ level: 60, msg: 'worker failed', err })).toBe(
    `fatal worker failed\n    ${message}`,
  );
});

it('shows a line without a time', () => {
  expect(format({ level: 40, msg: '3 lines were left out' })).toBe('warn  3 lines were left out');
});

it.each(['plain text', '{"a":1}', '[1]', 'null'])('leaves %s as it is', (line) => {
  expect(formatLogLine(line)).toBe(line);
});
