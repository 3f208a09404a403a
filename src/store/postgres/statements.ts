// The statements of sql/ in Postgres' dialect, and their values on the way there and back.
import { Buffer } from 'node:buffer';
import { type CustomTypesConfig, types } from 'pg';
import type { SqlValue } from '../store.ts';

export interface Statement {
  text: string;
  /** Prepared under this name. Undefined: parsed each time. */
  name: string | undefined;
  /** Changes nothing. */
  isRead: boolean;
  /** Its rows are wanted, so the operation waits for them. */
  hasRows: boolean;
}

/** Far above the number of fixed statements; bounds what a server keeps for a connection. */
const STATEMENTS_PREPARED = 512;

export class Statements {
  readonly #known = new Map<string, Statement>();

  get(sql: string): Statement {
    const known = this.#known.get(sql);
    if (known) return known;
    const isPrepared = this.#known.size < STATEMENTS_PREPARED;
    const isRead = /^\s*(?:select|with)\b/.test(sql);
    const statement = {
      text: numberParameters(sql),
      name: isPrepared ? `millrace_${this.#known.size}` : undefined,
      isRead,
      hasRows: isRead || /\breturning\b/.test(sql),
    };
    if (isPrepared) this.#known.set(sql, statement);
    return statement;
  }
}

/** Replaces each `?` by `$1`, `$2` and so on. */
export function numberParameters(sql: string): string {
  let number = 0;
  return sql.replaceAll('?', () => `$${++number}`);
}

const NUL = '\u0000';
/** Postgres refuses NUL in texts. Escaped, a text keeps it, and equal texts stay equal. */
const ESCAPE = '\u0010';

export function encodeText(text: string): string {
  if (!text.includes(NUL) && !text.includes(ESCAPE)) return text;
  return text.replaceAll(ESCAPE, `${ESCAPE}1`).replaceAll(NUL, `${ESCAPE}0`);
}

export function decodeText(text: string): string {
  if (!text.includes(ESCAPE)) return text;
  return text.replaceAll(`${ESCAPE}0`, NUL).replaceAll(`${ESCAPE}1`, ESCAPE);
}

export function encodeValues(values: readonly SqlValue[]): SqlValue[] {
  return values.map((value) => (typeof value === 'string' ? encodeText(value) : value));
}

/** Numbers of types, the same in all databases. */
export const BYTEA = 17;
export const INT8 = 20;
export const TEXT = 25;
export const FLOAT8 = 701;

/** Integers as numbers: the store has none above 2 ** 53. */
export const valueTypes: CustomTypesConfig = {
  getTypeParser(oid: number, format?: 'text' | 'binary') {
    if (format !== 'binary' && oid === INT8) return Number;
    if (format !== 'binary' && oid === TEXT) return decodeText;
    if (format !== 'binary' && oid === BYTEA) return decodeBytes;
    return types.getTypeParser(oid, format);
  },
};

/** `\x` and hexadecimal digits. */
function decodeBytes(text: string): Uint8Array {
  if (!text.startsWith('\\x'))
    throw new Error('the server does not send bytes as hexadecimal digits');
  const { buffer, byteOffset, length } = Buffer.from(text.slice(2), 'hex');
  return new Uint8Array(buffer, byteOffset, length);
}

/** Postgres would refuse the value. */
export class UnfitValueError extends Error {
  override readonly name = 'UnfitValueError';
}

const HEADER_BYTES = 20;
const WORD = 4;
const NUMBER_BYTES = 8;
const NULL_LENGTH = -1;
const HIGH = 2 ** 32;
/** Of a longer text the bytes are counted, because their bound is up to six times as high. */
const LONG_TEXT = 256;
/** Of a character of a string in UTF-8. */
const MAX_CHARACTER_BYTES = 3;

/** An array of one dimension whose items have the type with this number; `write` writes them. */
export function buildArray(
  type: number,
  items: number,
  maxBytes: number,
  write: (buffer: Buffer, at: number) => number,
): Uint8Array {
  const buffer = Buffer.allocUnsafe(HEADER_BYTES + maxBytes);
  const hasNulls = 1;
  let at = buffer.writeInt32BE(1, 0);
  at = buffer.writeInt32BE(hasNulls, at);
  at = buffer.writeUInt32BE(type, at);
  at = buffer.writeInt32BE(items, at);
  at = buffer.writeInt32BE(1, at);
  return buffer.subarray(0, write(buffer, at));
}

export function encodeArray(type: number, values: readonly SqlValue[]): Uint8Array {
  const maxBytes = values.reduce<number>((sum, value) => sum + measureValue(value), 0);
  return buildArray(type, values.length, maxBytes, (buffer, start) =>
    values.reduce<number>((at, value) => writeValue(buffer, at, type, value), start),
  );
}

/** Composite values: each row has the values of the `given` columns, and null in the others. */
export function encodeRows(
  { columns, type }: CompositeType,
  given: readonly number[],
  rows: readonly (readonly SqlValue[])[],
): Uint8Array {
  let maxBytes = 0;
  for (const row of rows) {
    maxBytes += 2 * WORD + 2 * WORD * columns.length;
    for (const value of row) maxBytes += measureValue(value);
  }
  return buildArray(type, rows.length, maxBytes, (buffer, start) => {
    let at = start;
    for (const row of rows) at = writeRow(buffer, at, { columns, given, row });
    return at;
  });
}

/** A type of the database, by the numbers that the database has given. */
export interface CompositeType {
  type: number;
  /** Types of its columns. */
  columns: readonly number[];
}

interface GivenRow {
  columns: readonly number[];
  given: readonly number[];
  row: readonly SqlValue[];
}

function writeRow(buffer: Buffer, start: number, { columns, given, row }: GivenRow): number {
  let at = buffer.writeInt32BE(columns.length, start + WORD);
  let next = 0;
  for (const [index, type] of columns.entries()) {
    at = buffer.writeUInt32BE(type, at);
    const value = given[next] === index ? row[next++] : null;
    at = writeValue(buffer, at, type, value ?? null);
  }
  buffer.writeInt32BE(at - start - WORD, start);
  return at;
}

function measureValue(value: SqlValue): number {
  if (value === null) return WORD;
  if (typeof value === 'number') return WORD + NUMBER_BYTES;
  if (typeof value === 'string' && value.length > LONG_TEXT) {
    return WORD + Buffer.byteLength(encodeText(value));
  }
  // An escaped text may be twice as long.
  if (typeof value === 'string') return WORD + 2 * MAX_CHARACTER_BYTES * value.length;
  return WORD + value.length;
}

/** Its length and its bytes. @returns the position behind it */
function writeValue(buffer: Buffer, start: number, type: number, value: SqlValue): number {
  if (value === null) return buffer.writeInt32BE(NULL_LENGTH, start);
  const at = start + WORD;
  const length = writeBytes(buffer, at, type, value);
  buffer.writeInt32BE(length, start);
  return at + length;
}

/** @returns the number of bytes @throws UnfitValueError */
function writeBytes(buffer: Buffer, at: number, type: number, value: string | number | Uint8Array) {
  if (typeof value === 'string' && type === TEXT) return buffer.write(encodeText(value), at);
  if (typeof value === 'number' && type === FLOAT8) return buffer.writeDoubleBE(value, at) - at;
  if (typeof value === 'number' && type === INT8 && Number.isSafeInteger(value)) {
    const high = Math.floor(value / HIGH);
    buffer.writeInt32BE(high, at);
    buffer.writeUInt32BE(value - high * HIGH, at + WORD);
    return NUMBER_BYTES;
  }
  if (value instanceof Uint8Array && type === BYTEA) {
    buffer.set(value, at);
    return value.length;
  }
  throw new UnfitValueError(`a value does not fit into a column of the type ${type}`);
}
