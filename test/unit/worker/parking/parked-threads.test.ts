// Handler threads whose model processes are parked and woken: real threads and processes on a stand-in for the driver.
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Device } from '../../../../src/wire/link/worker-link.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  STAND_IN_UUID,
  StandInDevice,
} from '../../../support/cuda/stand-in.ts';
import { leaveOutWithoutPython } from '../../../support/python.ts';
import { cpu, readOutput } from '../../../support/workers/leases.ts';
import { createThreads, writeHandler } from '../../../support/workers/thread-script.ts';

const isLeftOut =
  leaveOutWithoutCompiler('parked-threads') || leaveOutWithoutPython('parked-threads');
const TENANT = resolve(import.meta.dirname, '../../../support/handlers/tenant.ts');
const MODEL = resolve(import.meta.dirname, '../../../support/models/tenant.py');
const PROCESS = resolve(import.meta.dirname, '../../../../src/process.ts');
const MB = 2 ** 20;
const gpu: Device = {
  kind: 'gpu',
  index: 0,
  uuid: STAND_IN_UUID,
  name: 'H200',
  memoryBytes: 8_192 * MB,
};

let folder = '';

function open(sizes: ConstructorParameters<typeof StandInDevice>[1] = {}) {
  const device = new StandInDevice(folder, sizes);
  for (const [name, value] of Object.entries(device.environment)) vi.stubEnv(name, value);
  onTestFinished(() => {
    vi.unstubAllEnvs();
  });
  return device;
}

describe.skipIf(isLeftOut)('handler threads with model processes', () => {
  beforeAll(() => {
    folder = compileDriver();
  });
  afterAll(() => removeDriver(folder));

  it('are parked and woken with all of their models, and run jobs again', async () => {
    const device = open();
    const threads = createThreads({ handlerPath: TENANT, threads: 2, devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    expect(await executor.parking?.findWay()).toBe('driver');
    expect(await executor.parking?.letGo('parked')).toBe(2 * 1_024 * MB);
    expect(device.tenants.map(({ state }) => state)).toEqual(['checkpointed', 'checkpointed']);
    await executor.parking?.wakeUp('together');
    expect(readOutput(await threads.begin({}).end)).toMatchObject({ mb: 1_024 });
    await executor.stop();
    expect(device.tenants).toEqual([]);
  });

  it('say that there is no room, and stay parked', async () => {
    const device = open({ totalMb: 1_500 });
    const threads = createThreads({ handlerPath: TENANT, devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    await executor.parking?.letGo('parked');
    const other = createThreads({ handlerPath: TENANT, devices: [gpu] });
    await other.executor.start();
    await expect(executor.parking?.wakeUp('together')).rejects.toMatchObject({
      name: 'NoDeviceRoomError',
    });
    expect(device.tenants.map(({ state }) => state).sort()).toEqual(['checkpointed', 'running']);
    await other.executor.parking?.letGo('ended');
    expect(device.tenants).toHaveLength(1);
    await executor.parking?.wakeUp('together');
    expect(readOutput(await threads.begin({}).end)).toMatchObject({ mb: 1_024 });
  });

  it('check the room one after the other if nobody has checked it for all', async () => {
    const device = open({ totalMb: 2_500 });
    const threads = createThreads({ handlerPath: TENANT, threads: 2, devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    await executor.parking?.letGo('parked');
    const pids = device.tenants.map(({ pid }) => pid);
    const other = createThreads({ handlerPath: TENANT, devices: [gpu] });
    await other.executor.start();
    device.order('Restore sleep-500');
    const woken = executor.parking?.wakeUp('in turn');
    await expect(woken).rejects.toMatchObject({ name: 'NoDeviceRoomError' });
    await other.executor.parking?.letGo('ended');
    await executor.parking?.wakeUp('in turn');
    expect(device.tenants.map(({ pid }) => pid)).toEqual(pids);
    expect(device.tenants.map(({ state }) => state)).toEqual(['running', 'running']);
  });

  /** Two model processes in one thread. */
  const writePair = () =>
    writeHandler(`
      import { createModelProcess } from ${JSON.stringify(PROCESS)};
      const start = () => createModelProcess({ command: 'python3', args: [${JSON.stringify(MODEL)}] });
      const models = [start(), start()];
      export default {
        async setup(ctx) { for (const model of models) await model.start(ctx); },
        async teardown() { for (const model of models) await model.stop(); },
        run: (job, ctx) => Promise.all(models.map((model) => model.call('answer', null, ctx))),
      };`);

  it('are suspended in the middle of a job, which goes on afterwards', async () => {
    const device = open();
    const threads = createThreads({ handlerPath: TENANT, devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    expect(await executor.parking?.canSuspend()).toBe(true);
    const { end, sink } = threads.begin({ steps: 100 });
    expect(await executor.parking?.suspend()).toEqual({ bytes: 1_024 * MB });
    expect(device.tenants.map(({ state }) => state)).toEqual(['checkpointed']);
    await delay(300);
    await executor.parking?.wakeUp('together');
    const { outcome } = await end;
    const executionMs = outcome.kind === 'completed' ? outcome.executionMs : 0;
    const stoodMs = executor.standstill?.ms ?? 0;
    expect(stoodMs).toBeGreaterThanOrEqual(300);
    expect(sink.holds).toEqual([true, false]);
    expect(executionMs).toBeGreaterThan(100);
  });

  it('run on, all of them, if one model cannot be suspended', async () => {
    const device = open();
    const threads = createThreads({ handlerPath: await writePair(), devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    device.order('Lock 600');
    const { bytes, failure } = (await executor.parking?.suspend()) ?? {};
    expect({ bytes, failure }).toEqual({ bytes: 0, failure: expect.stringContaining('600') });
    await executor.parking?.wakeUp('together');
    expect(device.tenants.map(({ state }) => state)).toEqual(['running', 'running']);
    expect(readOutput(await threads.begin({}).end)).toHaveLength(2);
  });

  it('leave the device again if one of their two models has no room', async () => {
    const device = open({ totalMb: 2_500 });
    const threads = createThreads({ handlerPath: await writePair(), devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    expect(await executor.parking?.letGo('parked')).toBe(2 * 1_024 * MB);
    const other = createThreads({ handlerPath: TENANT, devices: [gpu] });
    await other.executor.start();
    await expect(executor.parking?.wakeUp('together')).rejects.toMatchObject({
      name: 'NoDeviceRoomError',
    });
    const states = device.tenants.map(({ state }) => state);
    expect(states.sort()).toEqual(['checkpointed', 'checkpointed', 'running']);
    await other.executor.parking?.letGo('ended');
    await executor.parking?.wakeUp('together');
    expect(readOutput(await threads.begin({}).end)).toMatchObject([{ mb: 1_024 }, { mb: 1_024 }]);
  });

  it('wake the others if one of their model processes does not start', async () => {
    const device = open();
    const threads = createThreads({ handlerPath: await writePair(), devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    await executor.parking?.letGo('parked');
    // The first one is destroyed, and its successor gets no memory.
    device.order('Restore 700', 'MemAlloc 2');
    await executor.parking?.wakeUp('together');
    expect(readOutput(await threads.begin({}).end)).toMatchObject([{ mb: 1_024 }, { mb: 1_024 }]);
  });

  it('do not take a model for ended whose hooks do not tell its size', async () => {
    const device = open();
    vi.stubEnv('TENANT_HOOKS', 'silent');
    const threads = createThreads({ handlerPath: TENANT, devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    expect(await executor.parking?.findWay()).toBe('hooks');
    expect(await executor.parking?.letGo('parked')).toBeUndefined();
    expect(device.tenants).toMatchObject([{ mb: 0 }]);
    expect(await executor.parking?.letGo('ended')).toBe(0);
    expect(device.tenants).toEqual([]);
  });

  it('start no model while they are parked, also in the place of a thread that died', async () => {
    const device = open();
    const handlerPath = await writeHandler(`
      import { existsSync, rmSync } from 'node:fs';
      import tenant from ${JSON.stringify(TENANT)};
      const order = new URL('./die', import.meta.url);
      export default { ...tenant, async setup(ctx) {
        await tenant.setup(ctx);
        setInterval(() => { if (existsSync(order)) { rmSync(order); process.exit(7); } }, 5).unref();
      } };`);
    const threads = createThreads({ handlerPath, devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    await executor.parking?.letGo('parked');
    const gone = Promise.withResolvers<void>();
    executor.onChange(() => gone.resolve());
    writeFileSync(join(dirname(handlerPath), 'die'), '');
    await gone.promise;
    await vi.waitFor(() => expect(device.tenants).toEqual([]), 10_000);
    await executor.parking?.wakeUp('together');
    expect(readOutput(await threads.begin({}).end)).toMatchObject({ mb: 1_024 });
  });

  it('have no model on the device either if one of them was starting', async () => {
    const device = open();
    const handlerPath = await writeHandler(`
      import { existsSync, rmSync, writeFileSync } from 'node:fs';
      import tenant from ${JSON.stringify(TENANT)};
      const at = (name) => new URL(name, import.meta.url);
      export default { ...tenant, async setup(ctx) {
        await tenant.setup(ctx);
        setInterval(() => { if (existsSync(at('die'))) { rmSync(at('die')); process.exit(7); } }, 5).unref();
        if (!existsSync(at('slow'))) return;
        writeFileSync(at('reached'), '');
        await new Promise(() => {});
      } };`);
    const at = (name: string) => join(dirname(handlerPath), name);
    const threads = createThreads({ handlerPath, devices: [gpu] });
    const { executor } = threads;
    await executor.start();
    for (const name of ['slow', 'die']) writeFileSync(at(name), '');
    await vi.waitFor(() => expect(existsSync(at('reached'))).toBe(true), 20_000);
    expect(device.tenants).toHaveLength(1);
    expect(await executor.parking?.letGo('parked')).toBe(0);
    await vi.waitFor(() => expect(device.tenants).toEqual([]), 10_000);
    rmSync(at('slow'));
    await executor.parking?.wakeUp('together');
    expect(readOutput(await threads.begin({}).end)).toMatchObject({ mb: 1_024 });
  });

  it('cannot be parked without a model process, or without a GPU', async () => {
    open();
    const none = createThreads({ devices: [gpu] });
    await none.executor.start();
    expect(await none.executor.parking?.findWay()).toBeUndefined();
    expect(createThreads({ devices: [cpu] }).executor.parking).toBeUndefined();
  });
});
