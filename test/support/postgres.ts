// Starts a Postgres server of the tests' own, from Debian's package, with the durability off that tests do not need.
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from 'pg';
import type { Certificate } from './certificates.ts';
import { findFreePort } from './network/free-port.ts';
import { holdsMemory, killTree } from './process-tree.ts';
import { until } from './until.ts';

const PACKAGES = '/usr/lib/postgresql';
const OWNER = 'postgres';
const START_MS = 60_000;

const run = promisify(execFile);

/**
 * Whether the test file is left out: without Postgres on a laptop. In CI a missing Postgres fails the run.
 */
export function leaveOutWithoutPostgres(file: string): boolean {
  if (findPrograms() !== undefined || process.env['CI']) return false;
  console.warn(`${file} is left out: Postgres is not installed`);
  return true;
}

/** Folder with the newest version's programs. */
function findPrograms(): string | undefined {
  if (!existsSync(PACKAGES)) return undefined;
  const versions = readdirSync(PACKAGES).toSorted((a, b) => Number(b) - Number(a));
  return versions
    .map((version) => join(PACKAGES, version, 'bin'))
    .find((bin) => existsSync(join(bin, 'initdb')));
}

export interface PostgresSettings {
  /** Settings of the server: `{ fsync: 'on' }`. */
  settings?: Readonly<Record<string, string>>;
  /** Parent of its folder. Default: that of temporary files. */
  parent?: string;
}

export class PostgresServer {
  readonly #bin: string;
  readonly #folder: string;
  readonly #settings: Readonly<Record<string, string>>;
  readonly port: number;
  #process: ChildProcess | undefined;
  #databases = 0;
  #admin: Client | undefined;
  readonly #kill = () => this.#process?.kill('SIGKILL');

  private constructor(
    bin: string,
    port: number,
    { parent = tmpdir(), settings = {} }: PostgresSettings,
  ) {
    this.#bin = bin;
    this.port = port;
    this.#settings = settings;
    this.#folder = mkdtempSync(join(parent, 'millrace-postgres-'));
    const owner = findOwner();
    if (owner) chownSync(this.#folder, owner.uid, owner.gid);
    // If the test dies, the server must not stay.
    process.once('exit', this.#kill);
  }

  static async start(settings: PostgresSettings = {}): Promise<PostgresServer> {
    const bin = findPrograms();
    if (bin === undefined) throw new Error('Postgres is not installed: apt-get install postgresql');
    const server = new PostgresServer(bin, await findFreePort(), settings);
    const make = ['-D', server.data, '-U', OWNER, '-A', 'trust', '-E', 'UTF8'];
    const cheap = ['--locale=C', '--no-sync', '--no-instructions'];
    await run(join(bin, 'initdb'), [...make, ...cheap], server.#asOwner);
    await server.resume();
    return server;
  }

  /** Of the process that starts all others of the server. */
  get pid(): number {
    return this.#process?.pid ?? 0;
  }

  /** Its data folder. */
  get data(): string {
    return join(this.#folder, 'data');
  }

  get #asOwner() {
    return { cwd: this.#folder, ...findOwner() };
  }

  /** Of a database on this server. */
  url(database = OWNER, user = OWNER): string {
    return `postgres://${user}@127.0.0.1:${this.port}/${database}?sslmode=disable`;
  }

  /** Makes an empty database. @returns its URL */
  async createDatabase(): Promise<string> {
    const name = `test_${++this.#databases}`;
    await this.query(`create database ${name}`);
    return this.url(name);
  }

  /** Empties the tables of a store that is closed, which takes less time than to make new ones. */
  async empty(schema: string): Promise<void> {
    if (!this.#admin) {
      this.#admin = new Client({ connectionString: this.url() });
      this.#admin.on('error', () => {});
      await this.#admin.connect();
    }
    await this.#admin.query(`do $$ declare name text; begin
      for name in select tablename from pg_tables where schemaname = '${schema}'
        and tablename not in ('schema_version', 'last_commit')
      loop execute format('delete from ${schema}.%I', name); end loop; end $$`);
  }

  /** Runs SQL with psql, as the superuser. @returns what it prints, without headings */
  async query(sql: string, database = OWNER): Promise<string> {
    const where = ['-h', '127.0.0.1', '-p', String(this.port), '-U', OWNER, '-d', database];
    const { stdout } = await run(join(this.#bin, 'psql'), [...where, '-XAtq', '-c', sql]);
    return stdout.trim();
  }

  /** Makes a user that needs a password. `tls`: and an encrypted connection. */
  async addUser(name: string, password: string, how: 'plain' | 'tls' = 'plain'): Promise<void> {
    await this.query(`create role ${name} login password '${password}'`);
    const path = join(this.data, 'pg_hba.conf');
    const rules = readFileSync(path, 'utf8');
    const kind = how === 'tls' ? 'hostssl' : 'host';
    const rule = `${kind} all ${name} 127.0.0.1/32 scram-sha-256\nhost all ${name} all reject\n`;
    writeFileSync(path, rule + rules);
    await this.query('select pg_reload_conf()');
  }

  /** From now on the server offers TLS with this certificate. */
  async enableTls({ cert, key }: Certificate): Promise<void> {
    for (const [name, content] of Object.entries({ 'server.crt': cert, 'server.key': key })) {
      const path = join(this.data, name);
      writeFileSync(path, content, { mode: 0o600 });
      const owner = findOwner();
      if (owner) chownSync(path, owner.uid, owner.gid);
    }
    await this.query('alter system set ssl = on');
    await this.query('select pg_reload_conf()');
    await until(async () => (await this.query('show ssl')) === 'on');
  }

  /** Restarts the server as a standby whose primary is away. */
  async demote(): Promise<void> {
    await this.halt();
    writeFileSync(join(this.data, 'standby.signal'), '');
    await this.resume();
  }

  /** Makes a standby the primary. */
  async promote(): Promise<void> {
    await this.query('select pg_promote()');
  }

  /** False after a failure that it does not survive. */
  get isRunning(): boolean {
    return this.#process?.exitCode === null && this.#process.signalCode === null;
  }

  /** Ends the server at once, as a crash would. */
  async crash(): Promise<void> {
    await this.#end('SIGQUIT');
  }

  /** Kills the server with all its processes, before any of them can react. */
  async kill(): Promise<void> {
    const pid = this.#process?.pid;
    if (pid === undefined) return;
    // So that it starts no more processes.
    process.kill(pid, 'SIGSTOP');
    const killed = killTree(pid);
    await this.#end('SIGKILL');
    // Postgres refuses to start while a process has the shared memory of the last run.
    await until(() => !killed.some(holdsMemory));
  }

  /** Ends the server with all its data on disk. */
  async halt(): Promise<void> {
    await this.#end('SIGINT');
  }

  /** Starts it again. `env`: besides that of the tests. */
  async resume(env: Record<string, string> = {}): Promise<void> {
    const settings = {
      listen_addresses: '127.0.0.1',
      unix_socket_directories: this.#folder,
      fsync: 'off',
      full_page_writes: 'off',
      max_connections: '40',
      ...this.#settings,
    };
    const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const child = spawn(
      join(this.#bin, 'postgres'),
      ['-D', this.data, '-p', String(this.port), ...args],
      { stdio: 'ignore', ...this.#asOwner, env: { ...process.env, ...env } },
    );
    this.#process = child;
    const end = performance.now() + START_MS;
    for (;;) {
      const isReady = await this.query('select 1').then(
        () => true,
        () => false,
      );
      if (isReady) return;
      if (this.#process !== child) throw new Error('Postgres was ended during its start');
      if (child.exitCode !== null || performance.now() > end) {
        await this.stop();
        throw new Error(`Postgres did not start: exit code ${child.exitCode}`);
      }
      await sleep(25);
    }
  }

  /** Ends the server and removes its data. */
  async stop(): Promise<void> {
    process.removeListener('exit', this.#kill);
    await this.#end('SIGQUIT');
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    await this.#admin?.end();
    this.#admin = undefined;
    const child = this.#process;
    this.#process = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }
}

/** Postgres refuses to run as root, so root runs it as the user that Debian's package makes. */
function findOwner(): { uid: number; gid: number } | undefined {
  if (userInfo().uid !== 0) return undefined;
  const read = (flag: string) => Number(execFileSync('id', [flag, OWNER]).toString());
  return { uid: read('-u'), gid: read('-g') };
}
