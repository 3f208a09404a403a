// Reads RunPod's environment variables, and applies those that replace options of Millrace.
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { makeOwnFolder } from '../../base/make-folder.ts';
import { readProxies } from '../../base/net/outgoing-proxy.ts';
import { packageVersion } from '../../base/package-info.ts';
import { RunPodAddresses, type RunPodAddressOptions } from '../../transport/runpod/caller.ts';
import type { RunPodLink } from '../../transport/runpod/link.ts';
import type { SystemLimits } from '../../worker/health/system-checks.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
import { readKeyOf, UsageError } from '../options.ts';
import type { WorkerFlags } from './worker-flags.ts';

const GB = 2 ** 30;
const LEVELS: Readonly<Record<string, 'trace' | 'debug' | 'info' | 'warn' | 'error'>> = {
  NOTSET: 'trace',
  TRACE: 'trace',
  DEBUG: 'debug',
  INFO: 'info',
  WARN: 'warn',
  ERROR: 'error',
};

/** Whether this machine is a worker of a RunPod endpoint. */
export function isOnRunPod(): boolean {
  return readVariable('RUNPOD_WEBHOOK_GET_JOB') !== undefined;
}

/** Without a pod ID, the worker has a new ID at each start. */
export function readPodId(): string | undefined {
  return readVariable('RUNPOD_POD_ID');
}

export function readRunPodEndpoint(): string {
  return readVariable('RUNPOD_ENDPOINT_ID') ?? 'runpod';
}

export function readRunPodLogLevel() {
  const given = readVariable('RUNPOD_LOG_LEVEL') ?? readVariable('RUNPOD_DEBUG_LEVEL') ?? '';
  return LEVELS[given.toUpperCase()] ?? 'info';
}

/** The limits that RunPod's workers check unless the environment sets others. */
export function readRunPodLimits(): SystemLimits {
  if (isTrue('RUNPOD_SKIP_AUTO_SYSTEM_CHECKS')) return {};
  const skipsGpus = isTrue('RUNPOD_SKIP_GPU_CHECK');
  return {
    minMemoryBytes: readNumber('RUNPOD_MIN_MEMORY_GB', 4) * GB,
    minDiskPercent: readNumber('RUNPOD_MIN_DISK_PERCENT', 10),
    needsGpus: !skipsGpus,
    ...(!skipsGpus && { minCudaVersion: readVariable('RUNPOD_MIN_CUDA_VERSION') ?? '11.8' }),
  };
}

/** Returns the worker's ID and the addresses of its endpoint. @throws UsageError */
export function readRunPodAddresses({
  workerId,
}: Pick<RunPodValues, 'workerId'>): RunPodAddressOptions {
  const addresses = {
    templates: {
      take: requireVariable('RUNPOD_WEBHOOK_GET_JOB'),
      done: requireVariable('RUNPOD_WEBHOOK_POST_OUTPUT'),
      stream:
        readVariable('RUNPOD_WEBHOOK_POST_STREAM') ?? readVariable('RUNPOD_WEBHOOK_JOB_STREAM'),
      ping: readVariable('RUNPOD_WEBHOOK_PING'),
    },
    podId: readPodId() ?? workerId ?? hostname(),
    gpuTypeId: readVariable('RUNPOD_GPU_TYPE_ID'),
  };
  try {
    new RunPodAddresses(addresses);
    return addresses;
  } catch (error) {
    throw new UsageError(`RUNPOD_WEBHOOK_…: ${error instanceof Error ? error.message : error}`);
  }
}

export type RunPodValues = Pick<WorkerFlags, 'key' | 'stateDir' | 'workerId' | 'runpodJoinText'>;

/** @throws UsageError */
export async function openRunPodLink(values: RunPodValues, log: Log): Promise<RunPodLink> {
  const { createRunPodLink } = await import('../../transport/runpod/link.ts');
  const addresses = readRunPodAddresses(values);
  const folder = values.stateDir ?? openTempFolder(addresses.podId);
  return createRunPodLink({
    ...addresses,
    key: readRunPodKey(values),
    pingEveryMs: readNumber('RUNPOD_PING_INTERVAL', 10_000),
    joinsText: values.runpodJoinText,
    ledgerFolder: join(folder, 'runpod'),
    hostname: readVariable('RUNPOD_POD_HOSTNAME') ?? hostname(),
    version: packageVersion(),
    chooseProxy: readProxies(inheritEnvironment({})),
    log,
  });
}

/** @throws UsageError */
function openTempFolder(podId: string): string {
  const folder = join(tmpdir(), `millrace-${podId}`);
  try {
    makeOwnFolder(folder);
    return folder;
  } catch (error) {
    throw new UsageError(`${error instanceof Error ? error.message : error}; set --state-dir`);
  }
}

/** @throws InvalidKeyError */
export function readRunPodKey(values: Pick<RunPodValues, 'key'>): string | undefined {
  const name = 'RUNPOD_AI_API_KEY';
  const key = values.key || readVariable(name);
  return key && readKeyOf(name, key);
}

function requireVariable(name: string): string {
  const value = readVariable(name);
  if (value !== undefined) return value;
  throw new UsageError(`${name} is required on RunPod (RUNPOD_WEBHOOK_GET_JOB is set)`);
}

function isTrue(name: string): boolean {
  return readVariable(name)?.toLowerCase() === 'true';
}

function readNumber(name: string, fallback: number): number {
  const value = Number(readVariable(name) ?? fallback);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new UsageError(`${name}: must be a number, got ${JSON.stringify(readVariable(name))}`);
}
