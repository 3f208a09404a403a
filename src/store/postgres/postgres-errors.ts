// Tells Postgres' errors apart, and explains them to the operator.
import { DatabaseError } from 'pg';
import { StoreUnavailableError } from '../store.ts';
import { UnfitValueError } from './statements.ts';

/**
 * Classes of SQLSTATE with which the database refuses a statement because of what it contains: feature, cardinality,
 * data, constraint, and syntax or missing privilege.
 */
const REFUSALS: ReadonlySet<string> = new Set(['0A', '21', '22', '23', '42']);

/** The database refused this statement, and would refuse it again; others may succeed. */
export function isRefusal(error: unknown): boolean {
  if (error instanceof UnfitValueError) return true;
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

const UNTRUSTED =
  "no trusted authority has signed the server's certificate; name the authority's file with sslrootcert";

const SLOW =
  'a statement took too long; look for locks of other programs and for a slow disk at the server';

/** By SQLSTATE, or the system's code. */
const ADVICE: Readonly<Record<string, string>> = {
  '25006': 'the database is read-only; use the primary server, not a standby',
  '28000': 'the server refuses this user; check the user, the database and pg_hba.conf',
  '28P01': 'the server refuses the password; check it',
  '3D000': 'the database does not exist; create it with `createdb`',
  '3F000': 'the schema does not exist and cannot be created; create it',
  '42501': 'the user may not create the schema or its tables; grant it CREATE',
  '53100': 'the disk of the database server is full; free space on it',
  '53300': 'the server has no connection left; raise max_connections, or end other programs',
  '55P03': SLOW,
  '57014': SLOW,
  '57P03': 'the server is starting or stopping; wait',
  CERT_HAS_EXPIRED: "the server's certificate has expired; renew it",
  CERT_NOT_YET_VALID:
    "the server's certificate is not valid yet; check the clocks of both machines",
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  ERR_TLS_CERT_ALTNAME_INVALID:
    "the server's certificate is for another host; use the host name of the certificate, or sslmode=verify-ca",
  ECONNREFUSED: 'no server listens there; start it, or check host and port',
  ENOENT: 'no server listens on that socket; start it, or check the host',
  ENOTFOUND: 'the host name does not exist; check it',
  ECONNRESET: 'the connection was cut',
  EHOSTUNREACH: 'no network leads to the server; check the host and the firewall',
  ENETUNREACH: 'no network leads to the server; check the host and the firewall',
  ETIMEDOUT: 'the server does not answer; check host, port and firewall',
};

/** By the text of pg, for errors without a code. */
const ADVICE_BY_TEXT: Readonly<Record<string, string>> = {
  'timeout expired': 'the server does not answer; check host and port',
  'Query read timeout': 'the server does not answer any more',
  'The server does not support SSL connections':
    'the server does not offer TLS; enable it there, or use sslmode=disable in a network that you trust',
};

/** Says in one sentence what is wrong and what to do. Never contains the password. */
export function explainPostgresError(error: unknown): string {
  const code = codeOf(error);
  const advice = ADVICE[code];
  if (advice !== undefined) return `${advice} (${code})`;
  const text = messageOf(error);
  if (code === 'UNKNOWN') return ADVICE_BY_TEXT[text] ?? text;
  return `${text} (${code})`;
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
