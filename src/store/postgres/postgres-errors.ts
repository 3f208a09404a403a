// Tells Postgres' errors apart, and explains them to the operator.
import { DatabaseError } from 'pg';
import { StoreUnavailableError } from '../store.ts';

/**
 * Classes of SQLSTATE with which the database refuses a statement because of what it contains: feature, cardinality,
 * data, constraint, and syntax or missing privilege.
 */
const REFUSALS: ReadonlySet<string> = new Set(['0A', '21', '22', '23', '42']);

/** The database refused this statement, and would refuse it again; others may succeed. */
export function isRefusal(error: unknown): boolean {
  return error instanceof DatabaseError && REFUSALS.has(error.code?.slice(0, 2) ?? '');
}

/** The server has ended the connection, so nobody knows what it did with a commit under way. */
export function endsConnection(error: unknown): boolean {
  if (!(error instanceof DatabaseError)) return true;
  return error.severity === 'FATAL' || error.severity === 'PANIC';
}

/** SQLSTATE, or the system's code: `53100`, `ECONNREFUSED`. `UNKNOWN` without one. */
export function codeOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : 'UNKNOWN';
}

const ADVICE: Readonly<Record<string, string>> = {
  '25006': 'the database is read-only; use the primary server, not a standby',
  '28000': 'the server refuses this user; check the user, the database and pg_hba.conf',
  '28P01': 'the server refuses the password; check it',
  '3D000': 'the database does not exist; create it with `createdb`',
  '3F000': 'the schema does not exist and cannot be created; create it',
  '42501': 'the user may not create the schema or its tables; grant it CREATE',
  '53100': 'the disk of the database server is full; free space on it',
  '53300': 'the server has no connection left; raise max_connections, or end other programs',
  '57P03': 'the server is starting or stopping; wait',
  ECONNREFUSED: 'no server listens there; start it, or check host and port',
  ENOENT: 'no server listens on that socket; start it, or check the host',
  ENOTFOUND: 'the host name does not exist; check it',
};

/** Says in one sentence what is wrong and what to do. Never contains the password. */
export function explainPostgresError(error: unknown): string {
  const code = codeOf(error);
  const advice = ADVICE[code];
  if (advice !== undefined) return `${advice} (${code})`;
  // The text of pg.
  if (messageOf(error) === 'timeout expired')
    return 'the server does not answer; check host and port';
  return code === 'UNKNOWN' ? messageOf(error) : `${messageOf(error)} (${code})`;
}

export function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}

export function describeUnavailable(cause: unknown): StoreUnavailableError {
  if (cause instanceof StoreUnavailableError) return cause;
  const text = `The database cannot be used now: ${explainPostgresError(cause)}`;
  return new StoreUnavailableError(text, { cause, code: codeOf(cause) });
}
