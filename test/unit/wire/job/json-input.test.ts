import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createClient } from '../../../../src/client.ts';
import { createHarness, runHandler } from '../../../../src/testing.ts';
import { requireJsonInput } from '../../../../src/wire/job/json-input.ts';

/** Nothing may be sent. */
const client = createClient({
  ...{ url: 'http://127.0.0.1', endpoint: 'e' },
  fetch: () => Promise.reject(new Error('sent')),
});

class Empty {
  #hidden = 1;
  read() {
    return this.#hidden;
  }
}

describe('an input', () => {
  it.each<[string, unknown, string]>([
    ['NaN', { a: { b: [1, Number.NaN] } }, 'input.a.b[1] is not JSON: NaN'],
    ['an infinity', { a: -1 / 0 }, 'input.a is not JSON: -Infinity'],
    ['a Date', { at: new Date(0) }, 'input.at is not JSON: a Date (send its toISOString()'],
    ['an invalid Date', { at: new Date('x') }, 'input.at is not JSON: a Date'],
    ['a Map', { 'a b': new Map() }, 'input["a b"] is not JSON: a Map'],
    ['a Set', [[new Set([1])]], 'input[0][0] is not JSON: a Set'],
    ['a URL', { url: new URL('http://a') }, 'input.url is not JSON: a URL'],
    ['a BigInt', { n: 1n }, 'input.n is not JSON: a BigInt'],
    ['a function', { f: () => 1 }, 'input.f is not JSON: a function'],
    ['a symbol', { s: Symbol('s') }, 'input.s is not JSON: a symbol'],
    ['undefined in an array', { list: [1, undefined] }, 'input.list[1] is not JSON: undefined'],
    ['a hole of an array', { list: new Array(1) }, 'input.list[0] is not JSON: undefined'],
    ['bytes', { bytes: Buffer.from('a') }, 'input.bytes is not JSON: a Uint8Array'],
    ['a promise', { p: Promise.resolve() }, 'input.p is not JSON: a Promise'],
    ['an error', { e: new RangeError('x') }, 'input.e is not JSON: a Error'],
    ['an instance without members', { it: new Empty() }, 'input.it is not JSON: a Empty without'],
    ['a wrong result of toJSON', { a: { toJSON: () => Number.NaN } }, 'input.a is not JSON: NaN'],
    ['NaN in it', { a: { toJSON: () => ({ b: 0 / 0 }) } }, 'input.a.b is not JSON: NaN'],
    ['NaN as a whole', Number.NaN, 'input is not JSON: NaN'],
  ])('is refused with %s, and the path', (_name, input, message) => {
    expect(() => requireJsonInput(input)).toThrow(message);
    expect(() => requireJsonInput(input)).toThrow(TypeError);
  });

  it('may have instances with members, objects without a prototype, and a toJSON', () => {
    class Point {
      x = 1;
    }
    const money = { toJSON: () => '1.50' };
    const shared = { a: undefined };
    const input = { point: new Point(), none: Object.create(null), money, all: [shared, shared] };
    expect(() => requireJsonInput(input)).not.toThrow();
  });

  it('may be every JSON value, also deep and in instances', () => {
    fc.assert(
      fc.property(fc.jsonValue({ depthSize: 'large' }), (value) => {
        const instance = Object.assign(new Empty(), { value });
        for (const input of [value, instance]) expect(() => requireJsonInput(input)).not.toThrow();
      }),
    );
    expect(() =>
      requireJsonInput(JSON.parse(`${'['.repeat(500)}${']'.repeat(500)}`)),
    ).not.toThrow();
  });

  it('is refused with a cycle', () => {
    const input: Record<string, unknown> = {};
    input['self'] = input;
    expect(() => requireJsonInput(input)).toThrow(TypeError);
  });
});

const BAD = { at: [new Map()] };

it.each<[string, () => unknown]>([
  ['client.run', () => client.run(BAD)],
  ['client.runsync', () => client.runsync(BAD)],
  ['harness.run', async () => (await createHarness({ handler: () => 1 })).run(BAD)],
  ['runHandler', () => runHandler(() => 1, BAD)],
])('refuses with %s an input that JSON does not keep', async (_name, submit) => {
  await expect(submit).rejects.toThrow(
    'input.at[0] is not JSON: a Map (send Object.fromEntries(map))',
  );
});

it.each<[string, () => Promise<readonly unknown[]>]>([
  ['client.runMany', () => client.runMany([{ input: BAD }])],
  ['client.runAll', () => client.runAll([BAD])],
])('refuses it with %s for its own job alone', async (_name, submit) => {
  const reason = { message: 'input.at[0] is not JSON: a Map (send Object.fromEntries(map))' };
  expect(await submit()).toMatchObject([{ status: 'rejected', reason }]);
});
