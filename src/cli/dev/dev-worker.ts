// Starts a worker process for an endpoint of `millrace dev`.

import { launcherPath } from '../../base/package-info.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { WorkerProcess } from '../../worker/supervisor/worker-process.ts';
import { inheritWithoutKeys } from '../config.ts';
import { readLogEntry, showLogLines } from '../terminal-log.ts';
import { DEVICE_SET_VARIABLE } from '../worker/worker-flags.ts';

interface DevWorkerOptions {
  file: string;
  endpointId: string;
  url: string;
  /** Worker key. */
  key: string;
  workerId: string;
  logLevel: string;
  /** The workers of `dev` are not pinned; each sees all devices. */
  devices: readonly Device[];
}

export function startDevWorker(options: DevWorkerOptions): WorkerProcess {
  const { devices, endpointId, file, key, logLevel, url, workerId } = options;
  const named = [`--worker-id=${workerId}`, `--endpoint=${endpointId}`, `--url=${url}`];
  const args = ['worker', file, '--under-dev', '--link=http', ...named, `--log-level=${logLevel}`];
  return new WorkerProcess({
    command: [process.execPath, launcherPath, ...args],
    environment: inheritWithoutKeys({ [DEVICE_SET_VARIABLE]: JSON.stringify(devices) }),
    input: JSON.stringify({ MILLRACE_KEY: key }),
    onLine: (line) => showWorkerLine(endpointId, line),
  });
}

/** Logs a line that a library or a child process of the handler wrote. */
function showWorkerLine(endpoint: string, line: string): void {
  const entry: Record<string, unknown> = readLogEntry(line) ?? {
    level: 30,
    time: Date.now(),
    msg: line,
  };
  // The endpoint prints the reason, with what follows from it.
  if (entry['msg'] === 'worker failed' && 'reason' in entry) return;
  showLogLines(`${JSON.stringify({ ...entry, endpoint })}\n`);
}
