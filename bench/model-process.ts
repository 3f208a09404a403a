// Measures a model process in Python: the time of a small call, the rate of large bytes, and the
// rate of a generator's items, each beside a bare socket or a function in the thread.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { createModelProcess, type ModelProcess } from 'millrace/process';
import { median } from './load.ts';
import type { Figure } from './measures.ts';
import { benchFile } from './processes.ts';
import { withStand } from './stands.ts';

const CALLS = 3_000;
const LARGE_BYTES = 10_000_000;
const LARGE_CALLS = 30;
const ITEMS = 100_000;
const RESTARTS = 10;
const SMALL = { text: 'hello' };
const SMALL_BYTES = 64;

export async function measureModelProcess(): Promise<Figure[]> {
  const model = createModelProcess({
    command: 'python3',
    args: [benchFile('handlers/model.py')],
  });
  await model.start();
  try {
    return [
      await measureCall(model),
      await measureBytes(model),
      await measureItems(model),
      await measureStream(),
      ...(await measureRestart()),
    ];
  } finally {
    await model.stop();
  }
}

/** Time of a call in µs; the calls follow each other. */
async function measureCall(model: ModelProcess): Promise<Figure> {
  const toMicros = (ms: number) => (ms / CALLS) * 1_000;
  const call = () => model.call('echo', SMALL);
  await repeat(CALLS / 10, call);
  const value = toMicros(await repeat(CALLS, call));
  const inThread = async () => SMALL;
  const floors = [
    { name: 'bare socket to Python and back', value: toMicros(await timeBare(SMALL_BYTES, CALLS)) },
    { name: 'async function in the thread', value: toMicros(await repeat(CALLS, inThread)) },
  ];
  return { name: 'call of a model process in Python', unit: 'µs', value, floors };
}

/** MB/s, each byte counted once, though it goes there and back. */
async function measureBytes(model: ModelProcess): Promise<Figure> {
  const toRate = (ms: number) => (LARGE_BYTES * LARGE_CALLS) / 1_000_000 / (ms / 1_000);
  const bytes = Buffer.alloc(LARGE_BYTES, 1);
  const call = () => model.call('echo', bytes);
  await repeat(2, call);
  const value = toRate(await repeat(LARGE_CALLS, call));
  const bare = toRate(await timeBare(LARGE_BYTES, LARGE_CALLS));
  const floors = [{ name: 'bare socket to Python and back', value: bare }];
  return { name: '10 MB to a model process and back', unit: 'MB/s', value, floors };
}

async function measureItems(model: ModelProcess): Promise<Figure> {
  const read = async (count: number) => {
    for await (const _ of model.stream('count', { count }));
  };
  await read(1_000);
  const ms = await repeat(1, () => read(ITEMS));
  const floors = [{ name: 'call of a model process/s', value: await measureCallRate(model) }];
  return {
    name: 'items of a generator in Python, to the handler',
    unit: 'items/s',
    value: ITEMS / (ms / 1_000),
    floors,
  };
}

async function measureCallRate(model: ModelProcess): Promise<number> {
  return CALLS / ((await repeat(CALLS, () => model.call('echo', SMALL))) / 1_000);
}

async function measureStream(): Promise<Figure> {
  const rate = (handler: string) =>
    withStand({ carrier: 'HTTP', handler }, async (stand) => {
      await stand.stream({ count: 1_000 }, 1_000);
      const ms = await repeat(1, () => stand.stream({ count: ITEMS }, ITEMS));
      return ITEMS / (ms / 1_000);
    });
  const value = await rate('model-chunks');
  const floors = [{ name: 'generator in the thread', value: await rate('chunks') }];
  const name = 'items of a generator in Python, to a client over HTTP';
  return { name, unit: 'items/s', value, floors };
}

/** From SIGKILL of a model process to the end of the next call. Without numpy, there is no figure. */
async function measureRestart(): Promise<Figure[]> {
  if (spawnSync('python3', ['-c', 'import numpy']).status !== 0) return [];
  const value = median(await timeRestarts(['numpy']));
  const floors = [{ name: 'without `preload`', value: median(await timeRestarts([])) }];
  return [{ name: 'restart of a model process with numpy', unit: 'ms', value, floors }];
}

async function timeRestarts(preload: string[]): Promise<number[]> {
  const model = createModelProcess({
    command: 'python3',
    args: [benchFile('handlers/numpy-model.py')],
    preload,
  });
  const silent = (): void => undefined;
  let noteFork: () => void = silent;
  const debug = () => noteFork();
  await using _ = model;
  const nextFork = () =>
    new Promise<void>((resolve) => {
      noteFork = () => resolve();
    });
  let fork = nextFork();
  await model.start({ log: { debug, info: silent, warn: silent, error: silent } });
  const times: number[] = [];
  for (let number = 0; number < RESTARTS; number += 1) {
    await model.call('multiply', {});
    // An idle launcher does not keep this process running.
    const timer = setInterval(silent, 1_000);
    if (preload.length > 0) await fork;
    clearInterval(timer);
    fork = nextFork();
    const { pid = 0 } = model;
    const startedAt = performance.now();
    process.kill(pid, 'SIGKILL');
    while (model.pid === pid) await delay(1);
    await model.call('multiply', {});
    times.push(performance.now() - startedAt);
  }
  return times;
}

/** @returns ms of all together */
async function repeat(count: number, act: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  for (let number = 0; number < count; number += 1) await act();
  return performance.now() - startedAt;
}

/** Sends a message to a Python program without frames, and waits until it is back. */
async function timeBare(size: number, count: number): Promise<number> {
  const program = spawn('python3', [benchFile('floors/bare-pipe.py'), String(size)], {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
  });
  const socket = program.stdio[3];
  if (!(socket instanceof Duplex)) throw new Error('there is no socket');
  let received = 0;
  let done: () => void = () => undefined;
  socket.on('data', (bytes: Buffer) => {
    received += bytes.length;
    if (received % size === 0) done();
  });
  const message = Buffer.alloc(size, 1);
  const send = () =>
    new Promise<void>((resolve) => {
      done = resolve;
      socket.write(message);
    });
  await repeat(Math.max(2, count / 10), send);
  const ms = await repeat(count, send);
  socket.end();
  await once(program, 'exit');
  return ms;
}
