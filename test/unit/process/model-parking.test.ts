// A model process lets go of its device and takes it back, by hooks and by the (stand-in) driver; whatever fails ends in a
// process that starts anew.

import { resolve } from 'node:path';
import type { ModelProcessOptions } from 'millrace/process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listParkables } from '../../../src/base/process/parkables.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  STAND_IN_UUID,
  StandInDevice,
} from '../../support/cuda/stand-in.ts';
import { isRunning, startModel } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const isLeftOut =
  leaveOutWithoutCompiler('model-parking') || leaveOutWithoutPython('model-parking');
const TENANT = resolve(import.meta.dirname, '../../support/models/tenant.py');
const TORCH_TENANT = resolve(import.meta.dirname, '../../support/models/torch_tenant.py');
const MB = 2 ** 20;

let folder = '';

interface Tenancy extends Partial<ModelProcessOptions> {
  mb?: number;
  hooks?: 'sound' | 'broken' | 'asleep' | undefined;
  device?: StandInDevice;
}

async function startTenant({
  device = new StandInDevice(folder),
  hooks,
  mb = 1_024,
  ...more
}: Tenancy = {}) {
  const env = { ...device.environment, TENANT_MB: String(mb), TENANT_HOOKS: hooks };
  const stand = await startModel({ args: [TENANT], env, maxBackoffMs: 10, ...more });
  const ask = () => stand.model.call<{ sum: number; mb: number; pid: number }>('answer', null);
  return { ...stand, device, ask };
}

describe.skipIf(isLeftOut)('a parked model process', () => {
  beforeAll(() => {
    folder = compileDriver();
  });
  afterAll(() => removeDriver(folder));

  it.each([
    ['hooks', 'sound'],
    ['driver', undefined],
  ] as const)('leaves its device and comes back as it was, by %s', async (way, hooks) => {
    const { ask, device, log, model } = await startTenant({ hooks });
    const before = await ask();
    expect(await model.park()).toEqual({ way, bytes: 1_024 * MB });
    const { mb, state } = device.tenants[0] ?? { mb: -1, state: 'none' };
    expect(way === 'hooks' ? mb : state).toBe(way === 'hooks' ? 0 : 'checkpointed');
    // A second one changes nothing.
    expect(await model.park()).toEqual({ way, bytes: 1_024 * MB });
    const early = ask();
    expect(await model.wake()).toEqual({ way, bytes: 1_024 * MB });
    expect(await early).toEqual(before);
    expect(await ask()).toEqual(before);
    expect(log.messages).toEqual(
      expect.arrayContaining(['model process parked', 'model process woken']),
    );
  });

  it('moves every storage of its PyTorch modules once, into pinned memory that it keeps', async () => {
    const { model } = await startModel({ args: [TORCH_TENANT] });
    const ask = () => model.call<{ gpu: number; pinned: number }>('contents', null);
    const before = await ask();
    expect(before.gpu).toBe(600 + 600 + 6 + 7 + 6);
    for (let round = 1; round <= 3; round += 1) {
      expect(await model.park()).toEqual({ way: 'hooks', bytes: 600 + 600 + 6 + 6 });
      await model.wake();
      expect(await ask()).toEqual({ ...before, pinned: 600 + 600 + 6 + 6 });
    }
  });

  it('keeps a call that arrives while it is parked, until its signal aborts', async () => {
    const { model } = await startTenant();
    await model.park();
    const abort = new AbortController();
    const call = model.call('answer', null, { signal: abort.signal });
    abort.abort(new Error('nobody waits'));
    await expect(call).rejects.toThrow('nobody waits');
  });

  it('waits for the call that runs', async () => {
    const { model } = await startTenant();
    const order: string[] = [];
    const nap = model.call('nap', { ms: 50 }).then(() => order.push('call'));
    await model.park().then(() => order.push('parked'));
    await nap;
    expect(order).toEqual(['call', 'parked']);
  });

  it('goes on if the call that runs does not end in time', async () => {
    const { ask, device, model } = await startTenant();
    const nap = model.call('nap', { ms: 300 });
    await expect(model.park({ waitMs: 10 })).rejects.toThrow(
      '1 calls of the model process still run after 10 ms',
    );
    expect(await nap).toBe(300);
    expect((await ask()).mb).toBe(1_024);
    expect(device.tenants[0]?.state).toBe('running');
  });

  it('refuses without a way to park, and goes on', async () => {
    const { ask, model } = await startTenant({});
    const none = await startTenant({
      env: { ...new StandInDevice(folder).environment, CUDA_STAND_IN_DRIVER: '550.54' },
    });
    await expect(none.model.park()).rejects.toThrow(
      'the driver is 550.54; parking needs an NVIDIA driver 570 or newer',
    );
    expect((await none.ask()).mb).toBe(1_024);
    await model.park();
    await model.stop();
    await expect(model.wake()).rejects.toThrow('the model process does not run');
    await expect(ask()).rejects.toThrow('the model process does not run');
  });

  it('starts anew at the wake if it dies while it is parked', async () => {
    const { ask, device, log, model } = await startTenant();
    const { pid } = await ask();
    await model.park();
    process.kill(pid, 'SIGKILL');
    await expect
      .poll(() => log.messages)
      .toContain('parked model process ended, it starts anew when it wakes');
    expect(device.tenants).toEqual([]);
    expect(await model.wake()).toEqual({ way: 'cold', bytes: 0 });
    expect((await ask()).pid).not.toBe(pid);
  });

  it('is ended and starts anew at the wake after every failure of a park', async () => {
    const { ask, device, model } = await startTenant();
    for (const fault of ['Checkpoint kill', 'Checkpoint kill-target', 'Lock kill-target']) {
      const { pid } = await ask();
      device.order(fault);
      expect(await model.park(), fault).toEqual({ way: 'cold', bytes: 0 });
      expect(isRunning(pid), fault).toBe(false);
      const call = ask();
      expect(await model.wake(), fault).toEqual({ way: 'cold', bytes: 0 });
      expect((await call).pid, fault).not.toBe(pid);
    }
  });

  it('starts anew after every failure of a wake', async () => {
    const { ask, device, model } = await startTenant();
    const faults = ['Restore kill', 'Unlock kill', 'Restore kill-target', 'Unlock 700'];
    for (const fault of [...faults, 'Restore 2', 'Restore 304', 'Restore 401']) {
      const { pid } = await ask();
      expect(await model.park(), fault).toEqual({ way: 'driver', bytes: 1_024 * MB });
      device.order(fault);
      expect(await model.wake(), fault).toEqual({ way: 'cold', bytes: 0 });
      expect((await ask()).pid, fault).not.toBe(pid);
      expect(device.tenants, fault).toMatchObject([{ state: 'running', mb: 1_024 }]);
    }
  });

  it.each(['broken', 'asleep'] as const)('starts anew if its hooks are %s', async (hooks) => {
    const { ask, model } = await startTenant({ hooks });
    const { pid } = await ask();
    expect((await model.park()).way).toBe(hooks === 'broken' ? 'cold' : 'hooks');
    expect(await model.wake()).toEqual({ way: 'cold', bytes: 0 });
    expect((await ask()).pid).not.toBe(pid);
  });

  it('is listed for the worker of its thread until it stops', async () => {
    const { log, model } = await startTenant();
    const [parkable] = listParkables();
    expect(listParkables()).toHaveLength(1);
    expect(await parkable?.describeParking()).toEqual({ way: 'driver', reason: undefined });
    expect(log.messages).toContain('model process can be parked');
    await model.stop();
    expect(listParkables()).toEqual([]);
  });

  it('does not touch the process that starts after a stop, however late a move ends', async () => {
    const { ask, device, model } = await startTenant();
    device.order('Checkpoint sleep-5000');
    const moves = Promise.allSettled([model.park(), model.wake(), model.park()]);
    await expect.poll(() => device.tenants[0]?.state).toBe('locked');
    await Promise.all([model.stop(), model.start()]);
    expect((await moves).map(({ status }) => status)).toEqual(Array(3).fill('rejected'));
    const { mb, pid } = await ask();
    expect(mb).toBe(1_024);
    expect(device.tenants).toEqual([{ pid, state: 'running', mb }]);
    expect((await model.park()).way).toBe('driver');
    await model.stop();
    const first = model.start().catch(() => 'rejected');
    await Promise.all([model.stop(), model.start()]);
    expect(await first).toBe('rejected');
    expect((await ask()).mb).toBe(1_024);
  });

  it.each([STAND_IN_UUID, '0'])('stays parked while %s has no room', async (visible) => {
    const device = new StandInDevice(folder, { totalMb: 1_500 });
    const env = { ...device.environment, CUDA_VISIBLE_DEVICES: visible, TENANT_MB: '1000' };
    const { ask, model } = await startTenant({ device, env });
    const { pid } = await ask();
    await model.park();
    const other = await startTenant({ device, mb: 1_000 });
    await expect(model.wake()).rejects.toThrow(/bytes of GPU-\S+ are free/);
    await other.model.park();
    await model.wake();
    expect((await ask()).pid).toBe(pid);
    await model.park();
    await other.model.wake();
    expect((await other.ask()).mb).toBe(1_000);
  });
});

describe.skipIf(isLeftOut)('a model process that is suspended in the middle of a call', () => {
  beforeAll(() => {
    folder = compileDriver();
  });
  afterAll(() => removeDriver(folder));

  const STEPS = 500;
  const RESULT = Array.from({ length: STEPS }).reduce<number>(
    (value, _, step) => (value * 31 + step) % 1_000_003,
    1,
  );

  async function startComputing({ steps = STEPS, ...options }: Tenancy & { steps?: number } = {}) {
    const tenant = await startTenant(options);
    const parkable = listParkables().at(-1);
    if (!parkable?.suspend || !parkable.canSuspend) throw new Error('it cannot be suspended');
    // The helper process runs then.
    expect(await parkable.canSuspend()).toBe(true);
    const call = tenant.model.call<{ value: number; pid: number }>('compute', { steps });
    call.catch(() => undefined);
    const { pid } = tenant.model;
    const { suspend } = parkable;
    return { ...tenant, call, pid, suspend: () => suspend.call(parkable) };
  }

  it.each([
    ['with hooks', 'sound'],
    ['without hooks', undefined],
  ] as const)('goes on where it was, to the same result: %s', async (_, hooks) => {
    const { call, device, log, model, pid, suspend } = await startComputing({ hooks });
    expect(await suspend()).toEqual({ way: 'driver', bytes: 1_024 * MB });
    expect(device.tenants).toMatchObject([{ pid, state: 'checkpointed' }]);
    const early = model.call('answer', null);
    await model.wake();
    expect(await call).toEqual({ value: RESULT, pid });
    expect(await early).toMatchObject({ pid });
    const entry = log.entries.find(({ message }) => message === 'model process suspended');
    expect(entry?.fields).toMatchObject({ pid, bytes: 1_024 * MB, calls: 1 });
  });

  it('runs on if a kernel does not end in time', async () => {
    const { call, device, pid, suspend } = await startComputing();
    device.order('Lock 600');
    await expect(suspend()).rejects.toMatchObject({ name: 'ParkRefusedError' });
    expect(await call).toEqual({ value: RESULT, pid });
  });

  it.each([
    ['does not wake up', async () => undefined, 'Restore 700'],
    ['is killed meanwhile', async (pid: number) => void process.kill(pid, 'SIGKILL'), undefined],
    ['is lost on the way', undefined, 'Checkpoint kill-target'],
  ])('gives its job back without blame if it %s', async (_, act, order) => {
    const { ask, call, device, model, pid = 0, suspend } = await startComputing({ steps: 1e6 });
    if (order?.startsWith('Checkpoint')) device.order(order);
    await suspend();
    await act?.(pid);
    if (order?.startsWith('Restore')) device.order(order);
    await model.wake();
    await expect(call).rejects.toMatchObject({ name: 'ModelProcessError', blame: 'neighbour' });
    expect((await ask()).pid).not.toBe(pid);
  });

  it('is not suspended while it starts', async () => {
    const { ask, call, pid = 0, suspend } = await startComputing({ steps: 1e6 });
    process.kill(pid, 'SIGKILL');
    await expect(call).rejects.toThrow();
    await expect(suspend()).rejects.toMatchObject({ name: 'ParkRefusedError' });
    await ask();
  });
});
