import { describe, expect, it } from 'vitest';
import {
  type Chunk,
  checkMetrics,
  encodeChunk,
  encodeJsonChunk,
  MAX_CHUNK_BYTES,
  MAX_METRICS_BYTES,
  type Metrics,
  splitChunk,
} from '../../../../src/wire/chunk/chunk.ts';
import { joinOutputs } from '../../../../src/wire/chunk/chunk-bytes.ts';
import {
  ChunkOrderError,
  RESERVED_METRICS,
  reassemble,
} from '../../../../src/wire/chunk/chunk-pieces.ts';
import { type Json, NotJsonError } from '../../../../src/wire/json.ts';
import { fc } from '../../../support/properties.ts';

const FRAME_BYTES = '{"output":,"metrics":{}}'.length;

/** Text made of what is hard to cut: escapes of both lengths, 1 to 4 bytes, lone surrogates. */
const hardText = fc.string({
  unit: fc.constantFrom(
    ...[
      'a',
      '"',
      '\\',
      '\n',
      '\u0000',
      '\u001f',
      'é',
      '€',
      '\u2028',
      '😀',
      '\ud83d',
      '\ude00',
      'u',
    ],
    ...[',"metrics":{', ',"metrics":{"part":', '\\\\\\', '}', '[', '\\u00e9'],
  ),
  maxLength: 300,
  size: 'max',
});

const hardJson: fc.Arbitrary<Json> = fc.oneof(
  hardText,
  fc.array(hardText.map(shorten), { maxLength: 60, size: 'max' }),
  fc.array(fc.integer(), { maxLength: 300, size: 'max' }),
  fc.dictionary(hardText, fc.oneof(hardText, fc.array(hardText))),
  fc.jsonValue({ maxDepth: 5 }).map(dropNegativeZero),
  fc.array(fc.jsonValue({ maxDepth: 3 }).map(dropNegativeZero), { maxLength: 50, size: 'max' }),
);

/** Small enough that most values split; with metrics on the last piece 100 bytes still suffice. */
const maxBytes = fc.integer({ min: 100, max: 400 });
const metrics: fc.Arbitrary<Metrics> = fc.constantFrom({}, { tokens: 3 }, { 'é"': 1.5 });

function dropNegativeZero(value: unknown): Json {
  return JSON.parse(JSON.stringify(value));
}

/** From 0 to 62 code units: elements that fill a small piece nearly, exactly, and too much. */
function shorten(text: string): string {
  return text.slice(0, text.length % 63);
}

function parse(bytes: Uint8Array): Chunk {
  return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
}

function endsInsideCodePoint(left: Json, right: Json | undefined): boolean {
  if (typeof left !== 'string' || typeof right !== 'string') return false;
  return /[\ud800-\udbff]$/.test(left) && /^[\udc00-\udfff]/.test(right);
}

describe('encodeChunk', () => {
  it('writes a small value as one chunk in the exact layout', () => {
    expect(encodeChunk({ i: 1 }, {}).map(String)).toEqual(['{"output":{"i":1},"metrics":{}}']);
    expect(encodeChunk('a', { tokens: 3 }).map(String)).toEqual([
      '{"output":"a","metrics":{"tokens":3}}',
    ]);
  });

  it('refuses what is not JSON, naming the path', () => {
    expect(() => encodeChunk({ a: [1n] }, {})).toThrow(NotJsonError);
    expect(() => encodeChunk({ a: [1n] }, {})).toThrow('output.a[0]');
    expect(() => encodeChunk(undefined, {})).toThrow(NotJsonError);
  });

  it('refuses invalid metrics', () => {
    expect(() => encodeChunk(1, { tokens: Number.NaN })).toThrow(TypeError);
  });

  it('writes pieces whose metrics start with part, with the handler’s metrics on the last', () => {
    const pieces = encodeChunk('x'.repeat(100), { tokens: 3 }, { maxBytes: 120 }).map(String);
    expect(pieces).toEqual([
      `{"output":"${'x'.repeat(52)}","metrics":{"part":0,"parts":2,"encoding":0}}`,
      `{"output":"${'x'.repeat(48)}","metrics":{"part":1,"parts":2,"encoding":0,"tokens":3}}`,
    ]);
  });

  it('splits an array into arrays of consecutive elements', () => {
    const numbers = Array.from({ length: 40 }, (_, index) => index);
    const chunks = splitChunk({ output: numbers, metrics: {} }, { maxBytes: 120 });
    expect(chunks.length).toBeGreaterThan(1);
    expect(chunks.flatMap((chunk) => chunk.output)).toEqual(numbers);
    expect(chunks.every((chunk) => chunk.metrics['encoding'] === 1)).toBe(true);
  });

  it('splits an object as its JSON text', () => {
    const output = { text: 'é"'.repeat(60) };
    const chunks = splitChunk({ output, metrics: {} }, { maxBytes: 120 });
    expect(chunks.map((chunk) => chunk.output).join('')).toBe(JSON.stringify(output));
    expect(chunks.every((chunk) => chunk.metrics['encoding'] === 2)).toBe(true);
  });

  it('splits an array with an element too large for a piece as the JSON text of the array', () => {
    const output = [1, 'x'.repeat(200), 2];
    const chunks = splitChunk({ output, metrics: {} }, { maxBytes: 120 });
    expect(chunks.map((chunk) => chunk.output).join('')).toBe(JSON.stringify(output));
    expect(chunks.every((chunk) => chunk.metrics['encoding'] === 2)).toBe(true);
  });

  it.each([
    [41, 1],
    [42, 2],
  ])(
    'fits an element of %i bytes into a piece with space for 41 as encoding %i',
    (bytes, encoding) => {
      const element = 'x'.repeat(bytes - 2);
      const chunks = splitChunk({ output: [element, element], metrics: {} }, { maxBytes: 98 });
      expect(chunks.map((chunk) => chunk.metrics['encoding'])).toContain(encoding);
      expect(reassemble(chunks)).toEqual([[element, element]]);
    },
  );

  it('throws a RangeError if the output does not fit beside the metrics', () => {
    const metrics = { ['m'.repeat(60)]: 1 };
    expect(() => encodeChunk('x'.repeat(100), metrics, { maxBytes: 100 })).toThrow(RangeError);
  });

  it('splits beside the largest metrics that are allowed', () => {
    const metrics = { ['m'.repeat(MAX_METRICS_BYTES - 6)]: 1 };
    const pieces = encodeChunk('€'.repeat(400_000), metrics);
    expect(Math.max(...pieces.map((piece) => piece.length))).toBeLessThanOrEqual(MAX_CHUNK_BYTES);
    expect(reassemble(pieces.map(parse))).toEqual(['€'.repeat(400_000)]);
  });

  it.each([
    ['ASCII', 'x', 1],
    ['2-byte', 'é', 2],
    ['3-byte', '€', 3],
    ['4-byte', '😀', 4],
  ])('keeps a chunk of 1,000,000 bytes whole and splits one of 1,000,001: %s', (_, unit, width) => {
    const textBytes = MAX_CHUNK_BYTES - FRAME_BYTES - 2;
    const filler = 'x'.repeat(textBytes % width);
    const exact = filler + unit.repeat(Math.floor(textBytes / width));
    const whole = encodeChunk(exact, {});
    expect(whole.map((chunk) => chunk.length)).toEqual([1_000_000]);
    const split = encodeChunk(`${exact}x`, {});
    expect(split).toHaveLength(2);
    expect(Math.max(...split.map((chunk) => chunk.length))).toBeLessThanOrEqual(1_000_000);
    expect(reassemble(split.map(parse))).toEqual([`${exact}x`]);
  });

  it('counts the bytes of the metrics in the limit', () => {
    const exact = 'x'.repeat(MAX_CHUNK_BYTES - '{"output":"","metrics":{"é":1}}'.length - 1);
    expect(encodeChunk(exact, { é: 1 })).toHaveLength(1);
    expect(encodeChunk(`${exact}x`, { é: 1 })).toHaveLength(2);
  });
});

describe('encodeJsonChunk', () => {
  it('encodes JSON bytes like encodeChunk encodes the value', () => {
    fc.assert(
      fc.property(hardJson, metrics, maxBytes, (value, own, limit) => {
        const options = { maxBytes: limit };
        const bytes = new TextEncoder().encode(JSON.stringify(value));
        const expected = encodeChunk(value, own, options).map(String);
        expect(encodeJsonChunk(bytes, own, options).map(String)).toEqual(expected);
      }),
    );
  });
});

describe('splitting', () => {
  it('returns exactly the yielded values, for any JSON', () => {
    fc.assert(
      fc.property(fc.array(hardJson, { maxLength: 4 }), metrics, maxBytes, (values, own, limit) => {
        const pieces = values.flatMap((value) => encodeChunk(value, own, { maxBytes: limit }));
        expect(JSON.stringify(reassemble(pieces.map(parse)))).toBe(JSON.stringify(values));
      }),
      { numRuns: 500 },
    );
  });

  it('joins the bytes to the JSON text of all values, for any JSON', () => {
    fc.assert(
      fc.property(fc.array(hardJson, { maxLength: 4 }), metrics, maxBytes, (values, own, limit) => {
        const pieces = values.flatMap((value) => encodeChunk(value, own, { maxBytes: limit }));
        const expected = JSON.stringify(values);
        const bytes = Buffer.byteLength(expected);
        expect(String(joinOutputs(pieces, bytes))).toBe(expected);
        expect(joinOutputs(pieces, bytes - 1)).toBeUndefined();
      }),
      { numRuns: 500 },
    );
  });

  it('creates no piece larger than the limit, for any value', () => {
    fc.assert(
      fc.property(hardJson, metrics, maxBytes, (value, own, limit) => {
        for (const piece of encodeChunk(value, own, { maxBytes: limit })) {
          expect(piece.length).toBeLessThanOrEqual(limit);
        }
      }),
      { numRuns: 500 },
    );
  });

  it('never splits a string inside a code point', () => {
    fc.assert(
      fc.property(hardJson, metrics, maxBytes, (value, own, limit) => {
        const chunks = splitChunk({ output: value, metrics: own }, { maxBytes: limit });
        chunks.forEach(({ output }, index) => {
          expect(endsInsideCodePoint(output, chunks[index + 1]?.output)).toBe(false);
        });
      }),
      { numRuns: 500 },
    );
  });

  it('numbers the parts from 0 and puts the handler’s metrics on the last', () => {
    fc.assert(
      fc.property(hardJson, maxBytes, (value, limit) => {
        const chunks = splitChunk({ output: value, metrics: { own: 7 } }, { maxBytes: limit });
        if (chunks.length === 1) return;
        const described = chunks.map(({ metrics: { part, parts, own } }) => ({ part, parts, own }));
        const last = chunks.length - 1;
        expect(described).toEqual(
          chunks.map((_, part) => ({
            part,
            parts: chunks.length,
            own: part === last ? 7 : undefined,
          })),
        );
      }),
    );
  });
});

describe('reassemble', () => {
  const [first, second, third, ...rest] = splitChunk(
    { output: 'x'.repeat(130), metrics: {} },
    { maxBytes: 120 },
  );
  if (!first || !second || !third || rest.length > 0) throw new Error('expected three pieces');
  const whole: Chunk = { output: 1, metrics: { tokens: 2 } };

  it.each<[string, Chunk[]]>([
    ['a missing first part', [second, third]],
    ['a missing middle part', [first, third]],
    ['a missing last part', [first, second]],
    ['parts out of order', [first, third, second]],
    ['a repeated part', [first, first, second]],
    ['a whole value between parts', [first, whole, second]],
    ['parts of another value', [first, { ...second, metrics: { ...second.metrics, parts: 4 } }]],
    ['a change of encoding', [first, { ...second, metrics: { ...second.metrics, encoding: 2 } }]],
    ['an unknown encoding', [{ output: '', metrics: { part: 0, parts: 1, encoding: 3 } }]],
    ['part without parts', [{ output: '', metrics: { part: 0 } }]],
  ])('throws on %s', (_, chunks) => {
    expect(() => reassemble(chunks)).toThrow(ChunkOrderError);
  });

  it('throws on a piece that is not a string', () => {
    const piece = { output: 5, metrics: { part: 0, parts: 1, encoding: 0 } };
    expect(() => reassemble([piece])).toThrow('string');
  });

  it('names the expected and the found part', () => {
    expect(() => reassemble([first, third])).toThrow(/part 1 of 3.*part 2 of 3/);
  });

  it('returns values in order, split and whole ones mixed', () => {
    expect(reassemble([whole, first, second, third, whole])).toEqual([1, 'x'.repeat(130), 1]);
  });

  it('returns an empty list for no chunks', () => {
    expect(reassemble([])).toEqual([]);
  });

  it('accepts an iterator', () => {
    expect(reassemble([whole].values())).toEqual([1]);
  });
});

describe('joinOutputs', () => {
  it('returns an empty array for no chunks', () => {
    expect(String(joinOutputs([], 2))).toBe('[]');
    expect(joinOutputs([], 1)).toBeUndefined();
  });

  it('is not misled by outputs and metrics that look like the boundary', () => {
    const output = { a: ',"metrics":{"part":0', metrics: { part: 0, parts: 9, encoding: 0 } };
    const chunks = encodeChunk(output, { ',"metrics":{"part":': 1, metrics: 2 });
    expect(String(joinOutputs(chunks, 1_000))).toBe(JSON.stringify([output]));
  });

  it('throws on a missing part', () => {
    const pieces = encodeChunk('x'.repeat(130), {}, { maxBytes: 120 });
    expect(() => joinOutputs(pieces.slice(0, 2), 1_000)).toThrow(ChunkOrderError);
    expect(() => joinOutputs(pieces.slice(1), 1_000)).toThrow(ChunkOrderError);
  });

  it('throws on bytes that are not a chunk', () => {
    expect(() => joinOutputs([Buffer.from('{}')], 1_000)).toThrow('chunk');
  });

  it('reads chunks that lie in the middle of a larger buffer', () => {
    const [chunk] = encodeChunk({ a: 'é' }, {});
    const larger = Buffer.concat([
      Buffer.alloc(7, 1),
      chunk ?? Buffer.alloc(0),
      Buffer.alloc(7, 1),
    ]);
    expect(String(joinOutputs([larger.subarray(7, -7)], 1_000))).toBe('[{"a":"é"}]');
  });
});

describe('checkMetrics', () => {
  it('accepts finite numbers and empty metrics', () => {
    expect(() => checkMetrics({})).not.toThrow();
    expect(() => checkMetrics({ tokens: 0, seconds: -1.5 })).not.toThrow();
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, '3', null, undefined, 1n, {}, true])(
    'refuses the value %s, naming the metric',
    (value) => {
      const metrics: Metrics = { tokens: 0 };
      Reflect.set(metrics, 'tokens', value);
      expect(() => checkMetrics(metrics)).toThrow(TypeError);
      expect(() => checkMetrics(metrics)).toThrow('metrics.tokens');
    },
  );

  it.each(RESERVED_METRICS)('refuses the reserved name %s', (name) => {
    expect(() => checkMetrics({ [name]: 1 })).toThrow(TypeError);
    expect(() => checkMetrics({ [name]: 1 })).toThrow(`metrics.${name}`);
  });

  it.each([
    ['null', 'null'],
    ['an array', '[1]'],
    ['a number', '3'],
    ['a string', '"abc"'],
  ])('refuses %s instead of metrics', (_, text) => {
    const metrics: Metrics = JSON.parse(text);
    expect(() => checkMetrics(metrics)).toThrow(TypeError);
  });

  it('accepts 65,536 bytes and refuses 65,537, counted as UTF-8', () => {
    const name = 'é'.repeat((MAX_METRICS_BYTES - 6) / 2);
    expect(() => checkMetrics({ [name]: 1 })).not.toThrow();
    expect(() => checkMetrics({ [name]: 10 })).toThrow('65537 bytes');
  });
});
