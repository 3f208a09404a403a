// Starts the services that peers need, each in a folder of its own on the disk: Redis and Postgres as Debian
// packages them. They end with `stop`.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PostgresServer } from '../../test/support/postgres.ts';
import { DURABLE } from '../services/durable-postgres.ts';

const START_MS = 30_000;

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
export function startPostgres(): Promise<Service> {
  return PostgresServer.start({ settings: DURABLE });
}

interface Started {
  child: ChildProcess;
  folder: string;
  port: number;
  endSignal: NodeJS.Signals;
}

async function superviseService({ child, folder, port, endSignal }: Started) {
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
    const isUp = await Promise.race([canConnect(port), failed]);
    if (isUp) return { port, stop };
    if (child.exitCode !== null || performance.now() > deadline) {
      await stop();
      throw new Error(`${child.spawnargs.join(' ')} did not start: exit code ${child.exitCode}`);
    }
    await sleep(50);
  }
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
