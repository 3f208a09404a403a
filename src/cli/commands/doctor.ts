// `millrace doctor`: shows this machine's devices and how workers would be pinned to them, without
// starting any. worker/gpu detects and divides the devices.
import { statfs } from 'node:fs/promises';
import { cpus, freemem, totalmem } from 'node:os';
import { findProxy, nameProxy, readNoProxy } from '../../base/net/outgoing-proxy.ts';
import { packageVersion } from '../../base/package-info.ts';
import { ParkHelper, type ParkTrial, tryParking } from '../../process/park-helper.ts';
import {
  type Detection,
  type DeviceProblem,
  detectDevices,
  type FoundDevice,
} from '../../worker/gpu/detect.ts';
import { type DevicePlan, planDevices } from '../../worker/gpu/device-plan.ts';
import {
  DeviceChoiceError,
  type DeviceSet,
  type DeviceSets,
} from '../../worker/gpu/device-sets.ts';
import { defineCommand, EXIT, renderBlock } from '../command.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { flag, type OptionValues } from '../options.ts';
import { print } from '../output.ts';
import { workerFlags } from '../worker/worker-flags.ts';
import { readPerWorker } from '../worker/worker-machine.ts';

const NODE_MAJOR = 24;
/** With less free disk than this, an outbox may fail, bytes. */
const MIN_FREE_BYTES = 256 * 2 ** 20;

const options = {
  json: flag({ help: 'print one JSON object' }),
  gpusPerWorker: workerFlags.gpusPerWorker,
  devices: workerFlags.devices,
  tryPark: flag({
    help: 'also start a program that fills 1 GB of the first GPU, move this memory to the host and back, and print the times',
  }),
  nvidiaSmi: { ...workerFlags.nvidiaSmi, section: 'main' as const },
};

export const doctorCommand = defineCommand({
  name: 'millrace doctor',
  description: [
    'Checks everything that a worker needs: Node, memory, disk, GPUs, their driver, and whether it can park models. Prints the proxies ' +
      'of the environment, the devices of each worker process and the variables that pin it. Starts no worker and changes nothing.',
  ],
  options,
  examples: ['millrace doctor', 'millrace doctor --gpus-per-worker 2 --devices 0,1,2,3 --json'],
  exitCodes: {
    ok: 'this machine can run a worker',
    failed: 'a problem was found; the remedy is printed',
  },
  run,
});

interface Findings {
  healthy: boolean;
  millrace: string;
  node: string;
  processors: { count: number; model: string };
  /** Bytes; `limitBytes` is the limit of the container. */
  memory: { totalBytes: number; freeBytes: number; limitBytes: number | null };
  disk: { path: string; totalBytes: number; freeBytes: number } | null;
  /** Of URLs with the scheme; `except` is NO_PROXY. */
  proxies: { https: string | null; http: string | null; except: string[] };
  nvidia: Detection['nvidia'];
  /** How models without hooks are parked; null without an NVIDIA GPU. */
  parking: ParkingFindings | null;
  devices: FoundDevice[];
  workers: DeviceSet[];
  idle: DeviceSets['idle'];
  /** Notes about environment variables that affect the choice of devices. */
  notes: string[];
  problems: DeviceProblem[];
}

async function run({ values }: ParsedArguments<typeof options>): Promise<number> {
  const findings = await examine(values);
  void print(values.json ? `${toJson(findings)}\n` : describe(findings));
  return findings.healthy ? EXIT.ok : EXIT.failed;
}

interface ParkingFindings {
  /** `libcuda` or `cuda-checkpoint`; null: only hooks of the models can do it. */
  by: string | null;
  /** Why the driver cannot do it. */
  reason: string | null;
  /** With --try-park. */
  trial: ParkTrial | null;
}

/** @throws UsageError */
async function examine(values: OptionValues<typeof options>): Promise<Findings> {
  const { devices: choice, nvidiaSmi, tryPark } = values;
  const perWorker = readPerWorker(values.gpusPerWorker);
  const searchPath = readVariable('PATH') ?? '';
  const [detection, disk] = await Promise.all([
    detectDevices({ nvidiaSmi, searchPath }),
    measureDisk(process.cwd()),
  ]);
  const { devices, nvidia } = detection;
  const environment = inheritEnvironment({});
  const plan = planSets(() => planDevices({ detection, perWorker, choice, environment }));
  // A broken GPU is no problem for a worker without GPUs.
  const found = detection.problems.map((problem) =>
    plan.isNvidiaUnwanted ? { ...problem, severity: 'warning' as const } : problem,
  );
  const isNew = ({ text }: DeviceProblem) => found.every((known) => known.text !== text);
  const problems = [...found, ...plan.problems.filter(isNew), ...checkHost(disk)];
  const parking = await examineParking(plan.sets[0], { tryPark, problems });
  const proxies = {
    https: examineProxy('https:', problems),
    http: examineProxy('http:', problems),
    except: readNoProxy(environment),
  };
  const processors = cpus();
  return {
    healthy: !problems.some(({ severity }) => severity === 'error'),
    millrace: packageVersion(),
    node: process.versions.node,
    processors: { count: processors.length, model: processors[0]?.model.trim() || process.arch },
    memory: { totalBytes: totalmem(), freeBytes: freemem(), limitBytes: readMemoryLimit() },
    disk,
    proxies,
    nvidia,
    parking,
    devices,
    workers: plan.sets,
    idle: plan.idle,
    notes: plan.notes,
    problems,
  };
}

function planSets(make: () => DevicePlan): DevicePlan & { problems: DeviceProblem[] } {
  try {
    const plan = make();
    const { idle } = plan;
    const names = idle.map(({ uuid }) => uuid).join(', ');
    const text = `${idle.length} GPUs stay idle, too few for another worker: ${names}`;
    const remedy = 'set --gpus-per-worker to a number that divides the GPUs';
    const problems: DeviceProblem[] =
      idle.length > 0 ? [{ severity: 'warning', text, remedy }] : [];
    return { ...plan, problems };
  } catch (error) {
    if (!(error instanceof DeviceChoiceError)) throw error;
    const { message: text, remedy } = error;
    const problems: DeviceProblem[] = [{ severity: 'error', text, remedy }];
    return { sets: [], idle: [], notes: [], isNvidiaUnwanted: false, problems };
  }
}

const TRIAL_BYTES = 2 ** 30;

/** What the driver of the first worker's GPU can do. */
async function examineParking(
  set: DeviceSet | undefined,
  { problems, tryPark }: { problems: DeviceProblem[]; tryPark: boolean },
): Promise<ParkingFindings | null> {
  const device = set?.devices.find(({ uuid }) => /^(?:GPU|MIG)-/.test(uuid));
  if (!set || !device) return null;
  const environment = inheritEnvironment(set.environment);
  const helper = new ParkHelper(environment);
  const findings: ParkingFindings = { by: null, reason: null, trial: null };
  try {
    findings.by = (await helper.probe(device.uuid)).by;
    if (tryPark) {
      findings.trial = await tryParking(environment, { bytes: TRIAL_BYTES, device: device.uuid });
    }
  } catch (error) {
    findings.reason = error instanceof Error ? error.message : String(error);
    if (tryPark) {
      const text = `parking a model by the driver fails: ${findings.reason}`;
      const remedy =
        'declare hooks in the program of the model (docs/model-process.md), or it ends and starts anew instead';
      problems.push({ severity: 'warning', text, remedy });
    }
  } finally {
    helper.stop();
  }
  return findings;
}

function checkHost(disk: Findings['disk']): DeviceProblem[] {
  const problems: DeviceProblem[] = [];
  if (Number.parseInt(process.versions.node, 10) < NODE_MAJOR) {
    const text = `Node ${process.versions.node} is too old`;
    problems.push({ severity: 'error', text, remedy: `install Node ${NODE_MAJOR} or newer` });
  }
  if (disk && disk.freeBytes < MIN_FREE_BYTES) {
    const text = `only ${formatBytes(disk.freeBytes)} of disk are free in ${disk.path}`;
    problems.push({
      severity: 'warning',
      text,
      remedy: 'free disk space, or run workers elsewhere',
    });
  }
  return problems;
}

function examineProxy(scheme: string, problems: DeviceProblem[]): string | null {
  try {
    const proxy = findProxy(inheritEnvironment({}), scheme);
    return proxy ? nameProxy(proxy) : null;
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    const remedy = 'correct the variable or remove it';
    if (problems.every((known) => known.text !== text)) {
      problems.push({ severity: 'error', text, remedy });
    }
    return null;
  }
}

async function measureDisk(path: string): Promise<Findings['disk']> {
  try {
    const { bsize, blocks, bavail } = await statfs(path);
    return { path, totalBytes: bsize * blocks, freeBytes: bsize * bavail };
  } catch {
    return null;
  }
}

/** Memory limit of the container; null if it is not lower than the machine's memory. */
function readMemoryLimit(): number | null {
  const limitBytes = process.constrainedMemory();
  return limitBytes > 0 && limitBytes < totalmem() ? limitBytes : null;
}

/** Writes null for a variable that pinning removes. */
function toJson(findings: Findings): string {
  return JSON.stringify(findings, (_, value: unknown) => (value === undefined ? null : value), 2);
}

function describe(findings: Findings): string {
  const { processors, memory, disk, nvidia, devices, workers, problems } = findings;
  const limit = memory.limitBytes === null ? '' : `, limited to ${formatBytes(memory.limitBytes)}`;
  const free = disk ? `${formatBytes(disk.freeBytes)} free in ${disk.path}` : 'cannot be measured';
  const blocks = [
    renderBlock('Machine', [
      ['Millrace', findings.millrace],
      ['Node', findings.node],
      ['Processors', `${processors.count} × ${processors.model}`],
      [
        'Memory',
        `${formatBytes(memory.totalBytes)}, ${formatBytes(memory.freeBytes)} free${limit}`,
      ],
      ['Disk', free],
      ['Proxies', describeProxies(findings.proxies)],
      ['nvidia-smi', describeNvidia(nvidia)],
      ...(findings.parking ? [['Parking', describeParking(findings.parking)] as const] : []),
    ]),
    renderBlock(
      'Devices',
      devices.map(({ device }) => [
        device.kind === 'cpu' ? 'cpu' : String(device.index),
        `${device.name}, ${formatBytes(device.memoryBytes)}, ${device.uuid}`,
      ]),
    ),
    renderBlock(
      'Workers',
      workers.map((set, place) => [String(place + 1), describeSet(set)]),
    ),
    renderBlock(
      'Notes',
      findings.notes.map((note, place) => [String(place + 1), `${note}.`]),
    ),
    renderBlock(
      'Problems',
      problems.map(({ severity, text, remedy }) => [severity, `${text}. Remedy: ${remedy}.`]),
    ),
    findings.healthy
      ? 'This machine can run a worker.'
      : 'This machine cannot run a worker, see Problems.',
  ];
  return `${blocks.filter((block) => block !== '').join('\n\n')}\n`;
}

function describeProxies({ except, http, https }: Findings['proxies']): string {
  const parts = [
    ...(https === null ? [] : [`${https} for https`]),
    ...(http === null ? [] : [`${http} for http`]),
  ];
  if (parts.length === 0) return 'none';
  return `${parts.join(', ')}; not for ${['this machine', ...except].join(', ')}`;
}

function describeNvidia(nvidia: Detection['nvidia']): string {
  if (nvidia.kind === 'absent') return 'not found';
  if (nvidia.kind === 'failing') return `${nvidia.command} fails`;
  const { command, driverVersion = 'unknown', cudaVersion = 'unknown' } = nvidia;
  return `${command}, driver ${driverVersion}, CUDA up to ${cudaVersion}`;
}

function describeParking({ by, reason, trial }: ParkingFindings): string {
  if (by === null) return `only by hooks of the model: ${reason}`;
  if (!trial) return `by the driver (${by}), or by hooks of the model`;
  const { bytes, parkMs, wakeMs } = trial;
  const seconds = (ms: number) => `${(ms / 1_000).toFixed(2)} s`;
  return `by the driver (${by}): ${formatBytes(bytes)} in ${seconds(parkMs)}, back in ${seconds(wakeMs)}, the same bytes`;
}

function describeSet({ devices, environment }: DeviceSet): string {
  const names = devices.map(({ name }) => name).join(' + ');
  const variables = Object.entries(environment).map(([name, value]) =>
    value === undefined ? `${name} removed` : `${name}=${value}`,
  );
  return variables.length > 0 ? `${names}; ${variables.join(' ')}` : `${names}; nothing is pinned`;
}

function formatBytes(bytes: number): string {
  const gib = bytes / 2 ** 30;
  return gib >= 10 ? `${Math.round(gib)} GiB` : `${gib.toFixed(1)} GiB`;
}
