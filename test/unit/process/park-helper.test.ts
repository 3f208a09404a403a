// The helper process that suspends others, on the stand-in driver: it behaves as an H200 was seen to.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { ParkHelper } from '../../../src/process/park-helper.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  STAND_IN_UUID,
  StandInDevice,
} from '../../support/cuda/stand-in.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const isLeftOut = leaveOutWithoutCompiler('park-helper') || leaveOutWithoutPython('park-helper');
const MB = 2 ** 20;

/** Holds memory until its standard input closes, and answers each line after a CUDA call. */
const HOLDER = `
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1"); cuda.cuInit(0)
print(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(int(sys.argv[1]) * 2**20)), flush=True)
if len(sys.argv) > 2: cuda.standInBusy(1)
for line in sys.stdin: print(cuda.cuMemGetInfo_v2(ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t())), flush=True)
`;

interface Holder {
  child: ChildProcess;
  group: number;
  ask: () => Promise<string>;
}

let folder = '';

async function hold(device: StandInDevice, mb: number, ...more: string[]): Promise<Holder> {
  const child = spawn('python3', ['-c', HOLDER, String(mb), ...more], {
    env: { ...process.env, ...device.environment },
    stdio: ['pipe', 'pipe', 'inherit'],
    detached: true,
  });
  onTestFinished(() => {
    child.kill('SIGKILL');
  });
  const read = async () => String((await once(child.stdout, 'data'))[0]).trim();
  expect(await read()).toBe('0');
  const ask = () => {
    child.stdin.write('x\n');
    return read();
  };
  return { child, group: child.pid ?? 0, ask };
}

function open(sizes: ConstructorParameters<typeof StandInDevice>[1] = {}, more = {}) {
  const device = new StandInDevice(folder, sizes);
  const helper = new ParkHelper({ ...process.env, ...device.environment, ...more });
  onTestFinished(() => helper.stop());
  return { device, helper };
}

const own = { device: STAND_IN_UUID, lockMs: 50 };

describe.skipIf(isLeftOut)('a helper process for parking', () => {
  beforeAll(() => {
    folder = compileDriver();
  });
  afterAll(() => removeDriver(folder));

  it('moves the memory of a process away and back', async () => {
    const { device, helper } = open();
    const { ask, group } = await hold(device, 3_000);
    expect(await helper.probe()).toEqual({ by: 'libcuda', driver: '580.159.04' });
    const suspended = await helper.suspend({ group, ...own });
    expect(suspended).toEqual({ pids: [group], bytes: 3_000 * MB });
    expect((await helper.readMemory(STAND_IN_UUID)).usedBytes).toBe(0);
    const answer = ask();
    await helper.resume(suspended, STAND_IN_UUID);
    expect(await answer).toBe('0');
    expect((await helper.readMemory(STAND_IN_UUID)).usedBytes).toBe(3_000 * MB);
  });

  it('unlocks a process whose kernel does not end in time', async () => {
    const { device, helper } = open();
    const { group } = await hold(device, 100, 'busy');
    const failure = {
      isUndone: true,
      message: expect.stringMatching(/lock .* 600: the time is over/),
    };
    await expect(helper.suspend({ group, ...own })).rejects.toMatchObject(failure);
    expect(device.tenants).toEqual([{ pid: group, state: 'running', mb: 100 }]);
  });

  it('unlocks a process that the driver does not suspend', async () => {
    const { device, helper } = open();
    const { ask, group } = await hold(device, 100);
    for (const fault of ['Checkpoint 304', 'Checkpoint 700', 'Checkpoint 401']) {
      device.order(fault);
      await expect(helper.suspend({ group, ...own })).rejects.toMatchObject({ isUndone: true });
    }
    expect(await ask()).toBe('0');
  });

  it('does not take memory for gone that the driver does not let it reach', async () => {
    const { device, helper } = open();
    const { group } = await hold(device, 100);
    device.order('GetState 304');
    const message = expect.stringContaining('the driver refuses');
    await expect(helper.suspend({ group, ...own })).rejects.toMatchObject({
      ...{ isUndone: true, message },
    });
    expect(device.tenants).toEqual([{ pid: group, state: 'running', mb: 100 }]);
  });

  it('is given up when it hangs in the driver, and another one starts for the next request', async () => {
    const { device, helper } = open();
    const { group } = await hold(device, 100);
    await helper.probe();
    device.order('Checkpoint sleep-2000');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => {
      vi.useRealTimers();
    });
    const suspended = helper.suspend({ group, ...own });
    vi.advanceTimersByTime(300_050);
    await expect(suspended).rejects.toThrow('has not answered within 300050 ms');
    expect((await helper.probe()).by).toBe('libcuda');
  });

  it('does not try to resume without room, which would destroy the process', async () => {
    const { device, helper } = open({ totalMb: 1_000 });
    const a = await hold(device, 800);
    const suspended = await helper.suspend({ group: a.group, ...own });
    const b = await hold(device, 300);
    const message = expect.stringContaining('bytes of GPU-5tand-1n are free');
    const failure = { hasNoRoom: true, message };
    await expect(helper.resume(suspended, STAND_IN_UUID)).rejects.toMatchObject(failure);
    // The only one that CUDA shows.
    await expect(helper.resume(suspended, undefined)).rejects.toMatchObject({ hasNoRoom: true });
    b.child.kill('SIGKILL');
    await once(b.child, 'exit');
    await helper.resume(suspended, undefined);
    expect(await a.ask()).toBe('0');
  });

  it('takes what was in use for the size of a process that nothing tells', async () => {
    const { device, helper } = open({}, { CUDA_STAND_IN_HIDES: '1' });
    const { group } = await hold(device, 200);
    device.order('Checkpoint sleep-1500');
    const suspending = helper.suspend({ group, ...own });
    await expect.poll(() => device.tenants[0]?.state).toBe('locked');
    await hold(device, 300);
    expect(await suspending).toEqual({ pids: [group], bytes: 200 * MB });
  });

  it('suspends nothing whose room it could not check at the wake', async () => {
    const { device, helper } = open();
    const { group } = await hold(device, 100);
    const unknown = { group, device: 'MIG-unknown', lockMs: 50 };
    await expect(helper.suspend(unknown)).rejects.toMatchObject({ isUndone: true });
    await expect(helper.probe('MIG-unknown')).rejects.toThrow('NVML does not find MIG-unknown');
    const alone = mkdtempSync(join(tmpdir(), 'millrace-cuda-'));
    onTestFinished(() => removeDriver(alone));
    copyFileSync(join(folder, 'libcuda.so.1'), join(alone, 'libcuda.so.1'));
    const { helper: blind } = open({}, { LD_LIBRARY_PATH: alone });
    await expect(blind.probe()).rejects.toThrow('libnvidia-ml.so.1 cannot be loaded');
    expect(device.tenants).toEqual([{ pid: group, state: 'running', mb: 100 }]);
  });

  it('frees the memory of a suspended process that is killed', async () => {
    const { device, helper } = open({ totalMb: 1_000 });
    const { child, group } = await hold(device, 800);
    const suspended = await helper.suspend({ group, ...own });
    child.kill('SIGKILL');
    await once(child, 'exit');
    await expect(helper.resume(suspended, STAND_IN_UUID)).rejects.toThrow('is gone, not suspended');
    await hold(device, 900);
  });

  it('says how it ended, and another one starts for the next request', async () => {
    const { device, helper } = open();
    const { group } = await hold(device, 100);
    device.order('Checkpoint kill');
    await expect(helper.suspend({ group, ...own })).rejects.toThrow('ended with SIGKILL');
    expect(device.tenants).toMatchObject([{ state: 'locked' }]);
    expect((await helper.probe()).by).toBe('libcuda');
  });

  it('says why a machine cannot park', async () => {
    const old = open({}, { CUDA_STAND_IN_DRIVER: '535.183.01' });
    await expect(old.helper.probe()).rejects.toThrow(
      'the driver is 535.183.01; parking needs an NVIDIA driver 570 or newer',
    );
    const none = open({}, { LD_LIBRARY_PATH: '' });
    await expect(none.helper.probe()).rejects.toThrow(
      /^libcuda.so.1: .*needs an NVIDIA driver 570/,
    );
    const missing = open({}, { MILLRACE_PYTHON: '/nowhere/python3' });
    await expect(missing.helper.probe()).rejects.toThrow('could not be started');
  });
});
