// `--gpu-sample-ms` of `millrace worker`: decides whether GPUs are sampled for the usage of jobs.

import type { Log } from '../../base/log.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import type { Detection } from '../../worker/gpu/detect.ts';
import { type FedWorker, GpuUsageFeed } from '../../worker/gpu/gpu-usage-feed.ts';
import { findProgram } from '../../worker/gpu/program.ts';
import type { Worker } from '../../worker/worker.ts';
import { readVariable } from '../config.ts';
import { UsageError } from '../options.ts';

/** Below this, the driver returns the same figures again. */
const MIN_SAMPLE_MS = 100;

interface SamplingValues {
  gpuSampleMs: number;
  nvidiaSmi: string | undefined;
}

interface Sampled {
  detection: Detection;
  workers: readonly FedWorker[];
  values: SamplingValues;
  log: Log;
}

/** @throws UsageError */
export function checkGpuSampling({ gpuSampleMs }: SamplingValues): void {
  if (gpuSampleMs > 0 && gpuSampleMs < MIN_SAMPLE_MS) {
    throw new UsageError(
      `--gpu-sample-ms: must be 0 or at least ${MIN_SAMPLE_MS}, got ${gpuSampleMs}`,
    );
  }
}

interface SingleFeed {
  devices: readonly Device[];
  worker: Worker;
  values: SamplingValues;
  log: Log;
}

/** For a worker process without a supervisor. Undefined as for `createGpuFeed`. */
export async function createSingleGpuFeed({ devices, log, values, worker }: SingleFeed) {
  const { gpuSampleMs: everyMs, nvidiaSmi = 'nvidia-smi' } = values;
  const uuids = devices.map(({ uuid }) => uuid);
  if (everyMs === 0 || !uuids.some((uuid) => /^(?:GPU|MIG)-/.test(uuid))) return undefined;
  const command = await findProgram(nvidiaSmi, readVariable('PATH') ?? '');
  if (command === undefined) return undefined;
  const noteGpuFigures = worker.noteGpuFigures.bind(worker);
  const workers = [{ uuids, pid: process.pid, noteGpuFigures }];
  return new GpuUsageFeed({ command, workers, everyMs, log });
}

/** Undefined if the workers have no NVIDIA GPU, or sampling is off. */
export function createGpuFeed({ detection, log, values, workers }: Sampled) {
  const { devices, nvidia } = detection;
  const { gpuSampleMs: everyMs } = values;
  const readable = new Set(
    devices.filter(({ vendor }) => vendor === 'nvidia').map(({ device }) => device.uuid),
  );
  const fed = workers.filter(({ uuids }) => uuids.some((uuid) => readable.has(uuid)));
  if (nvidia.kind !== 'working' || everyMs === 0 || fed.length === 0) return undefined;
  return new GpuUsageFeed({ command: nvidia.command, workers: fed, everyMs, log });
}
