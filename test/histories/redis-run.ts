// The control group of the power cuts: job queues on Redis, whose `appendfsync` decides what a cut takes.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { isTerminal, type JobStatus } from '../../src/wire/job/job.ts';
import type { RecordedInput } from '../support/handlers/recorded.ts';
import { PowerLossDisk } from '../support/power-loss/disk.ts';
import { createRandom } from '../support/random.ts';
import { collectFacts } from './facts.ts';
import { type Call, type History, Recorder } from './history.ts';
import { type PowerRun, type PowerVerdict, type ReplayedMachine, replayCuts } from './power-run.ts';

const USER = 'owner';
const QUEUE = 'jobs';
const CLIENTS = 8;
const LONGEST_JOB_MS = 300;
const POLL_MS = 20;

export interface RedisRun extends Omit<PowerRun, 'postgres'> {
  cuts: number;
  /** When Redis calls fsync: each second, or before it answers. */
  appendfsync: 'everysec' | 'always';
  open: OpenQueue;
}

/** A job queue on the Redis that listens on a Unix socket. `worker`: whether it also runs the jobs. */
export type OpenQueue = (socket: string, options: { worker: boolean }) => Promise<RedisQueue>;

interface RedisQueue extends AsyncDisposable {
  /** @returns the ID of the job, when Redis has acknowledged it */
  add(input: RecordedInput): Promise<string>;
  /** Undefined: there is no such job. */
  find(id: string): Promise<JobStatus | undefined>;
}

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

/** Like `replayPowerCuts`, but of Redis: the same rules judge what its clients see. */
export async function replayRedisCuts(run: RedisRun): Promise<PowerVerdict> {
  return await replayCuts(await RedisMachine.build(run), run);
}

class RedisMachine implements ReplayedMachine {
  readonly disk: PowerLossDisk;
  readonly #run: RedisRun;

  private constructor(run: RedisRun, disk: PowerLossDisk) {
    this.#run = run;
    this.disk = disk;
  }

  static async build(run: RedisRun): Promise<RedisMachine> {
    const { appendfsync, library } = run;
    const folder = join(run.folder, 'redis');
    mkdirSync(folder);
    // The first start writes files through stdio, of which the library sees nothing.
    await using first = await startRedis(folder, { appendfsync });
    await first.end('SIGTERM');
    const log = join(run.folder, 'redis-changes');
    return new RedisMachine(run, new PowerLossDisk({ folder, log, library }));
  }

  async sample(): Promise<History> {
    const { appendfsync, loadMs, open, seed } = this.#run;
    const env = this.disk.environment();
    await using redis = await startRedis(this.disk.folder, { appendfsync, env });
    const name = `redis-${seed}`;
    const endpoints = { [QUEUE]: { user: USER } };
    const recorder = new Recorder({ seed, name, endpoints, limits: [], leaseMs: 0 });
    const random = createRandom(seed);
    const until = Date.now() + loadMs;
    let tags = 0;
    await using queue = await open(redis.socket, { worker: true });
    const play = async () => {
      while (Date.now() < until) {
        const input = { tag: `${name}-${++tags}`, ms: Math.floor(random() * LONGEST_JOB_MS) };
        const id = await submit(recorder, queue, input);
        const isOpen = async () => {
          const status = await read(recorder, queue, id);
          return status !== undefined && !isTerminal(status);
        };
        while (await isOpen()) await sleep(POLL_MS);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, play));
    return recorder.history;
  }

  locateReplay(lane: number): string {
    return join(this.#run.folder, `replay-${lane}`);
  }

  async readAfter(folder: string, { events, ...about }: History): Promise<History> {
    const { appendfsync, open } = this.#run;
    await repair(folder);
    await using redis = await startRedis(folder, { appendfsync });
    const recorder = new Recorder(about);
    recorder.history.events.push(...events);
    await using queue = await open(redis.socket, { worker: false });
    const left = collectFacts(recorder.history).jobs.keys();
    const readLeft = async () => {
      for (const id of left) await read(recorder, queue, id);
    };
    await Promise.all(Array.from({ length: CLIENTS }, readLeft));
    return recorder.history;
  }

  findDamage(): string[] {
    return [];
  }
}

async function submit(recorder: Recorder, queue: RedisQueue, input: RecordedInput) {
  const sentAt = recorder.now();
  const id = await queue.add(input);
  const answer = { status: 200, body: { id, status: 'IN_QUEUE' } };
  note(recorder, { sentAt, answer, request: { do: 'run', endpoint: QUEUE, body: { input } } });
  return id;
}

/** @returns undefined if the job is not found */
async function read(recorder: Recorder, queue: RedisQueue, id: string) {
  const sentAt = recorder.now();
  const status = await queue.find(id);
  const answer = status ? { status: 200, body: { id, status } } : { status: 404, body: {} };
  note(recorder, { sentAt, answer, request: { do: 'status', endpoint: QUEUE, job: id } });
  return status;
}

function note(recorder: Recorder, call: Pick<Call, 'sentAt' | 'answer' | 'request'>): void {
  recorder.note({ ...call, kind: 'call', user: USER, answeredAt: recorder.now() });
}

/** Only sets keys: needs no package. */
export const openPlain: OpenQueue = async (socket, { worker }) => {
  const ends: Promise<unknown>[] = [];
  return {
    async add({ tag }) {
      await ask(socket, `SET ${tag} IN_QUEUE`);
      if (worker) ends.push(ask(socket, `SET ${tag} COMPLETED`));
      return tag;
    },
    async find(id) {
      const [, status] = (await ask(socket, `GET ${id}`)).split('\r\n');
      if (status === undefined) return undefined;
      return status === 'COMPLETED' ? 'COMPLETED' : 'IN_QUEUE';
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(ends);
    },
  };
};

/** What the control group uses of the package, which is a dependency of `bench/peers` only. */
interface Bullmq {
  Queue: new (
    name: string,
    options: object,
  ) => {
    add(name: string, data: RecordedInput): Promise<{ id?: string }>;
    getJobState(id: string): Promise<string>;
    close(): Promise<void>;
  };
  Worker: new (
    name: string,
    work: (job: { data: RecordedInput }) => Promise<unknown>,
    options: object,
  ) => { close(): Promise<void> };
}

const BULLMQ_STATUSES: Record<string, JobStatus | undefined> = {
  ...{ completed: 'COMPLETED', active: 'IN_PROGRESS', failed: 'FAILED', unknown: undefined },
};

export const openBullmq: OpenQueue = async (path, options) => {
  const { Queue, Worker }: Bullmq = await import(pathToFileURL(locateBullmq()).href);
  const connection = { path, maxRetriesPerRequest: null };
  const queue = new Queue(QUEUE, { connection });
  const work = ({ data }: { data: RecordedInput }) => sleep(data.ms);
  const worker = options.worker && new Worker(QUEUE, work, { connection, concurrency: CLIENTS });
  return {
    add: async (input) => (await queue.add('job', input)).id ?? '',
    async find(id) {
      const state = await queue.getJobState(id);
      return state in BULLMQ_STATUSES ? BULLMQ_STATUSES[state] : 'IN_QUEUE';
    },
    async [Symbol.asyncDispose]() {
      if (worker) await worker.close();
      await queue.close();
    },
  };
};

function locateBullmq(): string {
  return createRequire(join(import.meta.dirname, '../../bench/peers/package.json')).resolve(
    'bullmq',
  );
}

/** Whether BullMQ is left out: without the packages of `bench/peers`. */
export function leaveOutWithoutBullmq(file: string): boolean {
  try {
    locateBullmq();
    return false;
  } catch {
    console.warn(`BullMQ in ${file} is left out: run npm install --no-save in bench/peers`);
    return true;
  }
}

/** Redis refuses a log with a torn end. Its manual says to cut the log there. */
async function repair(folder: string): Promise<void> {
  const manifest = join(folder, 'appendonlydir', 'appendonly.aof.manifest');
  const check = spawn('redis-check-aof', ['--fix', manifest], {
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  check.stdin.on('error', () => {}).end('y\n');
  const [code] = await once(check, 'exit');
  if (code !== 0) throw new Error(`redis-check-aof ended with ${code}`);
}

interface RedisOptions {
  appendfsync: string;
  env?: Record<string, string>;
}

async function startRedis(folder: string, { appendfsync, env = {} }: RedisOptions) {
  const socket = `${folder}.sock`;
  const child = spawn(
    'redis-server',
    [
      ...['--port', '0', '--unixsocket', socket, '--dir', folder],
      ...['--appendonly', 'yes', '--appendfsync', appendfsync, '--save', ''],
    ],
    { stdio: 'ignore', env: { ...process.env, ...env } },
  );
  const exited = once(child, 'exit');
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    await exited;
  };
  while (!(await ask(socket, 'PING').catch(() => '')).startsWith('+PONG')) {
    const code = child.exitCode ?? child.signalCode;
    if (code !== null) throw new Error(`redis-server ended with ${code}`);
    await sleep(10);
  }
  return { socket, end, [Symbol.asyncDispose]: () => end('SIGKILL') };
}

/** @returns the answer, which must fit into one packet */
async function ask(path: string, command: string): Promise<string> {
  const socket = connect(path);
  socket.on('end', () => socket.destroy(new Error('Redis has closed the connection')));
  try {
    socket.write(`${command}\r\n`);
    const [answer] = await once(socket, 'data');
    return String(answer).trim();
  } finally {
    socket.destroy();
  }
}
