// Values that a caller may send instead of correct ones: JSON of any type, and broken JSON.
import { gzipSync } from 'node:zlib';
import type { Dice } from './dice.ts';

export const STRANGE_TEXTS: readonly [string, ...string[]] = [
  '',
  ' ',
  'a',
  '0',
  'null',
  'undefined',
  '__proto__',
  'constructor',
  'a\0b',
  'line\r\nbreak: yes',
  '../../../etc/passwd',
  '%00%2e%2e%2f',
  '$' + '{HOME}',
  '{{7*7}}',
  "'; DROP TABLE jobs; --",
  '\ud800',
  'x\udfff\ud800y',
  '\u{1f600}'.repeat(20),
  '\u202eabc\u0300\u0301',
  '\ufeff',
  'é'.repeat(201),
  'a'.repeat(200),
  'a'.repeat(201),
  '-'.repeat(64),
  '2026-13-45T99:99:99Z',
  '-1',
  '1e309',
  'http://127.0.0.1:9/',
  'admin',
  '*',
];

const STRANGE_NUMBERS: readonly [number, ...number[]] = [
  0,
  -0,
  -1,
  0.5,
  1,
  2,
  1_000,
  65_536,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  2 ** 53 + 2,
  -(2 ** 63),
  1e21,
  1e308,
  5e-324,
];

const STRANGE_NAMES: readonly [string, ...string[]] = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '',
  'length',
  'then',
  'toJSON',
  'a.b[0]',
  '\ud800',
  'input',
  'id',
  'userId',
  'x'.repeat(5_000),
];

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

function strangeValue(dice: Dice): Json {
  return dice.weigh<() => Json>(
    [
      [30, () => dice.pick(STRANGE_TEXTS)],
      [25, () => dice.pick(STRANGE_NUMBERS)],
      [8, () => null],
      [8, () => dice.chance(0.5)],
      [6, () => []],
      [6, () => ({})],
      [4, () => [[], [null], 'a']],
      [4, () => nest(dice.integer(2, 400))],
      [4, () => [...Array(dice.integer(2, 300)).keys()]],
      [2, () => 'long '.repeat(dice.integer(1_000, 40_000))],
      [1, () => Array.from({ length: dice.integer(1_000, 60_000) }, () => 0)],
      [1, () => writeMembers(dice.integer(1_000, 10_000))],
    ],
    () => null,
  )();
}

function nest(depth: number): Json {
  let value: Json = 1;
  for (let left = depth; left > 0; left--) value = left % 2 === 0 ? [value] : { a: value };
  return value;
}

function writeMembers(count: number): Json {
  return Object.fromEntries(Array.from({ length: count }, (_, n) => [`m${n}`, n]));
}

interface Place {
  holder: Json[] | { [name: string]: Json };
  key: string | number;
}

function listPlaces(value: Json): Place[] {
  if (Array.isArray(value)) {
    return value.flatMap((each, key) => [{ holder: value, key }, ...listPlaces(each)]);
  }
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => [
    { holder: value, key },
    ...listPlaces(each),
  ]);
}

function put({ holder, key }: Place, value: Json): void {
  // Also sets a member with the name __proto__.
  Object.defineProperty(holder, key, {
    ...{ value, configurable: true, enumerable: true, writable: true },
  });
}

/** Returns a copy with one change. `value` must be JSON. */
export function bendValue(dice: Dice, value: unknown): unknown {
  const copy: Json = JSON.parse(JSON.stringify(value ?? null));
  const places = listPlaces(copy);
  const place = dice.pickAny(places);
  if (!place || dice.chance(0.08)) return dice.chance(0.5) ? [copy] : strangeValue(dice);
  const { holder, key } = place;
  const bends = ['replace', 'replace', 'replace', 'nudge', 'nudge', 'remove', 'add', 'wrap'];
  const bend = dice.pickAny(bends);
  if (bend === 'replace') put(place, strangeValue(dice));
  else if (bend === 'nudge') put(place, nudge(dice, readAt(place)));
  else if (bend === 'wrap') put(place, [readAt(place)]);
  else if (bend === 'remove') {
    if (Array.isArray(holder)) holder.splice(Number(key), 1);
    else delete holder[key];
  } else if (Array.isArray(holder)) holder.push(strangeValue(dice));
  else put({ holder, key: dice.pick(STRANGE_NAMES) }, strangeValue(dice));
  return copy;
}

/** Almost correct values. */
function nudge(dice: Dice, value: Json): Json {
  if (typeof value === 'number') {
    return dice.pick<Json>([
      value + 1,
      value - 1,
      -value,
      value + 0.5,
      value * 1_000,
      String(value),
    ]);
  }
  if (typeof value === 'string') {
    const { length } = value;
    const texts = [`${value} `, ` ${value}`, `${value}\n`, value.toLowerCase(), `${value}\0`];
    // Three changes in a row would make a long text longer than a string can be.
    const repeated = value.repeat(length > 40_000 ? 2 : 300);
    return dice.pick<Json>(['', ...texts, repeated, value.slice(0, length - 1), [value]]);
  }
  if (typeof value === 'boolean') return dice.pick<Json>([String(value), Number(value), !value]);
  if (Array.isArray(value)) return dice.pick<Json>([[...value, ...value], { 0: value }, null]);
  return value === null ? {} : null;
}

function readAt({ holder, key }: Place): Json {
  const value = Array.isArray(holder) ? holder[Number(key)] : holder[key];
  return value ?? null;
}

/** JSON bytes, broken or written in an unusual way. */
export function bendBytes(dice: Dice, bytes: Buffer): Buffer {
  const at = dice.integer(0, bytes.length);
  const head = bytes.subarray(0, at);
  const rest = bytes.subarray(at);
  const text = bytes.toString();
  return dice.pick<() => Buffer>([
    () => head,
    () => Buffer.concat([head, Buffer.from([dice.integer(0, 255)]), rest]),
    () => Buffer.concat([head, Buffer.from([0xc3, 0x28, 0xff]), rest]),
    () => Buffer.concat([Buffer.from('\ufeff'), bytes]),
    () => Buffer.concat([bytes, Buffer.from(dice.pick([',', '}', '\0', ' {}', '//x', '\n\n\n']))]),
    () => Buffer.from(`{"input":1,"name":[],"action":"x",${text.slice(1)}`),
    () => Buffer.from(`${text.slice(0, -1)},"__proto__":{"admin":true},"input":{}}`),
    () => Buffer.from(text.replaceAll('"', "'")),
    () => Buffer.from(text.replace(/\d+/, dice.pick(['1e400', '-', '01', '9'.repeat(400), 'NaN']))),
    () => Buffer.from(text.replaceAll(':', dice.pick([':\t \n', '::', ' ']))),
    () => Buffer.from(text, 'utf16le'),
    () => gzipSync(bytes),
    () => Buffer.alloc(0),
    () => Buffer.from(' \n\t'),
    () => Buffer.from('['.repeat(dice.integer(1, 60_000))),
    () => Buffer.from('{"input":'.repeat(dice.integer(1, 6_000))),
    () => Buffer.from(`{"input":${'['.repeat(20_000)}${']'.repeat(20_000)}}`),
    () => Buffer.from([...Array(64)].map(() => dice.integer(0, 255))),
    () => Buffer.from('"\\ud800"'),
  ])();
}
