// Processors near a GPU: files as the kernel has them, and a real taskset on a real process.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { FoundDevice } from '../../../../src/worker/gpu/detect.ts';
import { planAffinity } from '../../../../src/worker/gpu/device-sets.ts';
import { findProgram } from '../../../../src/worker/gpu/program.ts';

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-affinity-'));
});

afterEach(() => rm(folder, { recursive: true }));

function found(index: number, pciBusId: string): FoundDevice {
  const uuid = `GPU-${index}`;
  const device = { kind: 'gpu', index, uuid, name: 'A100', memoryBytes: 2 ** 30 } as const;
  return { device, vendor: 'nvidia', pciBusId };
}

const gpus = [
  found(0, '00000000:19:00.0'),
  found(1, '00000000:5d:00.0'),
  found(2, '00010000:01:00.0'),
];

async function writeCard(busId: string, node: string, processors: string): Promise<void> {
  await mkdir(join(folder, 'pci', busId), { recursive: true });
  await writeFile(join(folder, 'pci', busId, 'numa_node'), `${node}\n`);
  await writeFile(join(folder, 'pci', busId, 'local_cpulist'), `${processors}\n`);
}

interface Wish {
  indices?: number[];
  allowed?: string;
  searchPath?: string;
}

async function plan({ indices = [0], allowed = '0-63', searchPath }: Wish = {}) {
  const statusFile = join(folder, 'status');
  await writeFile(statusFile, `Name:\tnode\nCpus_allowed:\tff\nCpus_allowed_list:\t${allowed}\n`);
  const tools = join(folder, 'bin');
  await mkdir(tools, { recursive: true });
  await writeFile(join(tools, 'taskset'), '', { mode: 0o755 });
  const chosen = gpus.filter(({ device }) => indices.includes(device.index));
  return planAffinity({
    set: { devices: chosen.map(({ device }) => device), environment: {} },
    devices: gpus,
    searchPath: searchPath ?? tools,
    pciFolder: join(folder, 'pci'),
    statusFile,
  });
}

describe('the CPUs of a set', () => {
  beforeEach(async () => {
    await writeCard('0000:19:00.0', '0', '0-15,32-47');
    await writeCard('0000:5d:00.0', '1', '16-31,48-63');
    await writeCard('10000:01:00.0', '2', '64-71');
  });

  it.each<[string, Wish, string | undefined]>([
    ['are those close to its GPU', {}, '0-15,32-47'],
    ['are limited to those that this process may use', { allowed: '8-20,47' }, '8-15,47'],
    ['are close to any of its GPUs', { indices: [0, 1], allowed: '0-71' }, '0-63'],
    ['are found for a PCI domain beyond four digits', { indices: [2], allowed: '0-71' }, '64-71'],
    ['are not restricted if all are close', { allowed: '0-3' }, undefined],
  ])('%s', async (_, wish, processors) => {
    const { prefix, note, ...affinity } = await plan(wish);
    expect(affinity.processors).toBe(processors);
    expect(note).toBeUndefined();
    const command = [join(folder, 'bin', 'taskset'), '-c', processors];
    expect(prefix).toEqual(processors === undefined ? [] : command);
  });

  it.each<[string, Wish, RegExp]>([
    ['this process may not use the close ones', { allowed: '16-31' }, /may not use any CPU/],
    ['taskset is missing', { searchPath: '' }, /program taskset not found/],
    ['the allowed CPUs are unknown', { allowed: '?' }, /the CPUs that this process may use/],
  ])('stay unchanged, with a note, if %s', async (_, wish, note) => {
    const affinity = await plan(wish);
    expect(affinity).toMatchObject({ prefix: [], processors: undefined });
    expect(affinity.note).toMatch(note);
  });

  it('stay unchanged, with a note, where the kernel does not report the card', async () => {
    await rm(join(folder, 'pci'), { recursive: true });
    expect((await plan()).note).toMatch(/near 00000000:19:00.0/);
  });

  it('stay unchanged where the firmware names no NUMA node', async () => {
    await writeCard('0000:19:00.0', '-1', '0-15');
    expect(await plan()).toMatchObject({ prefix: [], note: expect.stringContaining('near') });
  });

  it('are not read where the set is not a GPU', async () => {
    expect(await plan({ indices: [] })).toEqual({ prefix: [], processors: undefined });
  });
});

const searchPath = process.env['PATH'] ?? '';
const taskset = await findProgram('taskset', searchPath);
const allowedHere = /^Cpus_allowed_list:\s*(\S+)/m.exec(await readStatus('self'))?.[1] ?? '';

async function readStatus(pid: number | 'self'): Promise<string> {
  return readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
}

describe('a process that is started with the prefix', () => {
  it.skipIf(taskset === undefined || !/[,-]/.test(allowedHere))(
    'runs on these processors only and still exchanges messages with its parent',
    async () => {
      const first = /^\d+/.exec(allowedHere)?.[0] ?? '';
      await writeCard('0000:19:00.0', '0', first);
      const { prefix } = await planAffinity({
        set: { devices: gpus.slice(0, 1).map(({ device }) => device), environment: {} },
        devices: gpus,
        searchPath,
        pciFolder: join(folder, 'pci'),
      });
      const script = "process.send('up'); process.on('message', () => process.exit(0));";
      const [program = '', ...args] = [...prefix, process.execPath, '-e', script];
      const child = spawn(program, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
      const exited = once(child, 'exit');
      expect(await once(child, 'message')).toContain('up');
      const status = await readStatus(child.pid ?? 0);
      expect(/^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1]).toBe(first);
      child.send('leave');
      expect((await exited)[0]).toBe(0);
    },
  );
});
