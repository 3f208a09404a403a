// Reads the URL of a Postgres database.
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { ConnectionOptions as TlsOptions } from 'node:tls';

/** `prefer`: TLS if the server has it. As libpq means them. */
const SSL_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;
const PARAMETERS = ['host', 'port', 'user', 'sslmode', 'sslrootcert', 'search_path'] as const;

export interface PostgresTarget {
  host: string;
  port: number;
  user: string;
  database: string;
  password: string | undefined;
  /** The namespace with all tables. */
  schema: string;
  /** Of the next connection: the root certificate may have been renewed. Undefined: no TLS. */
  tls: () => TlsOptions | undefined;
  /** Without TLS if the server has none. */
  mayBePlain: boolean;
  /** The URL without password, for messages. */
  name: string;
}

export class StoreUrlError extends Error {
  override readonly name = 'StoreUrlError';
}

/**
 * Missing parts have libpq's defaults. The password of the URL wins over `password`.
 * @throws StoreUrlError
 */
export function readPostgresUrl(text: string, password?: string): PostgresTarget {
  const url = parse(text);
  const given = readParameters(url);
  const user = decode(url.username) || given.user || 'postgres';
  const host = given.host ?? (decode(url.hostname).replace(/^\[(.*)\]$/, '$1') || 'localhost');
  const port = readPort(given.port ?? (url.port || '5432'));
  const database = decode(url.pathname.slice(1)) || user;
  const schema = readSchema(given.search_path ?? 'public');
  const place = host.startsWith('/') ? host : `${host.includes(':') ? `[${host}]` : host}:${port}`;
  return {
    host,
    port,
    user,
    database,
    schema,
    password: decode(url.password) || password,
    ...readTls(given.sslmode ?? 'prefer', given.sslrootcert, host),
    name: `postgres://${user}@${place}/${database}`,
  };
}

function parse(text: string): URL {
  const [, user = '', rest] = /^postgres(?:ql)?:\/\/([^/?#]*@)?(.*)$/s.exec(text) ?? [];
  // URL accepts a user and a port only with a host, but libpq without one too: a parameter may name a socket.
  const host = rest !== undefined && /^(?:[:/?#]|$)/.test(rest) ? 'localhost' : '';
  const url = `postgres://${user}${host}${rest}`;
  if (rest !== undefined && URL.canParse(url)) return new URL(url);
  throw new StoreUrlError('must look like postgres://USER@HOST:5432/DATABASE');
}

type Parameters = Partial<Record<(typeof PARAMETERS)[number], string>>;

function readParameters(url: URL): Parameters {
  const given: Parameters = {};
  for (const [name, value] of url.searchParams) {
    const known = PARAMETERS.find((parameter) => parameter === name);
    if (!known) {
      throw new StoreUrlError(`has the unknown parameter ${name}; use ${PARAMETERS.join(', ')}`);
    }
    given[known] = value;
  }
  return given;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new StoreUrlError('has a % that no two hexadecimal digits follow; write it as %25');
  }
}

function readPort(text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port > 0 && port < 65_536) return port;
  throw new StoreUrlError('has a port that is not a number from 1 to 65535');
}

function readSchema(schema: string): string {
  if (/^[a-z_][a-z0-9_]{0,62}$/.test(schema)) return schema;
  throw new StoreUrlError(
    'has a search_path that is not one name of lowercase letters, digits and underscores',
  );
}

function readTls(
  mode: string,
  rootCert: string | undefined,
  host: string,
): Pick<PostgresTarget, 'tls' | 'mayBePlain'> {
  const known = SSL_MODES.find((name) => name === mode);
  if (!known) throw new StoreUrlError(`has an unknown sslmode; use ${SSL_MODES.join(', ')}`);
  if (known === 'disable' || host.startsWith('/'))
    return { tls: () => undefined, mayBePlain: true };
  const isOwn = rootCert !== undefined && rootCert !== 'system';
  const readCa = isOwn ? followCert(rootCert) : () => undefined;
  const check = () => {
    const ca = readCa();
    return { rejectUnauthorized: true, ...(ca !== undefined && { ca }) };
  };
  if (known === 'verify-full') return { tls: check, mayBePlain: false };
  // With a root certificate, libpq's `require` is `verify-ca`.
  if (known === 'verify-ca' || (known === 'require' && isOwn)) {
    return { tls: () => ({ ...check(), checkServerIdentity: () => undefined }), mayBePlain: false };
  }
  return { tls: () => ({ rejectUnauthorized: false }), mayBePlain: known === 'prefer' };
}

/** Reads the file at each call. While it cannot be used, the last certificates count. */
function followCert(path: string): () => string {
  let last = readCert(path);
  return () => {
    try {
      last = readCert(path);
    } catch (error) {
      if (!(error instanceof StoreUrlError)) throw error;
    }
    return last;
  };
}

function readCert(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new StoreUrlError(`names an sslrootcert that cannot be read: ${reason}`);
  }
  try {
    // Otherwise TLS ignores the text, and trusts nobody.
    new X509Certificate(text);
  } catch {
    throw new StoreUrlError(`names an sslrootcert that has no certificate in PEM: ${path}`);
  }
  return text;
}
