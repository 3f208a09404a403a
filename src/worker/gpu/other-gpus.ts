// Detects GPUs of vendors other than NVIDIA with systeminformation, which reads lspci. The library
// runs programs synchronously, so it gets a separate process with a deadline.
import { access, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { compareBusIds, normalizeBusId } from './bus-id.ts';
import type { FoundDevice, Vendor } from './found-device.ts';
import { runProgram } from './program.ts';

const require = createRequire(import.meta.url);

const TIMEOUT_MS = 5_000;
/** A display chip without memory of its own cannot run jobs. */
const MIN_MEMORY_BYTES = 2 ** 30;

const SCRIPT = `require(process.argv[1]).graphics()
  .then(({ controllers }) => process.stdout.write(JSON.stringify(controllers)));`;

export interface OtherGpusOptions {
  /** Folder of device files: `/dev`. */
  deviceFolder: string;
  /** Folder with the kernel's PCI devices. Default `/sys/bus/pci/devices`. */
  pciFolder?: string;
  clock: Clock;
}

export interface OtherGpus {
  devices: FoundDevice[];
  /** Why the list may be incomplete. */
  problem: string | undefined;
}

/** Never rejects. Starts nothing if the device files include neither `dri` nor `kfd`. */
export async function listOtherGpus(options: OtherGpusOptions): Promise<OtherGpus> {
  const { deviceFolder, pciFolder = '/sys/bus/pci/devices', clock } = options;
  const nodes = await Promise.all(
    ['dri', 'kfd'].map((name) =>
      access(join(deviceFolder, name)).then(
        () => true,
        () => false,
      ),
    ),
  );
  if (!nodes.includes(true)) return { devices: [], problem: undefined };
  const args = ['-e', SCRIPT, require.resolve('systeminformation')];
  const end = await runProgram({ file: process.execPath, args, timeoutMs: TIMEOUT_MS, clock });
  if (end.kind === 'exited' && end.code === 0) return readControllers(end.stdout, pciFolder);
  const why = end.kind === 'timeout' ? `no answer within ${TIMEOUT_MS} ms` : `it ${end.kind}`;
  return { devices: [], problem: `systeminformation could not list graphics cards: ${why}` };
}

interface Controller {
  vendor: Vendor;
  name: string;
  busId: string;
  memoryBytes: number;
}

/** Reads the JSON of systeminformation's `graphics().controllers`. */
export async function readControllers(json: string, pciFolder: string): Promise<OtherGpus> {
  const listed = parseList(json);
  if (!listed) {
    return { devices: [], problem: 'systeminformation returned an unknown format' };
  }
  const controllers = listed.flatMap(readController);
  controllers.sort((one, other) => compareBusIds(one.busId, other.busId));
  const counts = new Map<Vendor, number>();
  const devices: FoundDevice[] = [];
  for (const { vendor, name, busId, memoryBytes: reported } of controllers) {
    // Small ones are counted too, because the vendor's own numbers include them.
    const index = counts.get(vendor) ?? 0;
    counts.set(vendor, index + 1);
    const memoryBytes = (await readVram(join(pciFolder, busId.slice(4)))) ?? reported;
    if (memoryBytes < MIN_MEMORY_BYTES) continue;
    const uuid = `${vendor}-${busId}`;
    const device: Device = { kind: 'gpu', index, uuid, name, memoryBytes };
    devices.push({ device, vendor, pciBusId: busId });
  }
  return { devices, problem: undefined };
}

/** From AMD's driver: lspci shows only the memory window of the host, often 256 MB. */
async function readVram(folder: string): Promise<number | undefined> {
  try {
    return Number(await readFile(join(folder, 'mem_info_vram_total'), 'utf8')) || undefined;
  } catch {
    return undefined;
  }
}

function parseList(json: string): unknown[] | undefined {
  try {
    const list: unknown = JSON.parse(json);
    return Array.isArray(list) ? list : undefined;
  } catch {
    return undefined;
  }
}

function readController(entry: unknown): Controller[] {
  if (typeof entry !== 'object' || entry === null) return [];
  const fields = new Map<string, unknown>(Object.entries(entry));
  const vendor = readVendor(String(fields.get('vendor') ?? ''));
  if (vendor === undefined) return [];
  const memory = fields.get('memoryTotal') ?? fields.get('vram');
  // Memory borrowed from the host does not belong to the card.
  const isOwn = fields.get('vramDynamic') !== true;
  return [
    {
      vendor,
      name: String(fields.get('model') || `${vendor} GPU`),
      busId: normalizeBusId(String(fields.get('busAddress') ?? fields.get('pciBus') ?? '')),
      memoryBytes: isOwn && typeof memory === 'number' ? memory * 2 ** 20 : 0,
    },
  ];
}

function readVendor(text: string): Vendor | undefined {
  if (/advanced micro devices|\bamd\b|\bati\b/i.test(text)) return 'amd';
  return /intel/i.test(text) ? 'intel' : undefined;
}
