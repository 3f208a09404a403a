// Control characters of others, escaped for terminals and logs.

import { describe, expect, it } from 'vitest';
import { escapeControls, escapeLine, limitText } from '../../../../src/base/text/printable.ts';
import { fc } from '../../../support/properties.ts';

describe('escapeControls', () => {
  it.each([
    ['an escape sequence', '\u001b[2J', '\\u001b[2J'],
    ['C1 controls', 'a\u009b31mb', 'a\\u009b31mb'],
    ['bidirectional overrides', 'a\u202eb\u2066c', 'a\\u202eb\\u2066c'],
    ['a bell, a backspace, DEL and NUL', '\u0007\b\u007f\0', '\\u0007\\u0008\\u007f\\u0000'],
    ['a carriage return that hides a line', 'bad\rgood', 'bad\\u000dgood'],
    ['half a surrogate pair', 'a\ud83d', 'a\\ud83d'],
    ['separators of lines and paragraphs', '\u2028\u2029', '\\u2028\\u2029'],
  ])('escapes %s', (_, text, escaped) => {
    expect(escapeControls(text)).toBe(escaped);
  });

  it.each(['tab\tand line\n', 'dos\r\nlines\r\n', 'é 漢字 👩‍💻 العربية', ''])(
    'leaves %j',
    (text) => {
      expect(escapeControls(text)).toBe(text);
    },
  );

  it('keeps JSON the same value', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.string({ unit: 'binary' }), (value, text) => {
        const json = JSON.stringify({ value, text });
        expect(JSON.parse(escapeControls(json))).toEqual(JSON.parse(json));
      }),
      { seed: 1 },
    );
  });
});

it('leaves no line break of a line', () => {
  expect(escapeLine('a\nb\r\nc\rd\u001b\te')).toBe('a\\nb\\nc\\u000dd\\u001b\te');
});

describe('limitText', () => {
  it('states how much it left out', () => {
    expect(limitText('x'.repeat(12), 10)).toBe('xxxxxxxxxx… (2 more characters)');
    expect(limitText('short', 10)).toBe('short');
  });
});
