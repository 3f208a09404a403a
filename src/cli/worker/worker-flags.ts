// The options of `millrace worker`, which its supervisor and the worker processes share.

import {
  choice,
  flag,
  integer,
  type Option,
  type OptionValues,
  type ParsedArguments,
  parseOptions,
  requiredText,
  text,
} from '../options.ts';
import { logLevelOption } from '../terminal-log.ts';
import { healthOptions } from './health-port.ts';
import { isOnRunPod, readPodId, readRunPodEndpoint, readRunPodLogLevel } from './runpod.ts';

const MAX_MS = 604_800_000;
/** 1 TiB. */
const MAX_MB = 1_048_576;

export const workerFlags = {
  url: requiredText({
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'of the platform: http or https, or grpc or grpcs for its gRPC port',
  }),
  link: choice({
    choices: ['http', 'grpc'],
    env: 'MILLRACE_LINK',
    help: "carrier, http or grpc; without it by the URL's scheme",
  }),
  endpoint: requiredText({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINT',
    help: 'endpoint whose jobs it takes',
  }),
  key: requiredText({
    placeholder: 'KEY',
    env: 'MILLRACE_KEY',
    help: 'worker key; better given by the variable, which other users cannot see',
  }),
  threads: integer({
    min: 1,
    max: 1_024,
    default: 1,
    env: 'MILLRACE_THREADS',
    help: 'threads of each worker process, each with the handler loaded on its own',
  }),
  jobsPerThread: integer({
    min: 1,
    max: 1_000,
    env: 'MILLRACE_JOBS_PER_THREAD',
    help: "jobs at a time in one thread; without it the handler's config.concurrency, else 1",
  }),
  gpusPerWorker: text({
    default: '1',
    placeholder: 'N|all',
    env: 'MILLRACE_GPUS_PER_WORKER',
    help: 'GPUs of each worker process; there are as many processes as sets of GPUs',
  }),
  devices: text({
    placeholder: 'LIST',
    env: 'MILLRACE_DEVICES',
    help: 'only these: indices by PCI bus id, UUIDs, 0:1 for a MIG instance, amd:0, or cpu',
  }),
  workerId: text({
    placeholder: 'ID',
    env: 'MILLRACE_WORKER_ID',
    help: 'stable over restarts, with -0, -1, … where there are several processes; without it the host name and a random part',
  }),
  stateDir: text({
    placeholder: 'DIR',
    env: 'MILLRACE_STATE_DIR',
    help: 'keeps outcomes that are not delivered yet, and the worker id, for the next process; without it they end with this one',
  }),
  drainMs: integer({
    min: 0,
    max: MAX_MS,
    default: 30_000,
    placeholder: 'MS',
    env: 'MILLRACE_DRAIN_MS',
    help: 'on SIGTERM, how long running jobs may go on before they are stopped, ms',
  }),
  forceMs: integer({
    min: 0,
    max: MAX_MS,
    default: 3_000,
    placeholder: 'MS',
    env: 'MILLRACE_FORCE_MS',
    help: 'after that, how long stopped jobs may take to end before they are given back, ms',
  }),
  graceMs: integer({
    min: 0,
    max: MAX_MS,
    default: 2_000,
    placeholder: 'MS',
    env: 'MILLRACE_GRACE_MS',
    help: 'how long a stopped handler may take to end before its thread is killed, ms',
  }),
  memoryLimit: integer({
    min: 64,
    max: MAX_MB,
    placeholder: 'MB',
    env: 'MILLRACE_MEMORY_LIMIT',
    help: 'resident memory of a worker process: past it the job that runs fails, from 80 % on the process is replaced between jobs; without it no limit',
  }),
  heapLimit: integer({
    min: 16,
    max: MAX_MB,
    placeholder: 'MB',
    env: 'MILLRACE_HEAP_LIMIT',
    help: "JavaScript heap of each thread; without it Node's own limit",
  }),
  ...healthOptions,
  logLevel: logLevelOption('info'),
  ca: text({
    placeholder: 'FILE',
    section: 'advanced',
    env: 'MILLRACE_CA',
    help: "PEM of the authorities to trust for https and grpcs, instead of the system's",
  }),
  clientCert: text({
    placeholder: 'FILE',
    section: 'advanced',
    env: 'MILLRACE_CLIENT_CERT',
    help: 'PEM of the certificate to show, where the platform asks for one',
  }),
  clientKey: text({
    placeholder: 'FILE',
    section: 'advanced',
    env: 'MILLRACE_CLIENT_KEY',
    help: 'PEM of its key, beside --client-cert',
  }),
  startAttempts: integer({
    min: 1,
    max: 1_000,
    default: 5,
    section: 'advanced',
    env: 'MILLRACE_START_ATTEMPTS',
    help: 'times in a row that a worker process may end before it takes jobs, until that is given up',
  }),
  vramGrowthLimit: integer({
    min: 1,
    max: MAX_MB,
    placeholder: 'MB',
    section: 'advanced',
    env: 'MILLRACE_VRAM_GROWTH_LIMIT',
    help: 'GPU memory that jobs may leave behind before the process is replaced between jobs; without it that is only logged',
  }),
  cpuAffinity: flag({
    section: 'advanced',
    env: 'MILLRACE_CPU_AFFINITY',
    help: 'runs each worker process on the processors next to its GPUs, by taskset',
  }),
  nvidiaSmi: text({
    placeholder: 'PATH',
    section: 'advanced',
    env: 'MILLRACE_NVIDIA_SMI',
    help: 'nvidia-smi, if it is not the one on the PATH',
  }),
  minMemory: integer({
    min: 0,
    max: MAX_MB,
    placeholder: 'MB',
    section: 'advanced',
    env: 'MILLRACE_MIN_MEMORY',
    help: 'memory that has to be available at the start; with less the worker is unfit and ends',
  }),
  minDisk: integer({
    min: 0,
    max: 100,
    placeholder: 'PERCENT',
    section: 'advanced',
    env: 'MILLRACE_MIN_DISK',
    help: 'of the disk that has to be free at the start',
  }),
  minCuda: text({
    placeholder: 'VERSION',
    section: 'advanced',
    env: 'MILLRACE_MIN_CUDA',
    help: 'least CUDA version of the driver, where there is one; nvidia-smi has to show GPUs then',
  }),
  runpodJoinText: flag({
    section: 'advanced',
    env: 'MILLRACE_RUNPOD_JOIN_TEXT',
    help: 'on RunPod, whose protocol wants a request for each chunk: texts that wait go out as one',
  }),
  unsupervised: flag({
    section: 'advanced',
    help: 'one process that runs the jobs itself, on the devices that its environment shows; whoever starts it restarts it',
  }),
  incarnation: integer({
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    section: 'advanced',
    help: 'larger than that of any process that ran under this worker id; default the time, Unix ms',
  }),
  underDev: flag({
    section: 'advanced',
    help: 'started by `millrace dev`: as --unsupervised, and leaves when it is gone',
  }),
};

export type WorkerFlags = OptionValues<typeof workerFlags>;

/** What RunPod tells in the environment has not to be given; a worker there has all GPUs. */
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

/** An address that is given counts more than RunPod's. @throws UsageError */
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
