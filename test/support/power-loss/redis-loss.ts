// The control group of the power cuts: Redis that calls fsync once a second acknowledges what a cut then takes away.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findFreePort } from '../network/free-port.ts';
import { PowerLossDisk } from './disk.ts';

const PUSHES = 500;

/** Whether the control group is left out: without Redis on a laptop. In CI a missing one fails the run. */
export function leaveOutWithoutRedis(file: string): boolean {
  try {
    execFileSync('redis-server', ['--version'], { stdio: 'ignore' });
    return false;
  } catch {
    if (process.env['CI']) return false;
    console.warn(`the control group of ${file} is left out: Redis is not installed`);
    return true;
  }
}

/** @returns how many jobs Redis has acknowledged, and how many of them it has after a power cut */
export async function cutRedis(options: { folder: string; library: string; seed: number }) {
  const folder = join(options.folder, `redis-${options.seed}`);
  mkdirSync(folder);
  const port = await findFreePort();
  // The first start writes files through stdio, of which the library sees nothing.
  await using first = await startRedis(folder, port);
  await first.end('SIGTERM');
  const log = join(options.folder, 'redis-changes');
  const disk = new PowerLossDisk({ folder, log, library: options.library });
  await using second = await startRedis(folder, port, disk.environment());
  let acknowledged = 0;
  for (; acknowledged < PUSHES; acknowledged++) await ask(port, `RPUSH jobs ${acknowledged}`);
  await second.end('SIGKILL');
  disk.cut({ seed: options.seed });
  return { acknowledged, kept: await countJobs(folder, port) };
}

async function countJobs(folder: string, port: number): Promise<number | 'refused'> {
  try {
    await using _ = await startRedis(folder, port);
    return Number((await ask(port, 'LLEN jobs')).slice(1));
  } catch (error) {
    // It refuses a log that is damaged before its end.
    if (error instanceof RedisEndedError) return 'refused';
    throw error;
  }
}

class RedisEndedError extends Error {}

async function startRedis(folder: string, port: number, env: Record<string, string> = {}) {
  const settings = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--save', ''];
  const child = spawn(
    'redis-server',
    ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, ...settings],
    { stdio: 'ignore', env: { ...process.env, ...env } },
  );
  const end = async (signal: NodeJS.Signals) => endChild(child, signal);
  while (!(await ask(port, 'PING').catch(() => '')).startsWith('+PONG')) {
    if (child.exitCode !== null) throw new RedisEndedError(`redis-server ended: ${child.exitCode}`);
    await sleep(10);
  }
  return { end, [Symbol.asyncDispose]: () => end('SIGKILL') };
}

async function endChild(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  await exited;
}

/** @returns the first line of the answer */
async function ask(port: number, command: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  try {
    socket.write(`${command}\r\n`);
    const [answer] = await once(socket, 'data');
    return String(answer).trim();
  } finally {
    socket.destroy();
  }
}
