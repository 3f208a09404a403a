// Runs nvidia-smi and turns every result into a report, or a fault with a reason and a remedy.
// nvidia-smi-report.ts parses the XML.
import { type Clock, systemClock } from '../../base/clock.ts';
import {
  compareBusIds,
  normalizeBusId,
  parseReport,
  type SmiGpu,
  SmiOutputError,
  type SmiReport,
} from './nvidia-smi-report.ts';
import { type ProgramEnd, runProgram } from './program.ts';

export const SMI_TIMEOUT_MS = 10_000;

const SMI_FAULTS = [
  /** The program does not exist. */
  'missing',
  /** It did not respond in time and was killed. */
  'timeout',
  /** It cannot communicate with the driver. */
  'driver',
  /**
   * It was updated and the running driver was not: running GPU work continues, new work cannot
   * start.
   */
  'mismatch',
  /** A card is lost, and the program reports nothing about the others. */
  'lost',
  /** It failed with another error. */
  'failed',
  /** It succeeded but printed something other than its XML. */
  'garbage',
] as const;

export interface SmiFault {
  kind: 'fault';
  fault: (typeof SMI_FAULTS)[number];
  /** One sentence. */
  reason: string;
  /** What to do about it, one sentence. */
  remedy: string;
  /** Bus ID of the affected card, if named. */
  pciBusId?: string;
}

export type SmiReading =
  | {
      kind: 'report';
      report: SmiReport;
      /** Lost cards that are missing in the report. */
      lostBusIds: string[];
    }
  | SmiFault;

interface SmiOptions {
  /** Path of nvidia-smi. */
  command: string;
  /** Default 10,000. */
  timeoutMs?: number;
  clock?: Clock;
  /** Aborts the program; the result is a fault. */
  signal?: AbortSignal | undefined;
}

/**
 * Never rejects. Starts nvidia-smi once; again only for the UUIDs of MIG devices, and for the other
 * cards if one is lost.
 */
export async function readNvidiaSmi(options: SmiOptions): Promise<SmiReading> {
  const reading = await readOutput(await ask(options, ['-q', '-x']), options);
  if (reading.kind !== 'fault' || reading.fault !== 'lost') return reading;
  const uuids = await listUuids(options);
  if (uuids.length === 0) return reading;
  const others = await readOutput(await ask(options, ['-q', '-x', '-i', uuids.join(',')]), options);
  if (others.kind === 'fault') return reading;
  const named = reading.pciBusId === undefined ? [] : [reading.pciBusId];
  const lostBusIds = [...others.lostBusIds, ...named];
  return { ...others, report: numberGpus(others.report, lostBusIds), lostBusIds };
}

/** A lost card keeps its number until the machine restarts: the others do not move up. */
function numberGpus(report: SmiReport, lostBusIds: readonly string[]): SmiReport {
  const busIds = [...new Set([...report.gpus.map(({ pciBusId }) => pciBusId), ...lostBusIds])];
  busIds.sort(compareBusIds);
  const gpus = report.gpus.map((gpu) => ({ ...gpu, index: busIds.indexOf(gpu.pciBusId) }));
  return { ...report, gpus };
}

async function readOutput(end: ProgramEnd, options: SmiOptions): Promise<SmiReading> {
  if (end.kind !== 'exited') return explainEnd(end, options);
  const start = end.stdout.indexOf('<?xml');
  if (end.code !== 0 && start < 0) return explainExit(end.code, `${end.stdout}\n${end.stderr}`);
  try {
    const parsed = await parseReport(end.stdout.slice(Math.max(0, start)));
    const lostBusIds = listLost(`${end.stdout.slice(0, Math.max(0, start))}\n${end.stderr}`);
    const report = numberGpus(await nameMigDevices(parsed, options), lostBusIds);
    return { kind: 'report', report, lostBusIds };
  } catch (error) {
    if (!(error instanceof SmiOutputError)) throw error;
    return explainGarbage(end.stdout, error.message);
  }
}

async function listUuids(options: SmiOptions): Promise<string[]> {
  const end = await ask(options, ['-L']);
  if (end.kind !== 'exited') return [];
  return [...end.stdout.matchAll(/^GPU \d+: .*\(UUID: (GPU-[^)]+)\)/gm)].map(
    ([, uuid = '']) => uuid,
  );
}

function ask(
  { command, timeoutMs = SMI_TIMEOUT_MS, clock = systemClock, signal }: SmiOptions,
  args: string[],
) {
  return runProgram({ file: command, args, timeoutMs, clock, signal });
}

function explainEnd(
  end: Exclude<ProgramEnd, { kind: 'exited' }>,
  { command, timeoutMs = SMI_TIMEOUT_MS }: SmiOptions,
): SmiFault {
  switch (end.kind) {
    case 'missing':
      return {
        kind: 'fault',
        fault: 'missing',
        reason: `program ${command} not found`,
        remedy: 'install the NVIDIA driver, or give the path with --nvidia-smi',
      };
    case 'timeout':
      return {
        kind: 'fault',
        fault: 'timeout',
        reason: `${command} did not answer within ${timeoutMs} ms and was killed`,
        remedy:
          'look for Xid errors in `dmesg`; a driver that hangs needs a reset of the GPU or a reboot',
      };
    case 'unstartable':
    case 'broken':
      return {
        kind: 'fault',
        fault: 'failed',
        reason: `${command} could not be run: ${end.reason}`,
        remedy: 'run it by hand as the same user and read its output',
      };
  }
}

/** `GPU0000:01:00.0`, `GPU 0000:01:00.0`, `GPU0: 0000:01:00.0`: versions differ. */
const HANDLE_LOST =
  /Unable to determine the device handle for GPU(?:\d+:\s+|[:\s]*)((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])/gi;

/** Bus IDs of cards that nvidia-smi cannot access. */
function listLost(text: string): string[] {
  return [...text.matchAll(HANDLE_LOST)].map(([, busId = '']) => normalizeBusId(busId));
}

/** Exit codes from the manual page of nvidia-smi, RETURN VALUE. */
const DRIVER_EXITS = new Set([9, 10, 12, 18]);
const LOST_EXIT = 15;

function explainExit(code: number, output: string): SmiFault {
  const message = summarize(output) || `nothing, and exited with code ${code}`;
  const [pciBusId] = listLost(output);
  if (code === LOST_EXIT || pciBusId !== undefined || /GPU is lost/i.test(output)) {
    return {
      kind: 'fault',
      fault: 'lost',
      reason: `nvidia-smi says: ${message}`,
      remedy:
        'reboot the machine; if the card is lost again, check the card, its power and its slot',
      ...(pciBusId !== undefined && { pciBusId }),
    };
  }
  if (/version mismatch/i.test(output)) {
    return {
      kind: 'fault',
      fault: 'mismatch',
      reason: `nvidia-smi says: ${message}`,
      remedy: 'the driver was updated under the running one: reload its modules, or reboot',
    };
  }
  if (/No devices were found/i.test(output)) {
    return {
      kind: 'fault',
      fault: 'driver',
      reason: `nvidia-smi says: ${message}`,
      remedy:
        'in a container, start it with its GPUs (`--gpus all`); else look for errors in `dmesg`',
    };
  }
  if (DRIVER_EXITS.has(code) || /NVIDIA driver|NVML|libnvidia-ml/i.test(output)) {
    return {
      kind: 'fault',
      fault: 'driver',
      reason: `nvidia-smi says: ${message}`,
      remedy:
        'install and load the driver (`modprobe nvidia`); start a container with its GPUs (`--gpus all`)',
    };
  }
  return {
    kind: 'fault',
    fault: 'failed',
    reason: `nvidia-smi exited with code ${code} and says: ${message}`,
    remedy: 'run `nvidia-smi -q -x` by hand as the same user and read its output',
  };
}

function explainGarbage(output: string, problem: string): SmiFault {
  const message = summarize(output);
  return {
    kind: 'fault',
    fault: 'garbage',
    reason: `the output of nvidia-smi is not its XML (${problem})${message && `: ${message}`}`,
    remedy: 'check that `nvidia-smi` on the PATH is NVIDIA’s: run `nvidia-smi -q -x`',
  };
}

/** On one line, at most 200 characters. */
function summarize(output: string): string {
  const line = output.replaceAll(/\s+/g, ' ').trim().replace(/\.$/, '');
  return line.length > 200 ? `${line.slice(0, 199)}…` : line;
}

/** MIG devices without a UUID cannot be pinned; every driver lists the UUIDs in `nvidia-smi -L`. */
async function nameMigDevices(report: SmiReport, options: SmiOptions): Promise<SmiReport> {
  const isComplete = report.gpus.every((gpu) => gpu.migDevices.every(({ uuid }) => uuid));
  if (isComplete) return report;
  const end = await ask(options, ['-L']);
  const listed = end.kind === 'exited' ? parseListing(end.stdout) : new Map<string, string>();
  return { ...report, gpus: report.gpus.map((gpu) => nameOfListing(gpu, listed)) };
}

function nameOfListing(gpu: SmiGpu, listed: ReadonlyMap<string, string>): SmiGpu {
  const migDevices = gpu.migDevices.map((device) => ({
    ...device,
    uuid: device.uuid ?? listed.get(`${gpu.uuid} ${device.index}`),
  }));
  return { ...gpu, migDevices };
}

/** The UUIDs of MIG devices by `<UUID of the GPU> <index within it>`. */
function parseListing(listing: string): Map<string, string> {
  const found = new Map<string, string>();
  let parent = '';
  for (const line of listing.split('\n')) {
    const gpu = /^GPU \d+: .*\(UUID: (GPU-[^)]+)\)/.exec(line)?.[1];
    if (gpu !== undefined) parent = gpu;
    const [, index, uuid] = /^\s+MIG .* Device\s+(\d+): \(UUID: (MIG-[^)]+)\)/.exec(line) ?? [];
    if (index !== undefined && uuid !== undefined) found.set(`${parent} ${index}`, uuid);
  }
  return found;
}
