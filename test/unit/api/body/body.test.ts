import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  check,
  checkNoBody,
  parseInSlices,
  parseJson,
  readSubmission,
} from '../../../../src/api/body/body.ts';
import { findMember, JsonBoundError, SLICE_BYTES } from '../../../../src/api/body/json-check.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { errorAt } from '../../../support/answers.ts';
import { countIterations } from '../../../support/count-iterations.ts';
import { fc } from '../../../support/properties.ts';

const BOUNDS = { owner: 'me', maxEnvelopeBytes: 65_536, maxJsonDepth: 1_000 };

/** Runs the search at once. */
function find(json: string | Buffer, maxBesideBytes = Number.POSITIVE_INFINITY) {
  const search = findMember(Buffer.from(json), { name: 'input', maxBesideBytes, maxDepth: 1_000 });
  for (;;) {
    const { done, value } = search.next();
    if (done) return value;
  }
}

const slice = (json: string) => find(json)?.value?.toString();

/** A string as JSON, its characters written with escapes here and there. */
const escapedString = (text: fc.Arbitrary<string>) =>
  fc.tuple(text, fc.infiniteStream(fc.boolean())).map(([value, escapes]) => {
    let json = '"';
    for (let i = 0; i < value.length; i++) {
      const unit = value.charCodeAt(i);
      const isLone = unit >= 0xd800 && unit <= 0xdfff;
      const plain = JSON.stringify(value[i]).slice(1, -1);
      const escaped = `\\u${unit.toString(16).padStart(4, '0')}`;
      json += isLone || escapes.next().value ? escaped : plain;
    }
    return `${json}"`;
  });

const space = fc.constantFrom('', ' ', '\n\t ', '\r\n');
const spaced = (json: fc.Arbitrary<string>) =>
  fc.tuple(space, json, space).map((parts) => parts.join(''));

const { value: jsonText } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom('0', '-1.5e+3', 'true', 'null', '""', '{}', '[ ]', '"\\\\"', '"\\""'),
    escapedString(fc.string({ unit: 'grapheme', maxLength: 90 })),
    escapedString(fc.string({ unit: fc.constantFrom('\\', '"', '{', ']', 'x'), maxLength: 150 })),
    fc.array(spaced(tie('value')), { maxLength: 4 }).map((items) => `[${items.join(',')}]`),
    fc
      .array(fc.tuple(spaced(escapedString(fc.string())), spaced(tie('value'))), { maxLength: 4 })
      .map((members) => `{${members.map((member) => member.join(':')).join(',')}}`),
  ),
}));

const key = fc.oneof(
  escapedString(fc.constantFrom('input', 'policy', 'inpu', 'input2', '__proto__', '')),
  escapedString(fc.string({ maxLength: 8 })),
);

const objectText = fc
  .tuple(fc.array(fc.tuple(spaced(key), spaced(jsonText)), { maxLength: 6 }), space, space)
  .map(([members, before, after]) => {
    return `${before}{${members.map((member) => member.join(':')).join(',')}}${after}`;
  });

describe('the bytes of a member', () => {
  it('equal those of JSON.parse for any object', () => {
    fc.assert(
      fc.property(objectText, (json) => {
        const object = JSON.parse(json);
        const found = slice(json);
        expect(found !== undefined).toBe(Object.hasOwn(object, 'input'));
        if (found === undefined) return;
        expect(JSON.parse(found)).toEqual(object.input);
        expect(found).toBe(found.trim());
        expect(json).toContain(found);
      }),
      { numRuns: 1_500 },
    );
  });

  it('are those of the last one if there are several', () => {
    expect(slice('{"input":{"a":1},"input":{"a":2}}')).toBe('{"a":2}');
  });

  it('are found behind a key that is written with escapes', () => {
    expect(slice('{"\\u0069nput" : [ 1 ] }')).toBe('[ 1 ]');
  });

  it('are not those of a nested member with the same name', () => {
    expect(slice('{"policy":{"input":1},"x":["input",{"input":2}]}')).toBeUndefined();
  });

  it('keep their spelling: numbers, order and white space inside', () => {
    expect(slice('{"input": {"z":1.0e2,  "a":9007199254740993} }')).toBe(
      '{"z":1.0e2,  "a":9007199254740993}',
    );
  });

  it('end where a long string with escaped quotes ends', () => {
    const text = JSON.stringify(`${'x'.repeat(63)}\\"${'\\'.repeat(301)}"{`);
    expect(slice(`{"a":${text},"input":${text},"b":1}`)).toBe(text);
  });
});

describe('the search for a member', () => {
  it('accepts the same documents as JSON.parse', () => {
    const text = '{"a":[1,{"input":2}],"input":{"b":"\\u00e9"},"c":"x\\""}';
    for (let at = 0; at < text.length; at++) {
      for (const char of ['', ...'{}[],:"\\0x']) {
        const changed = text.slice(0, at) + char + text.slice(at + 1);
        let isParsed = true;
        try {
          JSON.parse(changed);
        } catch {
          isParsed = false;
        }
        expect([changed, find(changed) !== undefined]).toEqual([changed, isParsed]);
      }
    }
  });

  it('bounds the bytes beside the member, wherever they are, but not the member', () => {
    const large = JSON.stringify('x'.repeat(500_000));
    const few = '{"a":1,"input":0}'.length - 1;
    expect(find(`{"a":1,"input":${large}}`, few)?.value?.length).toBe(large.length);
    for (const json of [
      `{"a":${large},"input":0}`,
      `{"input":0,"a":${large}}`,
      `{"input":${large},"input":0}`,
      `{"a":1,"input":0 }`,
      large,
      `[${large}]`,
    ]) {
      expect(() => find(json, few)).toThrow(JsonBoundError);
    }
  });

  it('stops soon after the bound, whatever follows', () => {
    const members = Array.from({ length: 100_000 }, (_, n) => `"${n}":0`).join(',');
    expect(() => find(`{${members},THIS IS NOT JSON`, 65_536)).toThrow(JsonBoundError);
  });

  it('pauses several times in a large document, even inside the member', () => {
    const input = `[${'0,'.repeat(1_000_000)}0]`;
    const search = findMember(Buffer.from(`{"input":${input}}`), {
      ...{ name: 'input', maxBesideBytes: 100, maxDepth: 1_000 },
    });
    let pauses = 0;
    while (!search.next().done) pauses += 1;
    expect(pauses).toBeGreaterThan(10);
  });
});

describe('a body that is parsed whole', () => {
  it.each([
    ['values', `[${'0,'.repeat(200_000)}0]`, { code: 'payload_too_large', bound: '100000' }],
    ['levels', '['.repeat(5_000) + ']'.repeat(5_000), { code: 'invalid', bound: '64' }],
  ])('is refused when it has too many %s, before it is parsed', (_what, json, { bound, code }) => {
    const message = expect.stringContaining(bound);
    const refused = expect.objectContaining({ name: ProblemError.name, code, message });
    expect(() => parseJson(Buffer.from(json))).toThrow(refused);
  });

  it.each([
    ['empty', ''],
    ['not UTF-8', Buffer.of(0x22, 0xff, 0x22)],
    ['not JSON', '{'],
  ])('is malformed when it is %s', (_what, body) => {
    const malformed = expect.objectContaining({ name: ProblemError.name, code: 'malformed' });
    expect(() => parseJson(Buffer.from(body))).toThrow(malformed);
  });
});

describe('a large body', () => {
  it('is read as any other, in many iterations of the event loop', async () => {
    const value = { list: Array.from({ length: 20_000 }, (_, n) => ({ name: `element ${n}` })) };
    const body = Buffer.from(JSON.stringify(value));
    const turns = await countIterations(async () => {
      expect(await parseInSlices(body, 'e')).toEqual(value);
    });
    expect(turns).toBeGreaterThanOrEqual(body.length / SLICE_BYTES);
  });

  it.each([
    ['malformed', `[${'1,'.repeat(50_000)}`],
    ['payload_too_large', `[${'1,'.repeat(200_000)}1]`],
  ])('is %s', async (code, text) => {
    const refusal = parseInSlices(Buffer.from(text), 'e');
    await expect(refusal).rejects.toMatchObject({ code });
  });
});

describe('a submission', () => {
  it('is refused when the JSON beside its input is larger than 64 KB', async () => {
    const error = await refusal(`{"policy":{},"x":"${'x'.repeat(65_536)}","input":{}}`);
    expect(error).toMatchObject({ status: 413, code: 'payload_too_large' });
    expect(error.message).toContain('65536');
  });

  it('is refused when its input is nested deeper than the limit', async () => {
    const nest = (depth: number) => '{"a":'.repeat(depth) + 1 + '}'.repeat(depth);
    const { input } = await readSubmission(Buffer.from(`{"input":${nest(1_000)}}`), BOUNDS);
    expect(Buffer.from(input).toString()).toBe(nest(1_000));
    for (const depth of [1_001, 2_000_000]) {
      const refused = await refusal(`{"policy":{},"input":${nest(depth)}}`);
      expect(refused.toProblem()).toMatchObject({ status: 422, errors: [errorAt('input')] });
    }
    expect((await refusal('['.repeat(4_000_000))).errors).toEqual([errorAt('body')]);
  });

  it('is refused with the first 20 errors and a count of the others', async () => {
    const members = Array.from({ length: 3_000 }, (_, n) => `"k${n}":0`).join(',');
    const { errors } = await refusal(`{"input":{},${members}}`);
    expect(errors).toHaveLength(21);
    expect(errors?.at(-1)).toMatch(/^body: .*2980/);
  });

  it('lets other work run while its large input is checked', async () => {
    const input = `{${Array.from({ length: 300_000 }, (_, n) => `"${n}":0`).join(',')}}`;
    let turns = 0;
    let isChecked = false;
    const countIterations = () => {
      turns += 1;
      if (!isChecked) setImmediate(countIterations);
    };
    setImmediate(countIterations);
    await readSubmission(Buffer.from(`{"input":${input}}`), BOUNDS);
    isChecked = true;
    expect(turns).toBeGreaterThan(10);
  });

  const refusal = async (body: Buffer | string) => {
    try {
      await readSubmission(Buffer.from(body), BOUNDS);
    } catch (error) {
      if (error instanceof ProblemError) return error;
    }
    throw new Error('it was taken');
  };

  it('is refused as malformed when its bytes are not UTF-8', async () => {
    const body = Buffer.from('{"input":{"a":"?"}}');
    body[body.indexOf('?')] = 0xff;
    const message = expect.stringContaining('UTF-8');
    expect(await refusal(body)).toMatchObject({ code: 'malformed', message });
  });

  it.each([
    ['small', 10],
    ['large', 100_000],
  ])('is refused as malformed if its %s input is not JSON', async (_name, length) => {
    const text = 'x'.repeat(length);
    const inputs = ['', `{"a":"${text}"`, `{"a":"${text}"]`, `{"a":"${text}\n"}`, `{"${text}":01}`];
    for (const input of inputs) {
      expect(await refusal(`{"input":${input},"policy":{}}`)).toMatchObject({ code: 'malformed' });
    }
  });

  it('is refused as malformed if a member name is not JSON', async () => {
    expect(await refusal('{"\\x":1,"input":{}}')).toMatchObject({ code: 'malformed' });
  });

  it('keeps the bytes of a large input without a copy', async () => {
    const input = `{ "a": ${JSON.stringify('é"\\'.repeat(30_000))}, "b": [1.0, {}] }`;
    const body = Buffer.from(`{"policy":{"ttl":20000},"input":${input} ,"idempotencyKey":"k"}`);
    const found = await readSubmission(body, BOUNDS);
    expect(Buffer.from(found.input).toString()).toBe(input);
    expect(found.input.buffer).toBe(body.buffer);
    expect(found.request).toEqual({ policy: { ttl: 20_000 }, input: {}, idempotencyKey: 'k' });
  });

  it('is rejected without quoting possible secrets', async () => {
    const error = await refusal('{"input":{"token":"s3cret",}}');
    expect(error.code).toBe('malformed');
    expect(JSON.stringify(error.toProblem())).not.toContain('s3cret');
  });

  it('is refused with the path of every error', async () => {
    const body = {
      input: [],
      policy: { priority: 10, ttl: 'long', speed: 1 },
      webhook: 'ftp://x',
      color: 'red',
    };
    expect((await refusal(JSON.stringify(body))).errors).toEqual([
      ...[errorAt('input'), errorAt('policy.ttl'), errorAt('policy.priority')],
      ...[errorAt('policy.speed'), errorAt('webhook'), errorAt('color')],
    ]);
  });

  it('is refused if it has a member named __proto__', async () => {
    expect((await refusal('{"input":{},"__proto__":{"policy":1}}')).errors).toEqual([
      errorAt('__proto__'),
    ]);
  });

  it.each([
    ['{"env":{"__proto__":"a"}}', 'env.__proto__'],
    ['{"env":{"__proto__":{"a":"b"}}}', 'env.__proto__'],
  ])('is refused if %s would lose %s', (body, path) => {
    const schema = z.object({ env: z.record(z.string(), z.string()) });
    expect(() => check(parseJson(Buffer.from(body)), schema)).toThrow(
      expect.objectContaining({ code: 'invalid', errors: [errorAt(path)] }),
    );
  });

  it('is read in the same way with and without space around it', async () => {
    const attempt = async (body: string) => {
      try {
        const { input, request } = await readSubmission(Buffer.from(body), BOUNDS);
        return { input: Buffer.from(input).toString(), request };
      } catch (error) {
        if (error instanceof ProblemError) return error.toProblem();
        throw error;
      }
    };
    const inputs = [
      '{}',
      '{"a":{"b":[1]}}',
      '{"a":1} ',
      '{"a":"}"\t}',
      '{"a":1},"input":{"b":1}',
      '[]',
      '1',
      'null',
      '"x"',
      '{',
      '{}}',
      '{"__proto__":1}',
    ];
    const ends = ['', ',"input":{}', ',"input":[]', ',"policy":{"ttl":20000}', ',"color":1'];
    for (const input of inputs) {
      for (const end of ends) {
        const spaced = await attempt(` { "input" : ${input} ${end} }`);
        expect([input, end, await attempt(`{"input":${input}${end}}`)]).toEqual([
          input,
          end,
          spaced,
        ]);
      }
    }
    expect(await attempt('{"input":{"a":1}}')).toEqual({
      input: '{"a":1}',
      request: { input: {} },
    });
    expect(await attempt('{"iNput":{}}')).toMatchObject({ status: 422 });
  });

  it('is refused when it is not an object', async () => {
    expect((await refusal('[1]')).errors).toEqual([errorAt('body')]);
  });
});

describe('an operation without a body', () => {
  it.each([
    ['', 'nothing'],
    [' {} ', 'an empty object'],
  ])('accepts %j: %s', (body) => {
    expect(() => checkNoBody(Buffer.from(body))).not.toThrow();
  });

  it.each(['{"a":1}', '[]', 'null', '1'])('refuses %s', (body) => {
    expect(() => checkNoBody(Buffer.from(body))).toThrow(ProblemError);
  });
});
