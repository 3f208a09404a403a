// Reports its devices as handlers, native code and child processes see them, and occupies its
// worker until the test releases it.
import { execFileSync } from 'node:child_process';
import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Context, Job } from 'millrace';

export interface PinnedView {
  pid: number;
  /** Of ctx. */
  devices: unknown;
  /** CUDA_VISIBLE_DEVICES as C code in the process reads it. */
  native: string | undefined;
  /** A variable that exists only in the thread's copy of the environment, as C code reads it: empty. */
  nativeOfThread: string | null;
  /** CUDA_VISIBLE_DEVICES in the environment of a child process of the thread. */
  child: string;
  /** The same variable of the parent, read by that child in /proc. */
  parentOfChild: string;
}

const NAME = 'CUDA_VISIBLE_DEVICES';
const PROBE = 'MILLRACE_THREAD_PROBE';
const POLL_MS = 10;

/** `folder` has a file for each started job; the file `go` lets the jobs end. */
export default async function look(
  job: Job<{ folder: string }>,
  ctx: Context,
): Promise<PinnedView> {
  const { folder } = job.input;
  process.env[PROBE] = 'seen';
  const view: PinnedView = {
    pid: process.pid,
    devices: ctx.devices,
    native: readNative(NAME),
    nativeOfThread: readNative(PROBE) ?? null,
    child: runShell(`printf %s "$${NAME}"`),
    parentOfChild: runShell(`tr '\\0' '\\n' </proc/$PPID/environ | sed -n 's/^${NAME}=//p'`).trim(),
  };
  const file = join(folder, `${job.id}-${ctx.attempt}`);
  writeFileSync(`${file}.part`, JSON.stringify(view));
  renameSync(`${file}.part`, `${file}.json`);
  while (!existsSync(join(folder, 'go')) && !ctx.signal.aborted) await delay(POLL_MS);
  ctx.signal.throwIfAborted();
  return view;
}

/** Node's report reads the environment of the process, not the thread's copy. */
function readNative(name: string): string | undefined {
  // Without this, the report looks up the names of the process's peers.
  Reflect.set(process.report, 'excludeNetwork', true);
  const report: { environmentVariables?: Record<string, string> } = process.report.getReport();
  return report.environmentVariables?.[name];
}

function runShell(script: string): string {
  return execFileSync('sh', ['-c', script], { encoding: 'utf8' });
}
