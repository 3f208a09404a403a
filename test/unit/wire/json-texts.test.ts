// Long texts of JSON values must be written byte for byte as JSON.stringify writes them.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeJson } from '../../../src/wire/json.ts';
import { encodeLongTexts } from '../../../src/wire/json-texts.ts';

const LONG = 65_536;

/** Repeats the text until it is long. */
function lengthen(text: string): string {
  return text === '' ? '' : text.repeat(Math.ceil(LONG / text.length));
}

describe('the encoding of long texts', () => {
  const plain = lengthen('abcdefghijk');

  it.each([
    ['ASCII', plain],
    ['two bytes a character', lengthen('äöü')],
    ['three bytes a character', lengthen('日本語')],
    ['surrogate pairs', lengthen('🦆')],
    ['DEL and line separators, which JSON does not escape', lengthen('\u007f\u2028')],
  ])('of %s equals JSON.stringify, alone and in an object', (_, text) => {
    const value = { id: 7, none: undefined, text, 'a "key"': [null, true], other: text };
    expect(encodeLongTexts(text)?.toString()).toBe(JSON.stringify(text));
    expect(encodeLongTexts(value)?.toString()).toBe(JSON.stringify(value));
  });

  it.each(['"', '\\', '\n', '\u0000', '\u001f', '\ud800', '\udc00'])(
    'is left to JSON.stringify if %j is anywhere in it',
    (special) => {
      for (let at = 0; at < 24; at++) {
        const start = `${plain.slice(0, at)}${special}${plain}`;
        const end = `${plain}${special}${plain.slice(0, at)}`;
        for (const text of [start, end]) {
          expect(encodeLongTexts({ text })).toBeUndefined();
          expect(encodeJson({ text }, 'output').toString()).toBe(JSON.stringify({ text }));
        }
      }
    },
  );

  it('does not look at values without long texts, and at arrays', () => {
    const none = [null, 1, 'short', {}, { text: 'short' }, [plain], { nested: { text: plain } }];
    for (const value of none) expect(encodeLongTexts(value)).toBeUndefined();
  });

  it('is left to JSON.stringify if a member is a function when it is read again', () => {
    for (const valid of [1, 2, 3]) {
      let reads = 0;
      const value = {
        text: plain,
        get odd() {
          reads += 1;
          return reads <= valid ? 1 : () => 1;
        },
      };
      const json = encodeJson(value, 'output').toString();
      expect(JSON.parse(json)).toMatchObject({ text: plain });
    }
  });

  it('equals JSON.stringify for any object', () => {
    const text = fc.oneof(fc.string(), fc.string({ unit: 'binary' }).map(lengthen));
    const object = fc.dictionary(fc.string(), fc.oneof(text, fc.jsonValue()), { maxKeys: 5 });
    fc.assert(
      fc.property(object, (value) => {
        expect(encodeJson(value, 'output').toString()).toBe(JSON.stringify(value));
      }),
      { numRuns: 200 },
    );
  });
});
