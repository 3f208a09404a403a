// Starts the services that peers need, each in a folder of its own on the disk: Redis and Postgres as Debian
// packages them. They end with `stop`.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, readdir, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const START_MS = 30_000;
const POSTGRES_USER = 'postgres';
const POSTGRES_FOLDER = '/usr/lib/postgresql';

export interface Service {
  port: number;
  stop(): Promise<void>;
}

/** @param fsync Redis' `appendfsync`: `always` writes each command to disk before its answer. */
export async function startRedis(fsync: 'always' | 'everysec'): Promise<Service> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-redis-'));
  const port = await findFreePort();
  const settings = ['--bind', '127.0.0.1', '--dir', folder, '--appendonly', 'yes', '--save', ''];
  const child = spawn(
    'redis-server',
    ['--port', String(port), ...settings, '--appendfsync', fsync],
    { stdio: 'ignore' },
  );
  return superviseService({ child, folder, port, endSignal: 'SIGTERM' });
}

/** A new cluster with the database `postgres`, whose user needs no password on loopback. */
export async function startPostgres(): Promise<Service> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-postgres-'));
  const port = await findFreePort();
  const bin = join(POSTGRES_FOLDER, await findNewestPostgres(), 'bin');
  const data = join(folder, 'data');
  const user = readPostgresUser();
  if (user) await chown(folder, user.uid, user.gid);
  const inFolder = { stdio: 'ignore', cwd: folder, ...user } as const;
  const make = ['-D', data, '-U', POSTGRES_USER, '--auth', 'trust'];
  execFileSync(join(bin, 'initdb'), make, inFolder);
  const settings = [`listen_addresses=127.0.0.1`, `unix_socket_directories=${folder}`];
  // Enough for the whole benchmark in memory, and no checkpoint in it.
  settings.push('shared_buffers=1GB', 'max_wal_size=4GB', 'max_connections=200');
  const args = ['-D', data, '-p', String(port), ...settings.flatMap((setting) => ['-c', setting])];
  const child = spawn(join(bin, 'postgres'), args, inFolder);
  const isReady = () => {
    try {
      execFileSync(join(bin, 'pg_isready'), ['-h', '127.0.0.1', '-p', String(port)], {
        stdio: 'ignore',
      });
      return true;
    } catch {
      return false;
    }
  };
  // SIGINT: end now, and cleanly.
  return superviseService({ child, folder, port, endSignal: 'SIGINT', isReady });
}

/** Postgres refuses to run as root, so root runs it as the user that Debian's package makes. */
function readPostgresUser(): { uid: number; gid: number } | undefined {
  if (userInfo().uid !== 0) return undefined;
  const read = (flag: string) => Number(execFileSync('id', [flag, POSTGRES_USER]).toString());
  return { uid: read('-u'), gid: read('-g') };
}

interface Started {
  child: ChildProcess;
  folder: string;
  port: number;
  endSignal: NodeJS.Signals;
  /** Default: the port takes a connection. */
  isReady?: () => boolean;
}

async function superviseService({ child, folder, port, endSignal, isReady }: Started) {
  // If the benchmark dies, the service must not stay.
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  const stop = async () => {
    process.removeListener('exit', kill);
    if (child.exitCode === null && child.signalCode === null) {
      const exited = once(child, 'exit');
      child.kill(endSignal);
      await exited;
    }
    await rm(folder, { recursive: true, force: true });
  };
  const failed = once(child, 'error').then(([error]) => Promise.reject(error));
  failed.catch(() => {});
  const deadline = performance.now() + START_MS;
  for (;;) {
    const isUp = isReady ? isReady() : await Promise.race([canConnect(port), failed]);
    if (isUp) return { port, stop };
    if (child.exitCode !== null || performance.now() > deadline) {
      await stop();
      throw new Error(`${child.spawnargs.join(' ')} did not start: exit code ${child.exitCode}`);
    }
    await sleep(50);
  }
}

async function findNewestPostgres(): Promise<string> {
  const versions = await readdir(POSTGRES_FOLDER).catch(() => []);
  const newest = versions.toSorted((a, b) => Number(b) - Number(a))[0];
  if (newest === undefined) throw new Error('Postgres is missing; apt-get install postgresql');
  return newest;
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no free port');
  return address.port;
}

async function canConnect(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
