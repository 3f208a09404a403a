// Finds the processors near a set's GPUs, and the command prefix that pins a process to them.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { FoundDevice } from './detect.ts';
import type { DeviceSet } from './device-sets.ts';
import { findProgram } from './program.ts';

interface AffinityOptions {
  set: DeviceSet;
  /** Detected devices, with their bus IDs. */
  devices: readonly FoundDevice[];
  /** The PATH of the environment. */
  searchPath: string;
  /** Folder with the kernel's PCI devices. Default `/sys/bus/pci/devices`. */
  pciFolder?: string;
  /** The kernel's status of this process. Default `/proc/self/status`. */
  statusFile?: string;
}

interface Affinity {
  /** Prefix of the command, such as `['/usr/bin/taskset', '-c', '0-15,32-47']`; or empty. */
  prefix: string[];
  /** In the kernel's form, `0-15,32-47`; undefined: the process is not pinned. */
  processors: string | undefined;
  /** Why the process is not pinned, in one sentence. */
  note?: string;
}

/** Never rejects: a machine without this information is no reason to fail. */
export async function planAffinity(options: AffinityOptions): Promise<Affinity> {
  const { set, devices, searchPath, statusFile = '/proc/self/status' } = options;
  const { pciFolder = '/sys/bus/pci/devices' } = options;
  const uuids = new Set(set.devices.map(({ uuid }) => uuid));
  const busIds = new Set(
    devices
      .filter(({ device, pciBusId }) => uuids.has(device.uuid) && pciBusId !== '')
      .map(({ pciBusId }) => pciBusId),
  );
  if (busIds.size === 0) return skipPinning();
  const near = new Set<number>();
  for (const busId of busIds) {
    const found = await readNear(join(pciFolder, toKernelForm(busId)));
    if (!found) return skipPinning(`the kernel does not report the CPUs near ${busId}`);
    for (const processor of found) near.add(processor);
  }
  const allowed = await readAllowed(statusFile);
  if (!allowed) return skipPinning('the kernel does not report the CPUs that this process may use');
  const both = [...near].filter((processor) => allowed.has(processor));
  const where = [...busIds].join(', ');
  if (both.length === 0) return skipPinning(`this process may not use any CPU near ${where}`);
  // A machine with one node: nothing to choose.
  if (both.length === allowed.size) return skipPinning();
  const taskset = await findProgram('taskset', searchPath);
  if (taskset === undefined) {
    return skipPinning('program taskset not found on the PATH; install util-linux');
  }
  const processors = formatProcessors(both);
  return { prefix: [taskset, '-c', processors], processors };
}

function skipPinning(note?: string): Affinity {
  return { prefix: [], processors: undefined, ...(note !== undefined && { note }) };
}

/** The kernel writes a PCI domain with four digits, nvidia-smi with eight. */
function toKernelForm(busId: string): string {
  return busId.replace(/^0{1,4}(?=[0-9a-f]{4,}:)/, '');
}

/** Undefined if the firmware names no node: every processor is equally near. */
async function readNear(folder: string): Promise<Set<number> | undefined> {
  const node = await readOrNothing(join(folder, 'numa_node'));
  if (node === '' || Number(node) < 0) return undefined;
  const processors = parseProcessors(await readOrNothing(join(folder, 'local_cpulist')));
  return processors.size > 0 ? processors : undefined;
}

async function readAllowed(statusFile: string): Promise<Set<number> | undefined> {
  const status = await readOrNothing(statusFile);
  const processors = parseProcessors(/^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1] ?? '');
  return processors.size > 0 ? processors : undefined;
}

function readOrNothing(path: string): Promise<string> {
  return readFile(path, 'utf8').then(
    (text) => text.trim(),
    () => '',
  );
}

/** `0-3,8` → 0, 1, 2, 3, 8; empty if the text is not a list. */
function parseProcessors(list: string): Set<number> {
  const found = new Set<number>();
  for (const part of list.split(',')) {
    const [, first, last = first] = /^(\d+)(?:-(\d+))?$/.exec(part.trim()) ?? [];
    if (first === undefined) return new Set();
    for (let processor = Number(first); processor <= Number(last); processor++)
      found.add(processor);
  }
  return found;
}

/** The shortest form: neighbours as ranges. */
function formatProcessors(processors: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const processor of processors.toSorted((one, other) => one - other)) {
    const range = ranges.at(-1);
    if (range && range[1] === processor - 1) range[1] = processor;
    else ranges.push([processor, processor]);
  }
  return ranges
    .map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`))
    .join(',');
}
