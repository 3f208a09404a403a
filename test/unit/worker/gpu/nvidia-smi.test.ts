// nvidia-smi as a real process (a stand-in), and what becomes of everything it may say.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ManualClock, systemClock } from '../../../../src/base/clock.ts';
import { readNvidiaSmi, type SmiFault } from '../../../../src/worker/gpu/nvidia-smi.ts';
import { parseReport, type SmiReport } from '../../../../src/worker/gpu/nvidia-smi-report.ts';
import { runProgram } from '../../../../src/worker/gpu/program.ts';
import {
  type Answer,
  type Failure,
  sayingOf,
  standIn,
  standInFolder,
} from '../../../support/nvidia-smi/stand-in.ts';

const MIB = 2 ** 20;

function say(words: Answer | Failure): void {
  vi.stubEnv('NVIDIA_SMI_SAYS', sayingOf(words).NVIDIA_SMI_SAYS);
}

afterEach(() => vi.unstubAllEnvs());

async function readReport(words: Answer | Failure): Promise<SmiReport> {
  say(words);
  const reading = await readNvidiaSmi({ command: standIn });
  if (reading.kind !== 'report') throw new Error(reading.reason);
  return reading.report;
}

async function readFault(words: Failure): Promise<SmiFault> {
  say(words);
  const reading = await readNvidiaSmi({ command: standIn });
  if (reading.kind !== 'fault') throw new Error('a report, and no fault');
  return reading;
}

describe('a report', () => {
  it('contains all reported values of one H200', async () => {
    const { gpus, ...system } = await readReport('one-h200');
    expect(system).toEqual({ driverVersion: '580.95.05', cudaVersion: '13.0' });
    expect(gpus).toEqual([
      {
        index: 0,
        minorNumber: 0,
        uuid: 'GPU-6f2d41c8-9a07-5be3-8c14-d3a0b7e95f21',
        name: 'NVIDIA H200',
        pciBusId: '00000000:19:00.0',
        isLost: false,
        memory: { totalBytes: 143_771 * MIB, usedBytes: 512 * MIB },
        utilization: 37,
        temperatureC: 34,
        slowdownC: 87,
        eccVolatile: 0,
        eccAggregate: 0,
        isRetirementPending: false,
        isRemapFailed: false,
        recoveryAction: undefined,
        isMigEnabled: false,
        migDevices: [],
        processes: [{ pid: 41_877, usedBytes: 502 * MIB, gpuInstanceId: undefined }],
      },
    ]);
  });

  it('adds up uncorrected errors of all kinds and names the recovery action of the driver', async () => {
    const { gpus } = await readReport('one-h200-ecc');
    expect(gpus[0]).toMatchObject({
      eccVolatile: 3,
      eccAggregate: 8,
      isRetirementPending: true,
      recoveryAction: 'Reset',
    });
  });

  it('numbers eight GPUs by PCI bus ID, not by minor number', async () => {
    const { gpus } = await readReport('eight-a100');
    expect(gpus.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(gpus.map(({ minorNumber }) => minorNumber)).toEqual([2, 3, 0, 1, 6, 7, 4, 5]);
    expect(gpus.map(({ pciBusId }) => pciBusId)).toEqual(gpus.map((gpu) => gpu.pciBusId).sort());
    expect(gpus[0]).toMatchObject({ utilization: 98, temperatureC: 61, slowdownC: 89 });
  });

  it('lists GPUs in PCI bus order, whatever order nvidia-smi prints', async () => {
    const xml = await readFile(join(standInFolder, 'answers', 'eight-a100.xml'), 'utf8');
    const [head = '', ...blocks] = xml.replace('</nvidia_smi_log>', '').split(/(?=\t<gpu id)/);
    const { gpus } = await parseReport(`${head}${blocks.reverse().join('')}</nvidia_smi_log>`);
    expect(gpus.map(({ pciBusId }) => pciBusId.slice(9, 11))).toEqual([
      '0f',
      '15',
      '50',
      '53',
      '8c',
      '91',
      'd6',
      'da',
    ]);
    expect(gpus.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  it('contains MIG instances with their memory, IDs, and the UUIDs that only the listing has', async () => {
    const { gpus } = await readReport('mig-a100');
    expect(gpus.map(({ isMigEnabled }) => isMigEnabled)).toEqual([true, false]);
    expect(gpus[0]?.utilization).toBeUndefined();
    expect(gpus[0]?.migDevices[1]).toEqual({
      index: 1,
      uuid: 'MIG-1c2e4b7f-9e63-50db-8d88-3f72e5c9ba41',
      gpuInstanceId: 3,
      computeInstanceId: 0,
      memory: { totalBytes: 19_968 * MIB, usedBytes: 25 * MIB },
      eccVolatile: 0,
    });
    expect(gpus[0]?.migDevices).toHaveLength(4);
    expect(gpus[0]?.processes[0]).toMatchObject({ gpuInstanceId: 3 });
  });

  it('omits values that an old card does not report', async () => {
    const { gpus } = await readReport('geforce');
    expect(gpus[0]).toMatchObject({
      name: 'NVIDIA GeForce GTX 1070',
      eccVolatile: undefined,
      eccAggregate: undefined,
      isMigEnabled: false,
      slowdownC: 99,
      recoveryAction: undefined,
      processes: [],
    });
  });

  it('reads the double-bit errors and the page retirement of cards before Ampere', async () => {
    const { gpus } = await readReport('tesla-v100');
    expect(gpus[0]).toMatchObject({ eccVolatile: 0, eccAggregate: 3, isRetirementPending: true });
  });

  it('names the lost GPU among the listed ones', async () => {
    const { gpus } = await readReport('eight-a100-lost');
    expect(gpus.filter(({ isLost }) => isLost).map(({ pciBusId }) => pciBusId)).toEqual([
      '00000000:53:00.0',
    ]);
    expect(gpus.find(({ isLost }) => isLost)).toMatchObject({ uuid: '', temperatureC: undefined });
  });

  it.each(['lost-beside', 'lost-alone'] as const)(
    'contains the remaining GPUs if one is lost (%s)',
    async (words) => {
      say(words);
      const reading = await readNvidiaSmi({ command: standIn });
      expect(reading).toMatchObject({ kind: 'report', lostBusIds: ['00000000:53:00.0'] });
      expect(reading.kind === 'report' && reading.report.gpus).toHaveLength(7);
    },
  );

  it.each(['lost-beside', 'lost-alone', 'eight-a100-lost'] as const)(
    'keeps the indices of the other GPUs if one is lost (%s)',
    async (words) => {
      const { gpus } = await readReport(words);
      const known = gpus.filter(({ isLost }) => !isLost);
      expect(known.map(({ index }) => index)).toEqual([0, 1, 2, 4, 5, 6, 7]);
    },
  );

  it('takes one process if no GPU has MIG instances', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-smi-'));
    try {
      vi.stubEnv('NVIDIA_SMI_CALLS', join(folder, 'calls'));
      await readReport('eight-a100');
      await readReport('mig-a100');
      expect(await readFile(join(folder, 'calls'), 'utf8')).toBe('-q -x\n-q -x\n-L\n');
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe('a fault', () => {
  it.each<[Failure, SmiFault['fault'], RegExp]>([
    ['driver-error', 'driver', /couldn't communicate with the NVIDIA driver/],
    ['version-mismatch', 'mismatch', /version mismatch/],
    ['no-library', 'driver', /couldn't find libnvidia-ml/],
    ['no-devices', 'driver', /No devices were found/],
    ['no-permission', 'failed', /exited with code 4 and says: Insufficient Permissions/],
    ['garbage', 'garbage', /not its XML.*Segmentation violation/],
    ['truncated', 'garbage', /not its XML/],
    ['empty', 'garbage', /not its XML/],
    ['killed', 'failed', /SIGSEGV/],
  ])('follows from the answer "%s": %s, with reason and remedy', async (words, fault, reason) => {
    const found = await readFault(words);
    expect(found.fault).toBe(fault);
    expect(found.reason).toMatch(reason);
    expect(found.remedy).not.toBe('');
  });

  it('names the bus ID of a lost GPU', async () => {
    expect(await readFault('lost')).toMatchObject({ fault: 'lost', pciBusId: '00000000:53:00.0' });
  });

  it('names a missing program', async () => {
    const reading = await readNvidiaSmi({ command: '/nowhere/nvidia-smi' });
    expect(reading).toMatchObject({ kind: 'fault', fault: 'missing' });
  });

  it('is reported at the deadline of a program that hangs, not before', async () => {
    say('hang');
    const clock = new ManualClock();
    let fault: string | undefined;
    const reading = readNvidiaSmi({ command: standIn, clock, timeoutMs: 10_000 }).then((found) => {
      fault = found.kind === 'fault' ? found.fault : undefined;
    });
    await clock.advance(9_999);
    expect(fault).toBeUndefined();
    await clock.advance(1);
    await reading;
    expect(fault).toBe('timeout');
  });

  it('is reported at once for an aborted program, after the program has ended', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-smi-'));
    try {
      say('hang');
      const pidFile = join(folder, 'pid');
      vi.stubEnv('NVIDIA_SMI_PID', pidFile);
      const life = new AbortController();
      const clock = new ManualClock();
      const reading = readNvidiaSmi({ command: standIn, clock, signal: life.signal });
      const written = () => readFile(pidFile, 'utf8').catch(() => '');
      await expect.poll(written).toMatch(/\n$/);
      const pid = Number(await written());
      expect(isAlive(pid)).toBe(true);
      life.abort();
      expect(await reading).toMatchObject({ kind: 'fault', fault: 'failed' });
      await expect.poll(() => isAlive(pid)).toBe(false);
      expect(await readNvidiaSmi({ command: standIn, clock, signal: life.signal })).toMatchObject({
        kind: 'fault',
      });
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('is reported after a program that hangs has ended', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-smi-'));
    try {
      say('hang');
      const pidFile = join(folder, 'pid');
      vi.stubEnv('NVIDIA_SMI_PID', pidFile);
      const clock = new ManualClock();
      const reading = readNvidiaSmi({ command: standIn, clock, timeoutMs: 10_000 });
      const written = () => readFile(pidFile, 'utf8').catch(() => '');
      await expect.poll(written).toMatch(/\n$/);
      const pid = Number(await written());
      expect(isAlive(pid)).toBe(true);
      await clock.advance(10_000);
      await reading;
      await expect.poll(() => isAlive(pid)).toBe(false);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe('a program', () => {
  const run = (script: string) =>
    runProgram({ file: 'sh', args: ['-c', script], timeoutMs: 60_000, clock: systemClock });

  it('is broken if a foreign signal ends it, and the reason names the signal', async () => {
    expect(await run('kill -KILL $$')).toEqual({ kind: 'broken', reason: 'ended by SIGKILL' });
  });

  it('is broken if it prints too much, and the reason names the output', async () => {
    const end = await run('exec head -c 68000000 /dev/zero');
    expect(end).toEqual({ kind: 'broken', reason: expect.stringContaining('maxBuffer') });
  });
});
