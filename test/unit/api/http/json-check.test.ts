import { describe, expect, it } from 'vitest';
import { isJson } from '../../../../src/api/http/json-check.ts';
import { fc } from '../../../support/properties.ts';

function isParsed(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const check = (text: string) => isJson(Buffer.from(text));

/** Pieces of JSON in any order: seldom JSON, and often nearly. */
const piece = fc.constantFrom(
  ...[
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    ' ',
    '\n',
    '\u00a0',
    '"',
    '"a"',
    '"a":',
    '\\',
    '\u0001',
    '\u007f',
  ],
  ...['1', '0', '-', '.', 'e', 'E', '+', '01', '-0.5e+3', '1e5', 'true', 'null', 'fals', 'false'],
  ...['"\\u00e9"', '"\\uD83D"', '"\\u12G4"', '"\\x"', '"\\\\"', '"\\""', '"é😀"', '\ufeff'],
);

describe('bytes', () => {
  it('are JSON when JSON.parse takes them, whatever the value is', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 5 }), fc.constantFrom('', ' ', '\r\n\t '), (text, space) => {
        expect(check(space + text + space)).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it('are no JSON when JSON.parse refuses them', () => {
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const text = pieces.join('');
        expect([text, check(text)]).toEqual([text, isParsed(text)]);
      }),
      { numRuns: 20_000 },
    );
  });

  it('are judged as JSON.parse does after any one character of them was changed', () => {
    const text = '{"a":[1,-0.5e+3,true,null,"\\u00e9\\n",{}],"b":{"c":"é"},"d":[]}';
    for (let at = 0; at < text.length; at++) {
      for (const char of ['', ...'{}[],:"\\0-.eEut x\u0001']) {
        const changed = text.slice(0, at) + char + text.slice(at + 1);
        expect([changed, check(changed)]).toEqual([changed, isParsed(changed)]);
      }
    }
  });

  it('may be nested deeper than a stack goes', () => {
    const depth = 1_000_000;
    expect(check('['.repeat(depth) + ']'.repeat(depth))).toBe(true);
    expect(check('['.repeat(depth) + ']'.repeat(depth - 1))).toBe(false);
  });
});
