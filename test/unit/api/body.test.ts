import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkNoBody, readSubmission, sliceMember } from '../../../src/api/body.ts';
import { ProblemError } from '../../../src/wire/problem.ts';

const slice = (json: string, name = 'input') => {
  const found = sliceMember(Buffer.from(json), name);
  return found === undefined ? undefined : Buffer.from(found).toString();
};

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
  it('are what JSON.parse gives for it, whatever the object looks like', () => {
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

  it('are those of the last one when there are several', () => {
    expect(slice('{"input":{"a":1},"input":{"a":2}}')).toBe('{"a":2}');
  });

  it('are found behind a key that is written with escapes', () => {
    expect(slice('{"\\u0069nput" : [ 1 ] }')).toBe('[ 1 ]');
  });

  it('are not those of a member with the name further inside', () => {
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

describe('a submission', () => {
  const refusal = (body: Buffer | string) => {
    try {
      readSubmission(Buffer.from(body));
    } catch (error) {
      if (error instanceof ProblemError) return error;
    }
    throw new Error('it was taken');
  };

  it('is refused as malformed when its bytes are not UTF-8', () => {
    const body = Buffer.from('{"input":{"a":"?"}}');
    body[body.indexOf('?')] = 0xff;
    expect(refusal(body)).toMatchObject({ code: 'malformed', message: 'the body is not UTF-8' });
  });

  it.each([
    ['small', 10],
    ['large', 100_000],
  ])('is refused as malformed when its %s input is no JSON', (_name, length) => {
    const text = 'x'.repeat(length);
    const inputs = ['', `{"a":"${text}"`, `{"a":"${text}"]`, `{"a":"${text}\n"}`, `{"${text}":01}`];
    for (const input of inputs) {
      expect(refusal(`{"input":${input},"policy":{}}`)).toMatchObject({ code: 'malformed' });
    }
  });

  it('is refused as malformed when a name in it is no JSON', () => {
    expect(refusal('{"\\x":1,"input":{}}')).toMatchObject({ code: 'malformed' });
  });

  it('with a large input has its bytes, and nothing that was made of them', () => {
    const input = `{ "a": ${JSON.stringify('é"\\'.repeat(30_000))}, "b": [1.0, {}] }`;
    const body = Buffer.from(`{"policy":{"ttl":20000},"input":${input} ,"idempotencyKey":"k"}`);
    const found = readSubmission(body);
    expect(Buffer.from(found.input).toString()).toBe(input);
    expect(found.input.buffer).toBe(body.buffer);
    expect(found.request).toEqual({ policy: { ttl: 20_000 }, input: {}, idempotencyKey: 'k' });
  });

  it('is refused without quoting what may be a secret in it', () => {
    const error = refusal('{"input":{"token":"s3cret",}}');
    expect(error.code).toBe('malformed');
    expect(JSON.stringify(error.toProblem())).not.toContain('s3cret');
  });

  it('is refused with every path that is wrong', () => {
    const body = {
      input: [],
      policy: { priority: 10, ttl: 'long', speed: 1 },
      webhook: 'ftp://x',
      color: 'red',
    };
    expect(refusal(JSON.stringify(body)).errors).toEqual([
      'input: must be an object',
      expect.stringMatching(/^policy\.ttl: /),
      expect.stringMatching(/^policy\.priority: /),
      'policy.speed: is not known',
      'webhook: must be an http or https URL without a user name or password',
      'color: is not known',
    ]);
  });

  it('is refused when it has a member of the name __proto__', () => {
    expect(refusal('{"input":{},"__proto__":{"policy":1}}').errors).toEqual([
      '__proto__: is not known',
    ]);
  });

  it('is refused when it is not an object', () => {
    expect(refusal('[1]').errors).toEqual([expect.stringMatching(/^body: .*object/)]);
  });
});

describe('an operation without a body', () => {
  it.each([
    ['', 'nothing'],
    [' {} ', 'an empty object'],
  ])('takes %j: %s', (body) => {
    expect(() => checkNoBody(Buffer.from(body))).not.toThrow();
  });

  it.each(['{"a":1}', '[]', 'null', '1'])('refuses %s', (body) => {
    expect(() => checkNoBody(Buffer.from(body))).toThrow('takes no body');
  });
});
