// The options of `millrace worker`, which its supervisor and the worker processes share.
import { type ParsedArguments, parseOptions } from '../option-parser.ts';
import {
  choice,
  defineGroup,
  flag,
  integer,
  keyOption,
  type Option,
  type OptionValues,
  requiredText,
  text,
} from '../options.ts';
import { logLevelOption } from '../terminal-log.ts';
import { isOnRunPod, readPodId, readRunPodEndpoint, readRunPodLogLevel } from './runpod.ts';

const MAX_MS = 604_800_000;
/** 1 TiB. */
const MAX_MB = 1_048_576;

const platformOptions = defineGroup('Platform', {
  url: requiredText({
    placeholder: 'URL',
    help: 'URL of the platform: http or https, or grpc or grpcs for its gRPC port',
  }),
  link: choice({
    choices: ['http', 'grpc'],
    help: 'transport of the worker protocol; default: by the scheme of --url',
  }),
  endpoint: requiredText({
    placeholder: 'ID',
    help: 'ID or name of the endpoint whose jobs the worker takes; give the ID if the name may change',
  }),
  key: keyOption(
    requiredText({
      placeholder: 'KEY',
      help: 'worker key; prefer the variable, because other users can see arguments',
    }),
  ),
  httpUrl: text({
    placeholder: 'URL',
    section: 'advanced',
    help: 'URL of the platform for HTTP, from which a worker over gRPC downloads its --handler-version; default: --url',
  }),
  ca: text({
    placeholder: 'FILE',
    section: 'advanced',
    help: "PEM file of certificate authorities for https and grpcs; default: the system's; files of certificates are read again when they change",
  }),
  clientCert: text({
    needs: 'clientKey',
    placeholder: 'FILE',
    section: 'advanced',
    help: 'PEM file of the client certificate, for platforms that require one',
  }),
  clientKey: text({
    needs: 'clientCert',
    placeholder: 'FILE',
    section: 'advanced',
    help: 'PEM file of the private key of --client-cert',
  }),
  authTimeout: integer({
    min: 0,
    max: MAX_MS / 1_000,
    default: 600,
    unit: 's',
    section: 'advanced',
    help: 'time after which the worker exits with code 6 if the platform refuses its key, or has no such endpoint, all that time; the log repeats the reason each minute; 0: try again without end',
  }),
});

const processOptions = defineGroup('Processes, threads and devices', {
  threads: integer({
    min: 1,
    max: 1_024,
    default: 1,
    help: 'threads of each worker process; each loads the handler',
  }),
  jobsPerThread: integer({
    min: 1,
    max: 1_000,
    help: "concurrent jobs of one thread; default: the handler's config.concurrency, else 1",
  }),
  gpusPerWorker: text({
    default: '1',
    placeholder: 'N|all',
    help: 'number of GPUs of each worker process; one process runs for each device set of this size',
  }),
  devices: text({
    placeholder: 'LIST',
    help:
      'devices to use, separated by commas: an index by PCI bus ID (0), a UUID (GPU-…), a MIG instance (0:1 is ' +
      'instance 1 of GPU 0), another maker (amd:0), or cpu for no GPU; default: all GPUs',
  }),
  startAttempts: integer({
    min: 1,
    max: 1_000,
    default: 5,
    section: 'advanced',
    help: 'failed starts of a worker process in a row before the worker gives up',
  }),
  gpuType: text({
    placeholder: 'ID',
    section: 'advanced',
    help: "GPU type of the worker's GPUs in the platform's catalog, set by a platform that starts the worker; default: none",
  }),
  gpuSampleMs: integer({
    min: 0,
    max: 60_000,
    default: 1_000,
    unit: 'ms',
    section: 'advanced',
    help: 'time between two samples of GPU memory, utilization and power for the usage of each job, at least 100; 0: no samples',
  }),
  cpuAffinity: flag({
    section: 'advanced',
    help: 'pin each worker process to the CPUs next to its GPUs, with taskset',
  }),
  nvidiaSmi: text({
    placeholder: 'PATH',
    section: 'advanced',
    help: 'path of nvidia-smi; default: the one on the PATH',
  }),
  unsupervised: flag({
    section: 'advanced',
    help: 'run jobs in this process, without a supervisor, on the devices that its environment shows; your process manager must restart it',
  }),
});

const stateOptions = defineGroup('Worker ID and state', {
  workerId: text({
    placeholder: 'ID',
    help: 'worker ID; each of several processes adds -0, -1, …; default: that of a free folder in --state-dir, else host name and a random part',
  }),
  stateDir: text({
    placeholder: 'DIR',
    help: 'folder for undelivered outcomes and the worker ID; default: memory only, lost when the process exits',
  }),
  podId: text({
    placeholder: 'ID',
    section: 'advanced',
    help: 'pod that the worker runs in, recorded in the state folder; default: --state-owner',
  }),
  stateOwner: text({
    placeholder: 'ID',
    section: 'advanced',
    help: 'ID of the only pod that uses the state folder; folders of workers that no longer run are removed once their outcomes are delivered; default: keep them',
  }),
});

const limitOptions = defineGroup('Stopping and limits', {
  drainMs: integer({
    min: 0,
    max: MAX_MS,
    default: 30_000,
    unit: 'ms',
    help: 'time for running jobs after SIGTERM before they are stopped',
  }),
  forceMs: integer({
    min: 0,
    max: MAX_MS,
    default: 3_000,
    unit: 'ms',
    help: 'time for stopped jobs after --drain-ms before they are released',
  }),
  graceMs: integer({
    min: 0,
    max: MAX_MS,
    default: 2_000,
    unit: 'ms',
    help: 'time for a stopped handler to return before its thread is terminated',
  }),
  memoryLimit: integer({
    min: 64,
    max: MAX_MB,
    unit: 'MB',
    help: 'resident memory of a worker process: from 80 % of it, a new process replaces the process between jobs; above it, at once, and a single running job fails (several are released); default: no limit',
  }),
  heapLimit: integer({
    min: 16,
    max: MAX_MB,
    unit: 'MB',
    help: "JavaScript heap of each thread; default: Node's limit",
  }),
  breakAfter: integer({
    min: 0,
    max: 1_000,
    default: 3,
    placeholder: 'N',
    help: 'number of different jobs in a row with the same error after which the worker takes one job at a time, with growing waits; four times as many before its first completed job; 0: never',
  }),
  parkMemory: integer({
    min: 0,
    max: 65_536,
    unit: 'GB',
    help: 'host memory that all parked models of this machine may use together, while other models use their GPUs; 0: the worker is never parked; default: half of the memory that was free when the first of the workers of this machine started',
  }),
  gpuLedger: text({
    placeholder: 'FOLDER',
    section: 'advanced',
    help: 'folder of the ledger of GPU memory, the same for all workers of this machine; default: a folder of this user in /dev/shm, or else in the temporary folder',
  }),
  vramGrowthLimit: integer({
    min: 1,
    max: MAX_MB,
    unit: 'MB',
    section: 'advanced',
    help: 'GPU memory that jobs may leak before the process is replaced between jobs; default: leaks are only logged',
  }),
  minMemory: integer({
    min: 0,
    max: MAX_MB,
    unit: 'MB',
    section: 'advanced',
    help: 'memory that must be available at the start; with less the worker exits with code 4',
  }),
  minDisk: integer({
    min: 0,
    max: 100,
    unit: 'percent',
    section: 'advanced',
    help: 'share of the disk that must be free at the start',
  }),
  minCuda: text({
    placeholder: 'VERSION',
    section: 'advanced',
    help: 'lowest CUDA version that the driver must support; nvidia-smi must also show a GPU',
  }),
});

const healthOptions = defineGroup('Health, metrics and log', {
  healthPort: integer({
    min: 0,
    max: 65_535,
    placeholder: 'PORT',
    help: 'serve /healthz, /readyz and /metrics on this port, without a key; 0 picks a free one; default: off',
  }),
  healthHost: text({
    default: '127.0.0.1',
    placeholder: 'HOST',
    help: 'address of the health port; 0.0.0.0 for probes from outside a container',
  }),
  logLevel: logLevelOption('info'),
  runpodJoinText: flag({
    section: 'advanced',
    help: 'on RunPod, join waiting text chunks into one, because each chunk needs a request',
  }),
});

const versionOptions = defineGroup('Versions of handlers', {
  handlerVersion: integer({
    min: 1,
    max: 999_999_999,
    placeholder: 'N',
    help: "run this version of the endpoint's handler instead of <handler>: download it from the platform, unpack it and install its packages, once for all processes with the same cache",
  }),
  versionCache: text({
    placeholder: 'DIR',
    section: 'advanced',
    help: 'folder for versions; the 5 that were used last stay; default: .versions in --state-dir, else a temporary folder',
  }),
  installScripts: flag({
    section: 'advanced',
    help: "let packages of a version run their install scripts; default: npm's --ignore-scripts",
  }),
  installTimeout: integer({
    min: 1,
    max: 3_600,
    default: 600,
    unit: 's',
    section: 'advanced',
    help: 'time in which npm must install the packages of a version',
  }),
  installLimit: integer({
    min: 1,
    max: MAX_MB,
    default: 4_096,
    unit: 'MB',
    section: 'advanced',
    help: 'size of a version with its packages',
  }),
});

export const workerFlags = {
  ...platformOptions,
  ...processOptions,
  ...stateOptions,
  ...limitOptions,
  ...healthOptions,
  ...versionOptions,
  incarnation: integer({
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    section: 'internal',
    help: 'number of this start; must be larger than that of every earlier process with this worker ID; default: Unix time, ms',
  }),
  underDev: flag({
    section: 'internal',
    help: 'set by `millrace dev`: like --unsupervised; the worker exits when its parent exits',
  }),
};

export type WorkerFlags = OptionValues<typeof workerFlags>;

/** RunPod sets these values in the environment, so the flags are optional. A worker uses all GPUs. */
const runpodFlags = {
  ...workerFlags,
  url: makeOptional(workerFlags.url, ''),
  endpoint: makeOptional(workerFlags.endpoint, ''),
  key: makeOptional(workerFlags.key, ''),
  gpusPerWorker: makeOptional(workerFlags.gpusPerWorker, 'all'),
};

function makeOptional<T>(option: Option<T>, fallback: T): Option<T> {
  return { ...option, required: false, fallback };
}

/** With --url the worker does not use RunPod, even on RunPod. @throws UsageError */
export function parseWorkerFlags(args: readonly string[]): ParsedArguments<typeof workerFlags> {
  if (!isOnRunPod()) return parseOptions(workerFlags, args);
  const logLevel = { ...workerFlags.logLevel, fallback: readRunPodLogLevel() };
  const { positionals, values } = parseOptions({ ...runpodFlags, logLevel }, args);
  if (values.url !== '') return parseOptions(workerFlags, args);
  const endpoint = values.endpoint || readRunPodEndpoint();
  const workerId = values.workerId ?? readPodId();
  return { positionals, values: { ...values, endpoint, workerId } };
}

/** Devices of a worker process, as its supervisor gives them: JSON, in its environment. */
export const DEVICE_SET_VARIABLE = 'MILLRACE_DEVICE_SET';
/** Breaker state of the previous process: JSON, from the supervisor. */
export const BREAKER_VARIABLE = 'MILLRACE_BREAKER_STATE';
/** Set by the platform for a worker that is parked as soon as its setup is done. */
export const SPARE_VARIABLE = 'MILLRACE_SPARE';
