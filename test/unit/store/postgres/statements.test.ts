import { Buffer } from 'node:buffer';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HeldInserts } from '../../../../src/store/postgres/batch.ts';
import { isRefusal } from '../../../../src/store/postgres/postgres-errors.ts';
import {
  BYTEA,
  decodeText,
  encodeArray,
  encodeText,
  INT8,
  numberParameters,
  Statements,
  TEXT,
  UnfitValueError,
  valueTypes,
} from '../../../../src/store/postgres/statements.ts';

describe('statements', () => {
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

  it('fail for bytes in another form than hexadecimal digits', () => {
    const decode: (text: string) => unknown = valueTypes.getTypeParser(BYTEA);
    expect(decode('\\x00ff')).toEqual(new Uint8Array([0, 255]));
    expect(() => decode('\\000\\377')).toThrow('does not send bytes as hexadecimal digits');
  });
});

describe('held inserts', () => {
  const LOG = 'insert into job_log (endpoint_id, job_id, at, bytes) values (?, ?, ?, ?)';

  function logOf(job: number, bytes = 1) {
    return { sql: LOG, params: ['e', `j${job}`, 0, new Uint8Array(bytes)] };
  }

  it('joins rows of a table into statements of a few sizes', () => {
    const held = new HeldInserts();
    for (let job = 0; job < 43; job++) expect(held.hold(logOf(job))).toBe(true);
    const queries = held.take();
    expect(queries.map(({ params }) => params.length / 4)).toEqual([32, 8, 2, 1]);
    expect(queries.flatMap(({ params }) => params.filter((_, i) => i % 4 === 1))).toEqual(
      Array.from({ length: 43 }, (_, job) => `j${job}`),
    );
    expect(queries[2]?.sql).toBe(`${LOG}, (?, ?, ?, ?)`);
    expect(queries[3]?.sql).toBe(LOG);
    expect(held.take()).toEqual([]);
  });

  it.each([
    'update job set status = ?',
    'insert into job (id) values (?)',
    'insert into job_log (at) values (?) on conflict do nothing',
    'insert into job_log (at) values (?) returning at',
    'insert into job_log (at) select ?',
  ])('does not hold %s', (sql) => {
    expect(new HeldInserts().hold({ sql, params: [1] })).toBe(false);
  });

  it('does not hold a large row, nor many bytes', () => {
    const held = new HeldInserts();
    expect(held.hold(logOf(0, 65_537))).toBe(false);
    for (let job = 0; job < 16; job++) expect(held.hold(logOf(job, 65_536))).toBe(true);
    expect(held.hold(logOf(16))).toBe(false);
    held.take();
    expect(held.hold(logOf(16))).toBe(true);
  });
});

describe('binary arrays', () => {
  it('have a header, and each value its length', () => {
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

  it('hold texts of any length and any characters', () => {
    const texts = ['', '\0'.repeat(1_000), '💡€é'];
    const bytes = Buffer.from(encodeArray(TEXT, texts));
    expect(bytes.length).toBe(20 + 4 + (4 + 2_000) + (4 + 9));
    expect(bytes.subarray(-9).toString()).toBe('💡€é');
  });

  it('take about as much memory as their texts', () => {
    const array = encodeArray(TEXT, ['a'.repeat(1_000_000), '\0'.repeat(500_000)]);
    expect(array.length).toBe(20 + 2 * (4 + 1_000_000));
    expect(array.buffer.byteLength).toBeLessThan(2_010_000);
  });

  it.each([1.5, Number.NaN, 2 ** 60, 'text'])('refuse %s among integers', (value) => {
    let found: unknown;
    try {
      encodeArray(INT8, [1, value]);
    } catch (error) {
      found = error;
    }
    expect(found).toBeInstanceOf(UnfitValueError);
    expect(isRefusal(found)).toBe(true);
  });
});
