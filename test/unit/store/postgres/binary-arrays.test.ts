import { Buffer } from 'node:buffer';
import { expect, it } from 'vitest';
import { encodeArray, UnfitValueError } from '../../../../src/store/postgres/binary-arrays.ts';
import { isRefusal } from '../../../../src/store/postgres/postgres-errors.ts';
import { INT8, TEXT } from '../../../../src/store/postgres/statements.ts';

it('an array has a header, and each value its length', () => {
  const header = [1, 1, INT8, 4, 1].map((word) => word.toString(16).padStart(8, '0'));
  const values = [
    ['00000008', '0000000000000007'],
    ['00000008', 'fffffffffffffffe'],
    ['00000008', '001fffffffffffff'],
    ['ffffffff'],
  ];
  const array = encodeArray(INT8, [7, -2, Number.MAX_SAFE_INTEGER, null]);
  expect(Buffer.from(array).toString('hex')).toBe([...header, ...values.flat()].join(''));
});

it('an array holds texts of any length and any characters', () => {
  const texts = ['', '\0'.repeat(1_000), '💡€é'];
  const bytes = Buffer.from(encodeArray(TEXT, texts));
  expect(bytes.length).toBe(20 + 4 + (4 + 2_000) + (4 + 9));
  expect(bytes.subarray(-9).toString()).toBe('💡€é');
});

it('an array takes about as much memory as its texts', () => {
  const array = encodeArray(TEXT, ['a'.repeat(1_000_000), '\0'.repeat(500_000)]);
  expect(array.length).toBe(20 + 2 * (4 + 1_000_000));
  expect(array.buffer.byteLength).toBeLessThan(2_010_000);
});

it.each([1.5, Number.NaN, 2 ** 60, 'text'])('%s among integers is refused', (value) => {
  let found: unknown;
  try {
    encodeArray(INT8, [1, value]);
  } catch (error) {
    found = error;
  }
  expect(found).toBeInstanceOf(UnfitValueError);
  expect(isRefusal(found)).toBe(true);
});
