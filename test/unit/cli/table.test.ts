import { expect, it } from 'vitest';
import { formatTable } from '../../../src/cli/table.ts';

it('makes each column as wide as its widest cell', () => {
  expect(
    formatTable(
      ['ID', 'NAME', 'WHY'],
      [
        ['1', 'a long one', 'x'],
        ['22', 'b', ''],
      ],
    ),
  ).toBe(['ID  NAME        WHY', '1   a long one  x', '22  b'].join('\n'));
});

it('keeps a row on one line', () => {
  expect(formatTable(['A', 'B'], [['two\nlines', 'b']])).toBe('A          B\ntwo lines  b');
});

it('counts characters, not code units', () => {
  expect(
    formatTable(
      ['A', 'B'],
      [
        ['😀', 'b'],
        ['xy', 'b'],
      ],
    ),
  ).toBe('A   B\n😀   b\nxy  b');
});

it('escapes control characters and counts the escaped width', () => {
  expect(formatTable(['A', 'B'], [['\u001b[2J', 'b\u202e']])).toBe(
    ['A          B', '\\u001b[2J  b\\u202e'].join('\n'),
  );
});
