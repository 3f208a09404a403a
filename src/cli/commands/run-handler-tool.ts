// The tool `run_handler` of `millrace mcp --write`: runs a handler file of this folder once, in a process with a time limit.
import { execFile } from 'node:child_process';
import { realpathSync } from 'node:fs';
import { isAbsolute, relative } from 'node:path';
import { z } from 'zod';
import { ANSWER_BYTES, refuse, type Tool, type ToolAnswer } from '../../api/mcp/tools.ts';
import { launcherPath } from '../../base/package-info.ts';

/** For the start of the process and the load of the handler, beside the time limit of the job, ms. */
const LOAD_MS = 60_000;

const schema = z.strictObject({
  handler: z
    .string()
    .min(1)
    .max(1_000)
    .describe('Handler module, .ts or .js, in the folder of `millrace mcp` or below it'),
  input: z.record(z.string(), z.unknown()).default({}).describe('Input of the job'),
  timeoutMs: z.int().min(1).max(600_000).default(60_000).describe('Time limit of the job, ms'),
});

/** Aborting ends the processes that still run. */
export function createRunHandlerTool(folder: string, signal: AbortSignal): Tool {
  return {
    name: 'run_handler',
    description:
      'Run one job with a handler file on this machine, without a platform, as `millrace run --json` does: each line is an event, ' +
      'the last one the result. The code of the handler runs with the rights of this process.',
    schema,
    isReading: false,
    annotations: { destructiveHint: true, idempotentHint: false },
    async run(given) {
      const { handler, input, timeoutMs } = schema.parse(given);
      const file = findWithin(folder, handler);
      if (file === undefined) return refuse(`handler: ${handler} is no file in ${folder}`);
      const args = ['run', file, '-', '--json', '--timeout', String(timeoutMs)];
      return runOnce({ args, folder, input, limitMs: timeoutMs + LOAD_MS, signal });
    },
  };
}

/** Symbolic links are followed: none leads out of the folder. */
function findWithin(folder: string, path: string): string | undefined {
  try {
    const file = realpathSync(isAbsolute(path) ? path : `${folder}/${path}`);
    const within = relative(realpathSync(folder), file);
    return within.startsWith('..') || isAbsolute(within) ? undefined : file;
  } catch {
    return undefined;
  }
}

interface HandlerRun {
  args: readonly string[];
  folder: string;
  input: object;
  limitMs: number;
  signal: AbortSignal;
}

function runOnce({ args, folder, input, limitMs, signal }: HandlerRun): Promise<ToolAnswer> {
  const limits = {
    timeout: limitMs,
    maxBuffer: ANSWER_BYTES,
    killSignal: 'SIGKILL',
    signal,
  } as const;
  return new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      [launcherPath, ...args],
      { cwd: folder, ...limits },
      (error, stdout, stderr) => {
        const isCut = error?.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER';
        // A job that failed has a result; a handler that cannot be loaded has only a message.
        if (error && stdout === '') return resolve(refuse(stderr.trim() || error.message));
        resolve({ status: 200, text: stdout, isCut });
      },
    );
    // The process may end before it has read the input.
    child.stdin?.on('error', () => {});
    child.stdin?.end(JSON.stringify(input));
  });
}
