// Samples from the stand-in for nvidia-smi, as real processes.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createLog } from '../../../../src/base/log.ts';
import { readProcess } from '../../../../src/base/process/process-table.ts';
import type { GpuFigures } from '../../../../src/worker/gpu/gpu-accounts.ts';
import {
  type FedWorker,
  GpuUsageFeed,
  SmiLoop,
} from '../../../../src/worker/gpu/gpu-usage-feed.ts';
import { type Answer, type Failure, standIn } from '../../../support/nvidia-smi/stand-in.ts';

const MIB = 2 ** 20;
const POLL = { timeout: 30_000, interval: 20 };
const [first, second] = ['GPU-a1', 'GPU-a2'];

let folder: string;
let children: ChildProcess[];
let feeds: { stop(): void }[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-feed-'));
  children = [];
  feeds = [];
  say('one-h200');
  for (const name of ['DEVICES', 'PROCESSES', 'LOOPS']) {
    vi.stubEnv(`NVIDIA_SMI_${name}`, join(folder, name));
    await writeFile(join(folder, name), '');
  }
});

afterEach(async () => {
  for (const feed of feeds) feed.stop();
  for (const child of children) child.kill('SIGKILL');
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true });
});

function say(words: Answer | Failure): void {
  vi.stubEnv('NVIDIA_SMI_SAYS', words);
}

function write(name: 'DEVICES' | 'PROCESSES', lines: string[]): Promise<void> {
  return writeFile(join(folder, name), lines.map((line) => `${line}\n`).join(''));
}

function startProcess(...command: [string, ...string[]]): number {
  const [program, ...args] = command;
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  return child.pid ?? 0;
}

class NotedWorker implements FedWorker {
  readonly uuids: string[];
  readonly pid: number | undefined;
  readonly noted: GpuFigures[] = [];

  constructor(pid: number | undefined, ...uuids: string[]) {
    this.pid = pid;
    this.uuids = uuids;
  }

  noteGpuFigures(figures: GpuFigures): void {
    this.noted.push(figures);
  }

  get last(): GpuFigures | undefined {
    return this.noted.at(-1);
  }
}

function startFeed(...workers: NotedWorker[]) {
  const lines: string[] = [];
  const stream = new Writable({
    write(line, _encoding, done) {
      lines.push(String(line));
      done();
    },
  });
  const log = createLog({ level: 'info', destination: stream });
  const feed = new GpuUsageFeed({ command: standIn, workers, everyMs: 100, log });
  feeds.push(feed);
  feed.start();
  return { feed, lines };
}

function isAlive(pid: number): boolean {
  const entry = readProcess(pid);
  return entry !== undefined && !entry.isDead;
}

async function readLoops(): Promise<number[]> {
  const lines = (await readFile(join(folder, 'LOOPS'), 'utf8')).split('\n');
  return lines.filter((line) => line !== '').map((line) => Number.parseInt(line, 10));
}

describe('each worker gets', () => {
  it('the figures of its own devices, and the memory of its own processes', async () => {
    const parent = startProcess('/bin/sh', '-c', 'sleep 600 >/dev/null & echo $!; wait');
    const [output] = await new Promise<Buffer[]>((resolve) => {
      children[0]?.stdout?.once('data', (bytes: Buffer) => resolve([bytes]));
    });
    const grandchild = Number(String(output));
    onTestFinished(() => {
      process.kill(grandchild, 'SIGKILL');
    });
    const other = startProcess('sleep', '600');
    await write('DEVICES', [`${first}, 9000, 80, 500.00`, `${second}, 4000, 20, 100.00`]);
    await write('PROCESSES', [
      `${first}, ${parent}, 1000`,
      `${second}, ${grandchild}, 2000`,
      // Someone else's, and one of another namespace of process IDs.
      `${first}, ${process.pid}, 5000`,
      `${first}, 2147483000, 5000`,
    ]);
    const both = new NotedWorker(parent, first, second);
    const one = new NotedWorker(other, second);
    const none = new NotedWorker(undefined, first);
    startFeed(both, one, none);
    await expect
      .poll(() => both.last, POLL)
      .toMatchObject({
        ...{ vramBytes: 3000 * MIB, vramScope: 'process', utilization: 0.5, powerWatts: 600 },
      });
    await expect
      .poll(() => one.last, POLL)
      .toMatchObject({
        ...{ vramBytes: 4000 * MIB, vramScope: 'devices', utilization: 0.2, powerWatts: 100 },
      });
    expect(none.noted).toEqual([]);

    // The worker was listed, so it uses nothing when it is no longer listed.
    await write('PROCESSES', []);
    await expect.poll(() => both.last?.vramBytes, POLL).toBe(0);
  }, 60_000);

  it('nothing of lines that are no samples', async () => {
    const worker = new NotedWorker(process.pid, first);
    await write('DEVICES', ['Unable to determine', 'x'.repeat(2_000_000), `${first}, 1, 2, 3.00`]);
    await write('PROCESSES', ['No running processes found', `${first}, ${process.pid}, [N/A]`]);
    startFeed(worker);
    await expect
      .poll(() => worker.last, POLL)
      .toMatchObject({
        ...{ vramBytes: MIB, vramScope: 'devices', utilization: 0.02, powerWatts: 3 },
      });
  }, 60_000);
});

describe('nvidia-smi', () => {
  it('is restarted when it ends, and its failure is logged once', async () => {
    say('driver-error');
    const { lines } = startFeed(new NotedWorker(process.pid, first));
    // Both loops, each again after a second.
    await expect.poll(async () => (await readLoops()).length, POLL).toBeGreaterThanOrEqual(4);
    expect(lines.filter((line) => line.includes('sampling GPUs failed, retrying'))).toHaveLength(1);
    expect(lines.join()).toContain('exited with code 9 and said: NVIDIA-SMI has failed');
  }, 60_000);

  it('is killed and replaced when it is silent', async () => {
    say('hang');
    const failures: string[] = [];
    const loop = new SmiLoop({
      ...{ command: standIn, args: ['--query-gpu=uuid'], everyMs: 100, maxSilenceMs: 300 },
      onLine: () => {},
      onFailure: (reason) => failures.push(reason),
    });
    feeds.push(loop);
    loop.start();
    await expect.poll(() => failures.length, POLL).toBeGreaterThanOrEqual(3);
    expect(failures[0]).toBe('nvidia-smi printed no sample for 300 ms');
    const [killed = 0] = await readLoops();
    await expect.poll(() => isAlive(killed), POLL).toBe(false);
  }, 60_000);

  it('fails and does nothing else if it does not exist', async () => {
    const failures: string[] = [];
    const loop = new SmiLoop({
      ...{ command: join(folder, 'none'), args: [], everyMs: 100, onLine: () => {} },
      onFailure: (reason) => failures.push(reason),
    });
    feeds.push(loop);
    loop.start();
    await expect.poll(() => failures[0], POLL).toBe('nvidia-smi exited with code 127');
  }, 60_000);

  it('tells what it costs, and ends with the feed', async () => {
    await write('DEVICES', [`${first}, 1, 2, 3.00`]);
    const worker = new NotedWorker(process.pid, first);
    const { feed } = startFeed(worker);
    await expect.poll(() => feed.cpuSeconds, POLL).toBeGreaterThan(0);
    await expect.poll(async () => (await readLoops()).length, POLL).toBe(2);
    const pids = await readLoops();
    expect(feed.pids.toSorted()).toEqual(pids.toSorted());
    feed.stop();
    for (const pid of pids) await expect.poll(() => isAlive(pid), POLL).toBe(false);
    expect(feed.pids).toEqual([]);
  }, 60_000);

  it('ends when its parent is killed, also if it would print nothing', async () => {
    const script = new URL('../../../support/workers/feeding-process.ts', import.meta.url).pathname;
    const parent = startProcess(process.execPath, script, standIn);
    await expect.poll(async () => (await readLoops()).length, POLL).toBe(2);
    const pids = await readLoops();
    expect(pids.map(isAlive)).toEqual([true, true]);
    process.kill(parent, 'SIGKILL');
    for (const pid of pids) await expect.poll(() => isAlive(pid), POLL).toBe(false);
  }, 60_000);
});
