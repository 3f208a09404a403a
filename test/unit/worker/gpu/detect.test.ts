// What is found on machines of many kinds. nvidia-smi, lspci and the device files are stand-ins;
// the processes and files are real.
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ManualClock, systemClock } from '../../../../src/base/clock.ts';
import { detectDevices, listOtherGpus } from '../../../../src/worker/gpu/detect.ts';
import { type Answer, type Failure, standInFolder } from '../../../support/nvidia-smi/stand-in.ts';

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-detect-'));
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true });
});

function detect(says: Answer | Failure) {
  vi.stubEnv('NVIDIA_SMI_SAYS', says);
  return detectDevices({ searchPath: standInFolder, deviceFolder: folder });
}

/** As systeminformation expects of `lspci -vvv`. */
const LSPCI = `00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 770 (rev 0c)
\tSubsystem: Intel Corporation Device 2212
\tRegion 2: Memory at 4000000000 (64-bit, prefetchable) [size=256M]

03:00.0 Display controller: Advanced Micro Devices, Inc. [AMD/ATI] Aldebaran/MI200 [Instinct MI210] (rev 02)
\tSubsystem: Advanced Micro Devices, Inc. [AMD/ATI] Device 0c34
\tRegion 0: Memory at 7000000000 (64-bit, prefetchable) [size=256M]

63:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XTX] (rev c8)
\tSubsystem: Advanced Micro Devices, Inc. [AMD/ATI] Device 0e3b
\tRegion 0: Memory at 6800000000 (64-bit, prefetchable) [size=32G]
`;

async function writeProgram(name: string, script: string): Promise<void> {
  await writeFile(join(folder, name), `#!/bin/sh\n${script}\n`);
  await chmod(join(folder, name), 0o755);
}

describe('detection', () => {
  it('returns the CPU as one device without nvidia-smi, and starts no process', async () => {
    const found = await detectDevices({ searchPath: folder, deviceFolder: folder });
    expect(found).toMatchObject({ nvidia: { kind: 'absent' }, problems: [] });
    expect(found.devices).toEqual([found.host]);
    expect(found.host.device).toMatchObject({
      kind: 'cpu',
      uuid: 'cpu-0',
      memoryBytes: totalmem(),
      name: expect.stringContaining(`${cpus().length} × `),
    });
  });

  it('returns one device for each whole GPU', async () => {
    const found = await detect('eight-a100');
    expect(found.problems).toEqual([]);
    expect(found.devices.map(({ device }) => device.index)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(found.devices[0]?.device).toEqual({
      kind: 'gpu',
      index: 0,
      uuid: 'GPU-a1000000-51c2-4e0b-9d67-3f8842b0c1d0',
      name: 'NVIDIA A100-SXM4-80GB',
      memoryBytes: 80 * 2 ** 30,
    });
  });

  it('returns the MIG instances of a partitioned GPU in its place', async () => {
    const { devices, problems } = await detect('mig-a100');
    expect(problems).toEqual([]);
    expect(devices.map(({ device }) => device.uuid.slice(0, 4))).toEqual([
      'MIG-',
      'MIG-',
      'MIG-',
      'MIG-',
      'GPU-',
    ]);
    expect(devices[0]).toMatchObject({
      device: { index: 0, memoryBytes: 40_192 * 2 ** 20 },
      mig: { parentUuid: 'GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f', gpuInstanceId: 2 },
    });
  });

  it.each<[Answer | Failure, number, string]>([
    ['mig-empty', 1, 'is in MIG mode and has no instances'],
    ['eight-a100-lost', 7, 'the driver lost the GPU at 00000000:53:00.0'],
    ['lost-beside', 7, 'the driver lost the GPU at 00000000:53:00.0'],
    ['one-h200-ecc', 1, 'asks for: Reset'],
  ])('finds in "%s" %d GPUs and reports the others', async (says, count, text) => {
    const { devices, problems } = await detect(says);
    expect(devices.filter(({ vendor }) => vendor === 'nvidia')).toHaveLength(count);
    expect(problems[0]).toMatchObject({ severity: 'error', text: expect.stringContaining(text) });
  });

  it.each<Failure>(['driver-error', 'garbage', 'lost', 'no-permission'])(
    'finds in "%s" the CPU, and the error with its remedy',
    async (says) => {
      const { devices, nvidia, problems } = await detect(says);
      expect(devices.map(({ vendor }) => vendor)).toEqual(['host']);
      expect(nvidia.kind).toBe('failing');
      expect(problems).toMatchObject([{ severity: 'error', remedy: expect.stringMatching(/\w/) }]);
    },
  );

  it('reports a driver without nvidia-smi', async () => {
    await writeFile(join(folder, 'nvidiactl'), '');
    const { problems } = await detectDevices({ searchPath: '', deviceFolder: folder });
    expect(problems).toMatchObject([
      { severity: 'error', text: expect.stringContaining('an NVIDIA driver is installed') },
    ]);
  });

  it('reports that the given nvidia-smi is not nvidia-smi', async () => {
    const nvidiaSmi = join(folder, 'smi');
    const options = { nvidiaSmi, searchPath: standInFolder, deviceFolder: folder };
    const { problems } = await detectDevices(options);
    expect(problems).toMatchObject([{ severity: 'error', text: `program ${nvidiaSmi} not found` }]);
  });
});

describe('GPUs of other vendors', () => {
  it('are found with their memory and names; chips without memory are skipped', async () => {
    await writeProgram('lspci', `cat <<'END'\n${LSPCI}END`);
    await mkdir(join(folder, 'dri'));
    await mkdir(join(folder, 'pci', '0000:03:00.0'), { recursive: true });
    await writeFile(join(folder, 'pci', '0000:03:00.0', 'mem_info_vram_total'), '68702699520\n');
    vi.stubEnv('PATH', `${folder}:/usr/bin:/bin`);
    const pciFolder = join(folder, 'pci');
    const found = await listOtherGpus({ deviceFolder: folder, pciFolder, clock: systemClock });
    expect(found.problem).toBeUndefined();
    expect(found.devices.map(({ device, vendor }) => [vendor, device.index, device.uuid])).toEqual([
      ['amd', 0, 'amd-00000000:03:00.0'],
      ['amd', 1, 'amd-00000000:63:00.0'],
    ]);
    expect(found.devices.map(({ device }) => device.memoryBytes)).toEqual([
      68_702_699_520,
      32 * 2 ** 30,
    ]);
    expect(found.devices.map(({ device }) => device.name)).toEqual([
      'Aldebaran/MI200 [Instinct MI210]',
      'Navi 31 [Radeon RX 7900 XTX]',
    ]);
  });

  it('are not searched for without their device files', async () => {
    await writeProgram('lspci', `echo asked >>'${join(folder, 'calls')}'`);
    vi.stubEnv('PATH', `${folder}:/usr/bin:/bin`);
    const found = await listOtherGpus({ deviceFolder: folder, clock: systemClock });
    expect(found).toEqual({ devices: [], problem: undefined });
    await expect(readFile(join(folder, 'calls'))).rejects.toThrow('ENOENT');
  });

  it('are skipped after the deadline', async () => {
    await writeProgram('lspci', 'exec sleep 5');
    await mkdir(join(folder, 'kfd'));
    vi.stubEnv('PATH', `${folder}:/usr/bin:/bin`);
    const clock = new ManualClock();
    const looking = listOtherGpus({ deviceFolder: folder, clock });
    // The look begins with a few reads of the file system, which take their time.
    let found: Awaited<typeof looking> | undefined;
    void looking.then((result) => {
      found = result;
    });
    while (found === undefined) await clock.advance(5_000);
    expect(found.devices).toEqual([]);
    expect(found.problem).toContain('no answer within 5000 ms');
  });
});
