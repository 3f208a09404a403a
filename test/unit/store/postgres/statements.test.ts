import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  BYTEA,
  decodeText,
  encodeText,
  numberParameters,
  Statements,
  valueTypes,
} from '../../../../src/store/postgres/statements.ts';

describe('a statement', () => {
  it('has numbered parameters', () => {
    expect(numberParameters('a = ? and b in (?, ?)')).toBe('a = $1 and b in ($2, $3)');
  });

  it.each([
    ['select 1', true, true],
    ['\n  with recursive a as (select 1) select 2', true, true],
    ['delete from a where b = ? returning c', false, true],
    ['insert into a (selected) values (?)', false, false],
    ['update a set b = ?', false, false],
  ])('%j: is read %s, has rows %s', (sql, isRead, hasRows) => {
    expect(new Statements().get(sql)).toMatchObject({ isRead, hasRows });
  });

  it('is prepared under a name of its own, as long as there are few', () => {
    const statements = new Statements();
    const names = Array.from({ length: 600 }, (_, i) => statements.get(`select ${i}`).name);
    expect(new Set(names.slice(0, 512)).size).toBe(512);
    expect(new Set(names.slice(512))).toEqual(new Set([undefined]));
    expect(statements.get('select 7').name).toBe(names[7]);
  });
});

describe('a text', () => {
  it('comes back unchanged, has no NUL, and stays different from others', () => {
    const text = fc.string({ unit: fc.constantFrom('\0', '\x10', '0', '1', 'a') });
    void fc.assert(
      fc.property(text, text, (a, b) => {
        expect(decodeText(encodeText(a))).toBe(a);
        expect(encodeText(a)).not.toContain('\0');
        expect(encodeText(a) === encodeText(b)).toBe(a === b);
      }),
      { seed: 1 },
    );
  });
});

it('bytes in another form than hexadecimal digits are an error, not other bytes', () => {
  const decode: (text: string) => unknown = valueTypes.getTypeParser(BYTEA);
  expect(decode('\\x00ff')).toEqual(new Uint8Array([0, 255]));
  expect(() => decode('\\000\\377')).toThrow('does not send bytes as hexadecimal digits');
});
