// One connection to Postgres that holds the store's lock. It ends with the connection; database-link.ts then opens
// another one.
import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, type QueryConfig, type QueryResult } from 'pg';
import type { Query, Row, Step } from '../store.ts';
import type { PostgresTarget } from './connection-url.ts';
import { describeUnavailable, isRefusal } from './postgres-errors.ts';
import { encodeValues, type Statement, Statements, valueTypes } from './statements.ts';

export interface SessionOptions {
  target: PostgresTarget;
  /** How long to wait for the server's first answer, ms. */
  connectTimeoutMs: number;
  /** Longest time of a statement, ms. */
  statementTimeoutMs: number;
  /** Opens a session. Default: with pg, over the network or a Unix socket. */
  connect?: ((options: SessionOptions) => Promise<Session>) | undefined;
}

/** The answer to a statement. */
export type Answer = Pick<QueryResult<Row>, 'command' | 'rows'>;

/** What a session uses of pg's client. */
export interface SessionClient {
  query(config: string | QueryConfig): Promise<Answer>;
  end(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  once(event: 'end', listener: () => void): unknown;
}

/** What a session uses of the client's socket. */
export interface SessionSocket {
  cork(): void;
  uncork(): void;
  destroy(): unknown;
}

/** Postgres ends a transaction that is idle for so long: its client is frozen. */
const IDLE_TRANSACTION_MS = 60_000;
/** How long to wait for the server to close the connection, ms. */
const END_MS = 1_000;
/** How long after its own limit the server's answer to a statement is waited for, ms. */
const LATE_MS = 2_000;
/** The server misses a client that vanished after 5 + 3 × 2 s, and releases its lock. */
const SERVER_KEEPALIVE = {
  tcp_keepalives_idle: 5,
  tcp_keepalives_interval: 2,
  tcp_keepalives_count: 3,
};
/**
 * The server plans a statement again after so many runs. On an empty table all indexes are equally good, so its first plan
 * may use the wrong one. Only autovacuum would replace that plan, and the table may have a million rows by then.
 */
const STATEMENTS_PER_PLAN = 1_000;
/** A statement may write many rows: it counts once more for so many bytes of its parameters. */
const BYTES_PER_STATEMENT = 1_024;
/** The statements are made for the indexes; without statistics the planner would scan small tables that grow. */
const PLANNER = {
  enable_indexscan: 'on',
  enable_indexonlyscan: 'on',
  enable_nestloop: 'on',
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  enable_sort: 'off',
  jit: 'off',
};

/**
 * Everything that the store's statements and the decoding of their answers rely on, and a server, database or role may
 * have set otherwise. `synchronous_commit` is up to the operator unless it is off: see server.ts.
 */
const FORMS = {
  bytea_output: 'hex',
  DateStyle: 'ISO, MDY',
  IntervalStyle: 'postgres',
  TimeZone: 'UTC',
  extra_float_digits: 1,
  standard_conforming_strings: 'on',
  array_nulls: 'on',
  transform_null_equals: 'off',
  default_transaction_isolation: 'read committed',
  default_transaction_deferrable: 'off',
  row_security: 'on',
  exit_on_error: 'off',
  plan_cache_mode: 'auto',
  idle_session_timeout: 0,
  // Since Postgres 17.
  transaction_timeout: 0,
};

export class Session {
  readonly #client: SessionClient;
  readonly #socket: SessionSocket;
  #isCorked = false;
  readonly #statements = new Statements();
  #error: Error | undefined;
  /** Statements sent since plans were made. */
  #sent = 0;
  /** Resolves when the connection has ended, whoever ended it. */
  readonly ended: Promise<void>;

  private constructor(client: SessionClient, socket: SessionSocket) {
    this.#client = client;
    this.#socket = socket;
    client.on('error', (error: Error) => {
      this.#error ??= error;
    });
    this.ended = new Promise((resolve) => client.once('end', () => resolve()));
  }

  /** @throws the error of pg or the system */
  static async connect(options: SessionOptions): Promise<Session> {
    const { target } = options;
    if (options.connect) return options.connect(options);
    try {
      return await connect(options, target.tls());
    } catch (error) {
      const isPlain = error instanceof Error && error.message.includes('does not support SSL');
      if (!isPlain || !target.mayBePlain) throw error;
      return connect(options, undefined);
    }
  }

  /** `socket`: the one of the client. */
  static of(client: SessionClient, socket: SessionSocket): Session {
    return new Session(client, socket);
  }

  /** Why the connection ended; undefined before. */
  get error(): Error | undefined {
    return this.#error;
  }

  /** Process of the server. */
  async readPid(): Promise<number> {
    const [row] = await this.query({ sql: 'select pg_backend_pid() as pid', params: [] });
    return Number(row?.['pid']);
  }

  find(sql: string): Statement {
    return this.#statements.get(sql);
  }

  async query(query: Query): Promise<Row[]> {
    return (await this.run(this.find(query.sql), query.params)).rows;
  }

  /** Sends the statement at once, behind those whose answers are not there yet. */
  run({ name, text }: Statement, params: Query['params'] = []): Promise<Answer> {
    const values = encodeValues(params);
    this.#countSent(values);
    this.#cork();
    const config = { text, values };
    return this.#client.query(name === undefined ? config : { ...config, name });
  }

  #countSent(values: Query['params']): void {
    let bytes = BYTES_PER_STATEMENT;
    for (const value of values) if (value instanceof Uint8Array) bytes += value.length;
    this.#sent += bytes / BYTES_PER_STATEMENT;
    if (this.#sent < STATEMENTS_PER_PLAN) return;
    this.#sent = 0;
    this.execute('discard plans').catch(() => {});
  }

  /** Runs statements without parameters. */
  execute(sql: string): Promise<Answer> {
    this.#cork();
    return this.#client.query(sql);
  }

  /** All statements of this iteration of the event loop are written to the socket together. */
  #cork(): void {
    if (this.#isCorked) return;
    this.#isCorked = true;
    this.#socket.cork();
    process.nextTick(() => {
      this.#isCorked = false;
      this.#socket.uncork();
    });
  }

  /** Ends the connection at once, also one that does not answer. */
  destroy(): void {
    this.#socket.destroy();
  }

  /** Never rejects. A connection that is frozen ends too. */
  async end(): Promise<void> {
    const timeout = new AbortController();
    const { signal } = timeout;
    const isLate = sleep(END_MS, undefined, { signal }).catch(() => {});
    await Promise.race([this.#client.end().catch(() => {}), isLate]);
    timeout.abort();
    this.destroy();
  }
}

/** Runs an operation that only reads. @throws StoreUnavailableError, and the database's refusal */
export async function runSteps<T>(steps: Step<T>, session: Session): Promise<T> {
  let step = steps.next();
  while (!step.done) {
    let rows: Row[];
    try {
      rows = await session.query(step.value);
    } catch (error) {
      step = steps.throw(isRefusal(error) ? error : describeUnavailable(error));
      continue;
    }
    step = steps.next(rows);
  }
  return step.value;
}

async function connect(
  { connectTimeoutMs, statementTimeoutMs, target }: SessionOptions,
  tls: ReturnType<PostgresTarget['tls']>,
): Promise<Session> {
  const { database, host, password, port, schema, user } = target;
  const socket = new Socket();
  const client = new Client({
    stream: () => socket,
    database,
    host,
    port,
    user,
    // As a function: otherwise pg looks for one in the environment and in files.
    password: () => {
      if (password === undefined) throw new Error('the server asks for a password; give one');
      return password;
    },
    ssl: tls ?? false,
    pipeline: true,
    types: valueTypes,
    application_name: 'millrace',
    client_encoding: 'UTF8',
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: statementTimeoutMs + LATE_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: 5_000,
  });
  const session = Session.of(client, socket);
  await client.connect();
  try {
    await applySettings(session, {
      search_path: schema,
      lock_timeout: statementTimeoutMs,
      idle_in_transaction_session_timeout: IDLE_TRANSACTION_MS,
      statement_timeout: statementTimeoutMs,
      ...FORMS,
      ...SERVER_KEEPALIVE,
      ...PLANNER,
    });
  } catch (error) {
    session.destroy();
    throw error;
  }
  return session;
}

/** Applies settings by statements, because a pooler refuses or drops settings of the connection. The server may lack some. */
async function applySettings(
  session: Session,
  settings: Readonly<Record<string, string | number>>,
): Promise<void> {
  // Set first: the other statements may take longer than a short limit of the database.
  const limit = session.execute(`set statement_timeout = ${settings['statement_timeout']}`);
  const values = Object.entries(settings).map(([name, value]) => `('${name}', '${value}')`);
  const applied = session.execute(
    `select pg_catalog.set_config(s.name, v.value, false)
      from (values ${values.join()}) v (name, value)
      join pg_catalog.pg_settings s on s.name = v.name`,
  );
  await Promise.all([limit, applied]);
}
