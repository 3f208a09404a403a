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
