// The options of `millrace worker`, which its supervisor and the worker processes share.
import { type ParsedArguments, parseOptions } from '../option-parser.ts';
import {
  choice,
  flag,
  integer,
  keyOption,
  type Option,
  type OptionValues,
  requiredText,
  text,
} from '../options.ts';
import { logLevelOption } from '../terminal-log.ts';
import { healthOptions } from './health-port.ts';
import { isOnRunPod, readPodId, readRunPodEndpoint, readRunPodLogLevel } from './runpod.ts';

export const DEVICES_HELP =
  'devices to use, separated by commas: an index by PCI bus ID (0), a UUID (GPU-…), a MIG instance (0:1 is ' +
  'instance 1 of GPU 0), another maker (amd:0), or cpu for no GPU; default: all GPUs';
const MAX_MS = 604_800_000;
/** 1 TiB. */
const MAX_MB = 1_048_576;

export const workerFlags = {
  url: requiredText({
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'URL of the platform: http or https, or grpc or grpcs for its gRPC port',
  }),
  link: choice({
    choices: ['http', 'grpc'],
    env: 'MILLRACE_LINK',
    help: 'transport of the worker protocol; default: by the scheme of --url',
  }),
  endpoint: requiredText({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINT',
    help: 'ID or name of the endpoint whose jobs the worker takes; give the ID if the name may change',
  }),
  key: keyOption(
    requiredText({
      placeholder: 'KEY',
      env: 'MILLRACE_KEY',
      help: 'worker key; prefer the variable, because other users can see arguments',
    }),
  ),
  threads: integer({
    min: 1,
    max: 1_024,
    default: 1,
    env: 'MILLRACE_THREADS',
    help: 'threads of each worker process; each loads the handler',
  }),
  jobsPerThread: integer({
    min: 1,
    max: 1_000,
    env: 'MILLRACE_JOBS_PER_THREAD',
    help: "concurrent jobs of one thread; default: the handler's config.concurrency, else 1",
  }),
  gpusPerWorker: text({
    default: '1',
    placeholder: 'N|all',
    env: 'MILLRACE_GPUS_PER_WORKER',
    help: 'number of GPUs of each worker process; one process runs for each device set of this size',
  }),
  devices: text({
    placeholder: 'LIST',
    env: 'MILLRACE_DEVICES',
    help: DEVICES_HELP,
  }),
  workerId: text({
    placeholder: 'ID',
    env: 'MILLRACE_WORKER_ID',
    help: 'worker ID; each of several processes adds -0, -1, …; default: that of a free folder in --state-dir, else host name and a random part',
  }),
  stateDir: text({
    placeholder: 'DIR',
    env: 'MILLRACE_STATE_DIR',
    help: 'folder for undelivered outcomes and the worker ID; default: memory only, lost when the process exits',
  }),
  drainMs: integer({
    min: 0,
    max: MAX_MS,
    default: 30_000,
    placeholder: 'MS',
    env: 'MILLRACE_DRAIN_MS',
    help: 'time for running jobs after SIGTERM before they are stopped, ms',
  }),
  forceMs: integer({
    min: 0,
    max: MAX_MS,
    default: 3_000,
    placeholder: 'MS',
    env: 'MILLRACE_FORCE_MS',
    help: 'time for stopped jobs after --drain-ms before they are released, ms',
  }),
  graceMs: integer({
    min: 0,
    max: MAX_MS,
    default: 2_000,
    placeholder: 'MS',
    env: 'MILLRACE_GRACE_MS',
    help: 'time for a stopped handler to return before its thread is terminated, ms',
  }),
  memoryLimit: integer({
    min: 64,
    max: MAX_MB,
    placeholder: 'MB',
    env: 'MILLRACE_MEMORY_LIMIT',
    help: 'resident memory of a worker process: from 80 % of it, a new process replaces the process between jobs; above it, at once, and a single running job fails (several are released); default: no limit',
  }),
  heapLimit: integer({
    min: 16,
    max: MAX_MB,
    placeholder: 'MB',
    env: 'MILLRACE_HEAP_LIMIT',
    help: "JavaScript heap of each thread; default: Node's limit",
  }),
  breakAfter: integer({
    min: 0,
    max: 1_000,
    default: 3,
    placeholder: 'N',
    env: 'MILLRACE_BREAK_AFTER',
    help: 'number of different jobs in a row with the same error after which the worker takes one job at a time, with growing waits; four times as many before its first completed job; 0: never',
  }),
  ...healthOptions,
  logLevel: logLevelOption('info'),
  handlerVersion: integer({
    min: 1,
    max: 999_999_999,
    placeholder: 'N',
    env: 'MILLRACE_HANDLER_VERSION',
    help: "run this version of the endpoint's handler instead of <handler>: download it from the platform, unpack it and install its packages, once for all processes with the same cache",
  }),
  httpUrl: text({
    placeholder: 'URL',
    section: 'advanced',
    env: 'MILLRACE_HTTP_URL',
    help: 'URL of the platform for HTTP, from which a worker over gRPC downloads its --handler-version; default: --url',
  }),
  versionCache: text({
    placeholder: 'DIR',
    section: 'advanced',
    env: 'MILLRACE_VERSION_CACHE',
    help: 'folder for versions; the 5 that were used last stay; default: .versions in --state-dir, else a temporary folder',
  }),
  installScripts: flag({
    section: 'advanced',
    env: 'MILLRACE_INSTALL_SCRIPTS',
    help: "let packages of a version run their install scripts; default: npm's --ignore-scripts",
  }),
  installTimeout: integer({
    min: 1,
    max: 3_600,
    default: 600,
    placeholder: 'SECONDS',
    section: 'advanced',
    env: 'MILLRACE_INSTALL_TIMEOUT',
    help: 'time in which npm must install the packages of a version, seconds',
  }),
  installLimit: integer({
    min: 1,
    max: MAX_MB,
    default: 4_096,
    placeholder: 'MB',
    section: 'advanced',
    env: 'MILLRACE_INSTALL_LIMIT',
    help: 'size of a version with its packages, MB',
  }),
  ca: text({
    placeholder: 'FILE',
    section: 'advanced',
    env: 'MILLRACE_CA',
    help: "PEM file of certificate authorities for https and grpcs; default: the system's; files of certificates are read again when they change",
  }),
  clientCert: text({
    placeholder: 'FILE',
    section: 'advanced',
    env: 'MILLRACE_CLIENT_CERT',
    help: 'PEM file of the client certificate, for platforms that require one',
  }),
  clientKey: text({
    placeholder: 'FILE',
    section: 'advanced',
    env: 'MILLRACE_CLIENT_KEY',
    help: 'PEM file of the private key of --client-cert',
  }),
  authTimeout: integer({
    min: 0,
    max: MAX_MS / 1_000,
    default: 600,
    placeholder: 'S',
    section: 'advanced',
    env: 'MILLRACE_AUTH_TIMEOUT',
    help: 'time after which the worker exits with code 6 if the platform refuses its key, or has no such endpoint, all that time, s; the log repeats the reason each minute; 0: try again without end',
  }),
  podId: text({
    placeholder: 'ID',
    section: 'advanced',
    env: 'MILLRACE_POD_ID',
    help: 'pod that the worker runs in, recorded in the state folder; default: --state-owner',
  }),
  gpuType: text({
    placeholder: 'ID',
    section: 'advanced',
    env: 'MILLRACE_GPU_TYPE',
    help: "GPU type of the worker's GPUs in the platform's catalog, set by a platform that starts the worker; default: none",
  }),
  stateOwner: text({
    placeholder: 'ID',
    section: 'advanced',
    env: 'MILLRACE_STATE_OWNER',
    help: 'ID of the only pod that uses the state folder; folders of workers that no longer run are removed once their outcomes are delivered; default: keep them',
  }),
  startAttempts: integer({
    min: 1,
    max: 1_000,
    default: 5,
    section: 'advanced',
    env: 'MILLRACE_START_ATTEMPTS',
    help: 'failed starts of a worker process in a row before the worker gives up',
  }),
  vramGrowthLimit: integer({
    min: 1,
    max: MAX_MB,
    placeholder: 'MB',
    section: 'advanced',
    env: 'MILLRACE_VRAM_GROWTH_LIMIT',
    help: 'GPU memory that jobs may leak before the process is replaced between jobs; default: leaks are only logged',
  }),
  gpuSampleMs: integer({
    min: 0,
    max: 60_000,
    default: 1_000,
    placeholder: 'MS',
    section: 'advanced',
    env: 'MILLRACE_GPU_SAMPLE_MS',
    help: 'time between two samples of GPU memory, utilization and power for the usage of each job, ms, at least 100; 0: no samples',
  }),
  cpuAffinity: flag({
    section: 'advanced',
    env: 'MILLRACE_CPU_AFFINITY',
    help: 'pin each worker process to the CPUs next to its GPUs, with taskset',
  }),
  nvidiaSmi: text({
    placeholder: 'PATH',
    section: 'advanced',
    env: 'MILLRACE_NVIDIA_SMI',
    help: 'path of nvidia-smi; default: the one on the PATH',
  }),
  minMemory: integer({
    min: 0,
    max: MAX_MB,
    placeholder: 'MB',
    section: 'advanced',
    env: 'MILLRACE_MIN_MEMORY',
    help: 'memory that must be available at the start; with less the worker exits with code 4',
  }),
  minDisk: integer({
    min: 0,
    max: 100,
    placeholder: 'PERCENT',
    section: 'advanced',
    env: 'MILLRACE_MIN_DISK',
    help: 'share of the disk that must be free at the start',
  }),
  minCuda: text({
    placeholder: 'VERSION',
    section: 'advanced',
    env: 'MILLRACE_MIN_CUDA',
    help: 'lowest CUDA version that the driver must support; nvidia-smi must also show a GPU',
  }),
  runpodJoinText: flag({
    section: 'advanced',
    env: 'MILLRACE_RUNPOD_JOIN_TEXT',
    help: 'on RunPod, join waiting text chunks into one, because each chunk needs a request',
  }),
  unsupervised: flag({
    section: 'advanced',
    help: 'run jobs in this process, without a supervisor, on the devices that its environment shows; your process manager must restart it',
  }),
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
