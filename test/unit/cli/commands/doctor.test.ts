// `millrace doctor` as a process, on machines that a stand-in for nvidia-smi makes up.
import { execFile } from 'node:child_process';
import { delimiter, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  StandInDevice,
} from '../../../support/cuda/stand-in.ts';
import {
  type Answer,
  type Failure,
  sayingOf,
  standInFolder,
} from '../../../support/nvidia-smi/stand-in.ts';
import { leaveOutWithoutPython } from '../../../support/python.ts';

const main = pathToFileURL(resolve(import.meta.dirname, '../../../../src/cli/main.ts')).href;
const SCRIPT = `const { main } = await import('${main}'); process.exitCode = await main(process.argv.slice(1));`;

const isDriverLeftOut = leaveOutWithoutCompiler('doctor') || leaveOutWithoutPython('doctor');

interface End {
  code: unknown;
  stdout: string;
  stderr: string;
}

function runDoctor(says: Answer | Failure | undefined, ...args: string[]): Promise<End> {
  const path = says === undefined ? [] : [standInFolder, '/usr/bin', '/bin'];
  const env = { ...process.env, ...(says && sayingOf(says)), PATH: path.join(delimiter) };
  const command = ['--input-type=module', '--eval', SCRIPT, '--', 'doctor', ...args];
  return new Promise((done) => {
    execFile(process.execPath, command, { env }, (error, stdout, stderr) =>
      done({ code: error?.code ?? 0, stdout, stderr }),
    );
  });
}

beforeEach(() => {
  vi.stubEnv('CUDA_VISIBLE_DEVICES', undefined);
});

afterEach(() => vi.unstubAllEnvs());

describe('doctor', () => {
  it('succeeds on a machine without a GPU and names the CPU', async () => {
    const { code, stdout } = await runDoctor(undefined);
    expect(code).toBe(0);
    expect(stdout).toMatch(/nvidia-smi +not found/);
    expect(stdout).toMatch(/Devices:\n +cpu /);
    expect(stdout).toContain('This machine can run a worker.');
  });

  it('names the proxies of the environment without their passwords', async () => {
    vi.stubEnv('HTTPS_PROXY', 'http://me:secret@proxy.test:3128');
    vi.stubEnv('NO_PROXY', 'a.test, 10.0.0.0/8');
    const { code, stdout } = await runDoctor(undefined);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /Proxies +http:\/\/proxy.test:3128 for https; not for this machine, a.test,\s+10.0.0.0\/8/,
    );
    expect(stdout).not.toContain('secret');
    vi.stubEnv('ALL_PROXY', 'socks5://proxy.test:1080');
    const unusable = await runDoctor(undefined, '--json');
    expect(unusable.code).toBe(1);
    expect(JSON.parse(unusable.stdout)).toMatchObject({
      proxies: { https: 'http://proxy.test:3128', http: null, except: ['a.test', '10.0.0.0/8'] },
      problems: [{ severity: 'error', text: expect.stringMatching(/^ALL_PROXY must be/) }],
    });
  });

  it('shows the devices and the pinning of each worker', async () => {
    const { code, stdout } = await runDoctor('eight-a100', '--gpus-per-worker', '2', '--json');
    expect(code).toBe(0);
    const findings = JSON.parse(stdout);
    expect(findings.workers).toHaveLength(4);
    expect(findings.workers[1].environment).toMatchObject({
      CUDA_VISIBLE_DEVICES:
        'GPU-a1000002-51c2-4e0b-9d67-3f8842b0c1d2,GPU-a1000003-51c2-4e0b-9d67-3f8842b0c1d3',
    });
    expect(findings).toMatchObject({
      healthy: true,
      nvidia: { kind: 'working', driverVersion: '550.127.08', cudaVersion: '12.4', gpus: 8 },
      idle: [],
      problems: [],
    });
  });

  it('shows which GPUs would stay idle', async () => {
    const { code, stdout } = await runDoctor('eight-a100', '--gpus-per-worker', '3', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout).idle).toHaveLength(2);
    expect(JSON.parse(stdout).problems).toMatchObject([{ severity: 'warning' }]);
  });

  it('exits with 1 for a failing driver and prints the remedy', async () => {
    const { code, stdout } = await runDoctor('driver-error');
    expect(code).toBe(1);
    expect(stdout.replaceAll(/\s+/g, ' ')).toContain(
      'error nvidia-smi says: NVIDIA-SMI has failed',
    );
    expect(stdout).toContain('Remedy:');
  });

  it('reports a fault once and plans no worker', async () => {
    const { stdout } = await runDoctor('driver-error', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ workers: [], problems: { length: 1 } });
  });

  it('uses only the devices that the environment allows, with a note', async () => {
    vi.stubEnv('CUDA_VISIBLE_DEVICES', '5,2');
    const { code, stdout } = await runDoctor('eight-a100', '--json');
    expect(code).toBe(0);
    const { workers, notes } = JSON.parse(stdout);
    expect(workers).toMatchObject([{ devices: [{ index: 5 }] }, { devices: [{ index: 2 }] }]);
    expect(notes).toEqual([
      'CUDA_VISIBLE_DEVICES=5,2 in the environment limits this worker to 2 of 8 devices',
    ]);
    expect((await runDoctor('eight-a100')).stdout).toMatch(/Notes:\n +1 +CUDA_VISIBLE_DEVICES=5,2/);
  });

  it.each(['-1', ''])('plans for the CPU if the environment hides GPUs (%j)', async (value) => {
    vi.stubEnv('CUDA_VISIBLE_DEVICES', value);
    const { code, stdout } = await runDoctor('driver-error', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout).workers).toMatchObject([{ devices: [{ kind: 'cpu' }] }]);
  });

  it('ignores a broken driver if no GPU is requested', async () => {
    const { code, stdout } = await runDoctor('driver-error', '--devices', 'cpu');
    expect(code).toBe(0);
    expect(stdout).toContain('warning');
  });

  it('exits with 1 for an unknown device and lists the known ones', async () => {
    const { code, stdout } = await runDoctor('one-h200', '--devices', '3');
    expect(code).toBe(1);
    expect(stdout.replaceAll(/\s+/g, ' ')).toContain(
      'device "3" not found; choose from 0 (GPU-6f2d41c8',
    );
  });

  it('says why the driver cannot park a model', async () => {
    const { stdout } = await runDoctor('one-h200');
    expect(stdout.replaceAll(/\s+/g, ' ')).toMatch(
      /Parking only by hooks of the model: libcuda.so.1: .*parking needs an NVIDIA driver 570 or newer/,
    );
    expect((await runDoctor('driver-error')).stdout).not.toContain('Parking');
    const tried = await runDoctor('one-h200', '--try-park', '--json');
    expect(JSON.parse(tried.stdout)).toMatchObject({
      healthy: true,
      parking: { by: null, trial: null },
      problems: [
        {
          severity: 'warning',
          text: expect.stringMatching(/^parking a model by the driver fails/),
        },
      ],
    });
  });

  it.skipIf(isDriverLeftOut)('parks a gigabyte and wakes it on request', async () => {
    const folder = compileDriver();
    onTestFinished(() => removeDriver(folder));
    const device = new StandInDevice(folder);
    for (const [name, value] of Object.entries(device.environment)) vi.stubEnv(name, value);
    vi.stubEnv('CUDA_VISIBLE_DEVICES', undefined);
    const { stdout } = await runDoctor('one-h200', '--try-park');
    expect(stdout.replaceAll(/\s+/g, ' ')).toMatch(
      /Parking by the driver \(libcuda\): 1.0 GiB in \d+.\d\d s, back in \d+.\d\d s, the same bytes/,
    );
    device.order('Restore 2');
    const failed = await runDoctor('one-h200', '--try-park', '--json');
    expect(JSON.parse(failed.stdout).problems[0].text).toMatch(
      /restore of process \d+ failed with 2: out of memory/,
    );
    expect(device.tenants).toEqual([]);
  });

  it('rejects an invalid number of GPUs with exit code 2', async () => {
    const { code, stderr } = await runDoctor('one-h200', '--gpus-per-worker', 'some');
    expect(code).toBe(2);
    expect(stderr).toContain('--gpus-per-worker: must be a number from 1, or all; got "some"');
  });
});
