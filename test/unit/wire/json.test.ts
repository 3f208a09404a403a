import { describe, expect, it } from 'vitest';
import {
  encodeJson,
  encodeLongTexts,
  NotJsonError,
  stringifyJson,
} from '../../../src/wire/json.ts';
import { fc } from '../../support/properties.ts';

function catchRefusal(value: unknown): NotJsonError {
  try {
    stringifyJson(value, 'output');
  } catch (error) {
    if (error instanceof NotJsonError) return error;
    throw error;
  }
  throw new Error('the value was not refused');
}

function nest(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

/** Sends a JSON value through the thorough conversion: the Date at its side has a toJSON. */
function besideDate(value: unknown): { date: Date; value: unknown } {
  return { date: new Date(0), value };
}

describe('stringifyJson on JSON values', () => {
  it('writes any JSON value as JSON.stringify does', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        expect(stringifyJson(value, 'output')).toBe(JSON.stringify(value));
      }),
    );
  });

  it('writes any JSON value like JSON.stringify if it must be converted', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        const mixed = besideDate(value);
        expect(stringifyJson(mixed, 'output')).toBe(JSON.stringify(mixed));
      }),
    );
  });

  it('keeps a member named __proto__', () => {
    const value: unknown = JSON.parse('{"__proto__":{"a":1},"b":2}');
    expect(stringifyJson(value, 'output')).toBe('{"__proto__":{"a":1},"b":2}');
    expect(stringifyJson(besideDate(value), 'output')).toContain('{"__proto__":{"a":1},"b":2}');
  });

  it('keeps lone surrogates by escaping them', () => {
    expect(stringifyJson('a\ud83d', 'output')).toBe('"a\\ud83d"');
  });

  it('omits undefined members', () => {
    const value = { a: undefined, b: 1 };
    expect(stringifyJson(value, 'output')).toBe('{"b":1}');
    expect(stringifyJson([value, new Date(0)], 'output')).toBe(
      '[{"b":1},"1970-01-01T00:00:00.000Z"]',
    );
  });

  it('writes an object that occurs twice without being a cycle', () => {
    const shared = { a: 1 };
    expect(stringifyJson([shared, shared, new Date(0)], 'output')).toBe(
      '[{"a":1},{"a":1},"1970-01-01T00:00:00.000Z"]',
    );
  });

  it('accepts nesting of 1,000 levels', () => {
    expect(stringifyJson(nest(1_000), 'output')).toBe(`${'['.repeat(1_000)}1${']'.repeat(1_000)}`);
  });
});

describe('stringifyJson on values that convert to JSON', () => {
  it('writes a Buffer, a Uint8Array and an ArrayBuffer as base64 strings', () => {
    const bytes = Uint8Array.from([1, 2, 3, 255]);
    const value = [Buffer.from(bytes), bytes.subarray(1), bytes.buffer];
    expect(stringifyJson(value, 'output')).toBe('["AQID/w==","AgP/","AQID/w=="]');
    expect(stringifyJson(bytes, 'output')).toBe('"AQID/w=="');
  });

  it('calls toJSON with the key', () => {
    const value = { when: new Date(0), own: { toJSON: (key: string) => ({ key, bytes: null }) } };
    expect(stringifyJson(value, 'output')).toBe(
      '{"when":"1970-01-01T00:00:00.000Z","own":{"key":"own","bytes":null}}',
    );
  });

  it('checks the result of toJSON', () => {
    expect(catchRefusal({ own: { toJSON: () => [Number.NaN] } }).path).toBe('output.own[0]');
    expect(catchRefusal({ toJSON: () => undefined }).path).toBe('output');
    const hidden = Object.defineProperty({ a: 1 }, 'toJSON', { value: () => Number.NaN });
    expect(catchRefusal({ hidden }).path).toBe('output.hidden');
    expect(catchRefusal(Object.assign([1], { toJSON: () => Number.NaN })).path).toBe('output');
  });

  it('calls toJSON that is not enumerable', () => {
    const value = Object.defineProperty({ a: 1 }, 'toJSON', { value: () => 'mine' });
    expect(stringifyJson({ value }, 'output')).toBe('{"value":"mine"}');
  });

  it('rethrows errors of toJSON', () => {
    const failure = new RangeError('mine');
    const value = {
      toJSON() {
        throw failure;
      },
    };
    expect(() => stringifyJson([value], 'output')).toThrow(failure);
  });

  it('writes the enumerable members of an instance', () => {
    class Point {
      x = 1;
      y = 2;
    }
    expect(stringifyJson(new Point(), 'output')).toBe('{"x":1,"y":2}');
  });

  it('writes boxed primitives as their content', () => {
    expect(stringifyJson([Object(1), Object('a'), Object(true)], 'output')).toBe('[1,"a",true]');
  });
});

describe('stringifyJson on values that are not JSON', () => {
  class Sealed {
    readonly #secret = 1;
    reveal(): number {
      return this.#secret;
    }
  }

  it.each<[string, unknown, string]>([
    ['undefined', undefined, 'undefined'],
    ['a function', () => 1, 'a function'],
    ['a symbol', Symbol('s'), 'a symbol'],
    ['NaN', Number.NaN, 'NaN'],
    ['a boxed NaN', Object(Number.NaN), 'NaN'],
    ['Infinity', Number.POSITIVE_INFINITY, 'Infinity'],
    ['-Infinity', Number.NEGATIVE_INFINITY, '-Infinity'],
    ['a BigInt', 1n, 'BigInt'],
    ['an invalid Date', new Date(Number.NaN), 'invalid Date'],
    ['a Map', new Map([[1, 2]]), 'Map'],
    ['a Set', new Set([1]), 'Set'],
    ['a Promise', Promise.resolve(1), 'Promise'],
    ['an Error with members', Object.assign(new Error('e'), { code: 'E' }), 'Error'],
    ['a RegExp', /a/, 'RegExp'],
    ['a WeakMap', new WeakMap(), 'WeakMap'],
    ['an iterator', [].values(), 'Iterator without enumerable members'],
    ['a Float32Array', new Float32Array(2), 'Float32Array'],
    ['a Uint8ClampedArray', new Uint8ClampedArray(2), 'Uint8ClampedArray'],
    ['a DataView', new DataView(new ArrayBuffer(2)), 'DataView'],
    ['an instance that hides its content', new Sealed(), 'Sealed'],
  ])('refuses %s, at the root and in an array', (_, value, found) => {
    expect(catchRefusal(value).path).toBe('output');
    expect(catchRefusal(value).message).toMatch(new RegExp(found));
    expect(catchRefusal({ items: [1, value] }).path).toBe('output.items[1]');
  });

  it.each<[string, unknown]>([
    ['a function', () => 1],
    ['a symbol', Symbol('s')],
  ])('refuses %s as a member', (_, value) => {
    expect(catchRefusal({ a: value }).path).toBe('output.a');
  });

  it('refuses a hole in an array', () => {
    expect(catchRefusal({ list: new Array(2) }).path).toBe('output.list[0]');
  });

  it('names the path from the root that the caller gave', () => {
    const value = { items: [0, 1, 2, { score: Number.NaN, 'odd key': 1 }] };
    expect(catchRefusal(value).path).toBe('output.items[3].score');
    expect(catchRefusal({ 'odd key': [1n] }).path).toBe('output["odd key"][0]');
    expect(() => stringifyJson([1n], 'progress')).toThrow(
      expect.objectContaining({ name: NotJsonError.name, path: 'progress[0]' }),
    );
  });

  it('names where a cycle closes', () => {
    const value: { name: string; children: unknown[] } = { name: 'a', children: [] };
    value.children.push({ parent: value });
    expect(catchRefusal(value).path).toBe('output.children[0].parent');
    expect(catchRefusal(value).message).toContain('cycle');
  });

  it('refuses nesting of more than 1,000 levels', () => {
    expect(catchRefusal(nest(1_001)).message).toContain('1000');
  });

  it('refuses nesting of 100,000 levels with a short message', () => {
    expect(catchRefusal(nest(100_000)).message.length).toBeLessThan(500);
  });
});

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
  ])('equals JSON.stringify for %s, alone and in an object', (_, text) => {
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
