// Starts the measured processes: platforms, workers and floors.
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const BIN = fileURLToPath(new URL('../bin/millrace.js', import.meta.url));

const READY = /ready at (http:\S+)[\s\S]*over gRPC at (grpc:\S+)/;

export const benchFile = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

export interface Platform {
  url: string;
  /** gRPC URL for workers. */
  grpcUrl: string;
  /** Data folder. */
  folder: string;
  pid: number;
  adminKey: string;
  workerKey: string;
  stop(): Promise<void>;
}

/** Starts `millrace serve` with a new data folder on disk. */
export async function startPlatform(
  endpoints: string[],
  args: readonly string[] = [],
): Promise<Platform> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'));
  const platform = await startPlatformIn(folder, [
    ...args,
    ...endpoints.flatMap((name) => ['--endpoint', name]),
  ]);
  const stop = async () => {
    await platform.stop();
    await rm(folder, { recursive: true });
  };
  return { ...platform, stop };
}

/** Starts a platform on an existing data folder, which is kept. */
export async function startPlatformIn(folder: string, args: readonly string[]): Promise<Platform> {
  const keyFile = join(folder, 'keys');
  const child = spawn(process.execPath, [
    BIN,
    'serve',
    '--port',
    '0',
    '--grpc-port',
    '0',
    '--data',
    join(folder, 'data'),
    '--key-file',
    keyFile,
    '--rate-limit',
    'none',
    ...args,
  ]);
  const [, url = '', grpcUrl = ''] = await waitForText(child, READY);
  const keys = await readFile(keyFile, 'utf8');
  const readKey = (name: string) => new RegExp(`${name}=(\\S+)`).exec(keys)?.[1] ?? '';
  return {
    url,
    grpcUrl,
    folder,
    pid: child.pid ?? 0,
    adminKey: readKey('MILLRACE_ADMIN_KEY'),
    workerKey: readKey('MILLRACE_WORKER_KEY'),
    stop: () => stopProcess(child),
  };
}

export interface WorkerOptions {
  url: string;
  key: string;
  endpoint: string;
  handler: string;
  /** Jobs in the worker's thread. Default: the handler's config decides. */
  slots?: number;
  /** Added to the environment of the worker. */
  env?: Readonly<Record<string, string>>;
}

/** Starts `millrace worker`: a supervisor with one worker process. */
export function spawnWorker(
  { url, key, endpoint, env, handler, slots }: WorkerOptions,
  args: readonly string[] = [],
): ChildProcess {
  const child = spawn(
    process.execPath,
    [
      BIN,
      'worker',
      benchFile(handler),
      '--url',
      url,
      '--endpoint',
      endpoint,
      '--key',
      key,
      '--threads',
      '1',
      ...(slots === undefined ? [] : ['--jobs-per-thread', String(slots)]),
      '--log-level',
      'warn',
      ...args,
    ],
    { stdio: ['ignore', 'ignore', 'inherit'], env: { ...process.env, ...env } },
  );
  return child;
}

export function spawnNode(...args: string[]): ChildProcess {
  return spawn(process.execPath, args, { stdio: 'ignore' });
}

/** Starts a floor, which sends its URL by IPC. */
export async function startFloor(
  file: string,
  args: readonly string[] = [],
): Promise<{ url: string; pid: number; stop(): Promise<void> }> {
  const child = fork(benchFile(file), args, { stdio: 'ignore' });
  const [url] = await once(child, 'message');
  return { url: String(url), pid: child.pid ?? 0, stop: () => stopProcess(child) };
}

export async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  await exited;
}

/** Returns the resident memory in MB. */
export async function readRss(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024;
}

/** Returns the processor time of the process, user and system, ms. */
export async function readCpuMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // The name may contain any character, so parsing begins after it, at the third field. Ticks of 10
  // ms.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

/** Resets the peak that `readPeakRss` returns. */
export async function resetPeakRss(pid: number): Promise<void> {
  await writeFile(`/proc/${pid}/clear_refs`, '5');
}

/** Returns the peak resident memory in MB. */
export async function readPeakRss(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) / 1_024;
}

function waitForText(child: ChildProcess, pattern: RegExp): Promise<RegExpExecArray> {
  return new Promise((resolve, reject) => {
    let seen = '';
    const look = (data: Buffer) => {
      seen += data.toString();
      const found = pattern.exec(seen);
      if (found) resolve(found);
    };
    child.stdout?.on('data', look);
    child.stderr?.on('data', look);
    child.once('exit', (code) =>
      reject(new Error(`exited with ${code} before it was up: ${seen}`)),
    );
  });
}
