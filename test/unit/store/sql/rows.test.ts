import { describe, expect, it } from 'vitest';
import {
  bytes,
  number,
  numberOrNull,
  text,
  textOrNull,
  UnreadableRowError,
} from '../../../../src/store/sql/rows.ts';

function unreadable(column: string) {
  const message = expect.stringContaining(`"${column}"`);
  return expect.objectContaining({ name: UnreadableRowError.name, message });
}

describe('a value of a row', () => {
  it('is a number even if the database returns a bigint or decimal text', () => {
    const row = { a: 1, b: 1_767_225_600_001n, c: '1767225600001', d: null };
    expect(['a', 'b', 'c'].map((column) => number(row, column))).toEqual([
      1, 1_767_225_600_001, 1_767_225_600_001,
    ]);
    expect(numberOrNull(row, 'd')).toBeNull();
    expect(numberOrNull(row, 'c')).toBe(1_767_225_600_001);
  });

  it('of the wrong type is refused with the name of its column', () => {
    const row = { a: 'x', b: 5, c: null };
    expect(() => number(row, 'a')).toThrow(unreadable('a'));
    expect(() => number(row, 'c')).toThrow(unreadable('c'));
    expect(() => text(row, 'b')).toThrow(unreadable('b'));
    expect(() => text(row, 'missing')).toThrow(unreadable('missing'));
    expect(() => textOrNull(row, 'b')).toThrow(unreadable('b'));
    expect(() => bytes(row, 'a')).toThrow(unreadable('a'));
  });
});
