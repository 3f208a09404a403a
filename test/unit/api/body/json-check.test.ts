import { describe, expect, it } from 'vitest';
import {
  checkJson,
  findMember,
  isJson,
  JsonBoundError,
  SLICE_BYTES,
} from '../../../../src/api/body/json-check.ts';
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

  it('are not JSON when JSON.parse refuses them', () => {
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const text = pieces.join('');
        expect([text, check(text)]).toEqual([text, isParsed(text)]);
      }),
      { numRuns: 20_000 },
    );
  });

  it('are judged like JSON.parse after a change of any one character', () => {
    const text = '{"a":[1,-0.5e+3,true,null,"\\u00e9\\n",{}],"b":{"c":"é"},"d":[]}';
    for (let at = 0; at < text.length; at++) {
      for (const char of ['', ...'{}[],:"\\0-.eEut x\u0001']) {
        const changed = text.slice(0, at) + char + text.slice(at + 1);
        expect([changed, check(changed)]).toEqual([changed, isParsed(changed)]);
      }
    }
  });

  it('are judged like JSON.parse wherever a special character is in a long text', () => {
    for (let at = 0; at < 100; at++) {
      const before = 'x'.repeat(at);
      for (const special of [
        '\u0000',
        '\u001f',
        '\\',
        '\\n',
        '\\"',
        '\\u00e9',
        '"',
        '\u007f',
        'é',
      ]) {
        for (const after of ['x'.repeat(80), 'x'.repeat(7), '']) {
          const text = `["${before}${special}${after}"]`;
          expect([text, check(text)]).toEqual([text, isParsed(text)]);
        }
        const unclosed = `["${before}${special}`;
        expect([unclosed, check(unclosed)]).toEqual([unclosed, false]);
      }
    }
  });

  it('are judged like JSON.parse wherever a long text begins in the memory', () => {
    const special = [
      '\u0000',
      '\u001f',
      '\\',
      '\\n',
      '"',
      ' ',
      '!',
      '#',
      '[',
      ']',
      '\u007f',
      'é',
      '😀',
    ];
    for (let offset = 0; offset < 8; offset++) {
      for (const char of special) {
        for (let at = 1_200; at < 1_240; at++) {
          const text = `["${'x'.repeat(at)}${char}${'é'.repeat(20)}"]`;
          const memory = Buffer.from(' '.repeat(offset) + text);
          expect([offset, at, char, isJson(memory.subarray(offset))]).toEqual([
            ...[offset, at, char],
            isParsed(text),
          ]);
        }
      }
    }
  });

  it('may be nested deeper than the call stack', () => {
    const depth = 1_000_000;
    expect(check('['.repeat(depth) + ']'.repeat(depth))).toBe(true);
    expect(check('['.repeat(depth) + ']'.repeat(depth - 1))).toBe(false);
  });
});

describe('the bounds', () => {
  it.each([
    ['{"a":[1,"b"]}', { maxValues: 4 }, { maxValues: 3 }],
    ['[[[]]]', { maxDepth: 3 }, { maxDepth: 2 }],
  ])('apply to %s: %j is enough, %j is not', (text, enough, tooSmall) => {
    const json = Buffer.from(text);
    expect(isJson(json, enough)).toBe(true);
    expect(() => isJson(json, tooSmall)).toThrow(JsonBoundError);
  });
});

describe('a scan', () => {
  const large = 10 * SLICE_BYTES;

  it.each([
    ['a key of escapes', `{"input":{"${'\\u0061'.repeat(large / 6)}":0}}`],
    ['a key beside the input', `{"input":0,"${'a'.repeat(large)}":0}`],
    ['a string', `{"input":"${'a'.repeat(large)}"}`],
    ['white space', `{"input":${' '.repeat(large)}0}`],
    ['many keys', `{"input":{${'"a":0,'.repeat(large / 6)}"a":0}}`],
  ])('pauses after each slice of %s', (_what, text) => {
    const search = { name: 'input', maxBesideBytes: 2 * large, maxDepth: 9 };
    const scan = findMember(Buffer.from(text), search);
    let pauses = 0;
    while (!scan.next().done) pauses += 1;
    expect(pauses).toBeGreaterThanOrEqual(9);
    expect(pauses).toBeLessThanOrEqual(11);
  });

  it('stops within a key that exceeds the bound', () => {
    const search = { name: 'input', maxBesideBytes: SLICE_BYTES / 2, maxDepth: 9 };
    const scan = findMember(Buffer.from(`{"${'a'.repeat(large)}":0}`), search);
    expect(() => scan.next()).toThrow(JsonBoundError);
  });

  it('accepts what JSON.parse accepts, wherever it pauses', () => {
    const texts = [
      '{"a":[1,-0.5e+3,true,null,"\\u00e9\\n",{}] , "b":{"c":"é"},"d":[]}',
      '{"a":"\\u00g9"}',
      '{"a" "b"}',
      '["a\u0001"]',
      '[1,]',
      '["a',
      `["${'x'.repeat(70)}\\n${'y'.repeat(70)}"]`,
      `["${'x'.repeat(70)}\n${'y'.repeat(70)}"]`,
    ];
    for (const text of texts) {
      for (let at = 0; at <= text.length; at++) {
        const json = Buffer.from(' '.repeat(SLICE_BYTES - at) + text);
        const scan = checkJson(json, {});
        let step = scan.next();
        while (!step.done) step = scan.next();
        expect([text, at, step.value]).toEqual([text, at, isParsed(text)]);
      }
    }
  });
});
