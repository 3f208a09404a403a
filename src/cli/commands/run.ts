// `millrace run`: runs one job with a handler in a thread, without a platform.
import { existsSync, readFileSync } from 'node:fs';
import { text as readText } from 'node:stream/consumers';
import { LIMITS } from '../../wire/job.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';
import { type ExecutionEnd, HandlerNotLoadedError } from '../../worker/execution/executor.ts';
import { ThreadExecutor } from '../../worker/execution/thread-executor.ts';
import { type Command, CommandError, EXIT } from '../command.ts';
import { withholdKeys } from '../config.ts';
import { findHandlerFile } from '../dev/handler-files.ts';
import { parseOptions } from '../option-parser.ts';
import { flag, integer, text, UsageError } from '../options.ts';
import { forceOnSecond, listenForStop } from '../stop-signals.ts';
import { createTerminalLog } from '../terminal-log.ts';
import { findUsableDevices } from '../worker/worker-devices.ts';
import { RunOutput } from './run-output.ts';

const options = {
  input: text({ placeholder: 'JSON', help: 'input of the job, a JSON object; default: {}' }),
  inputFile: text({ placeholder: 'FILE', help: 'file that contains the input' }),
  testInput: text({
    placeholder: 'JSON',
    help: 'a whole job, {"input":…}; also spelled --test_input; default, if no input is given: ./test_input.json if it exists',
  }),
  timeout: integer({
    min: 1,
    max: LIMITS.executionTimeoutMs.max,
    placeholder: 'MS',
    help: "time limit of the run, ms; default: the handler's config.timeoutMs, else 600000",
  }),
  json: flag({ help: 'print events as lines of JSON, see above' }),
};

export const runCommand: Command = {
  name: 'millrace run',
  description: [
    'Loads the handler, runs one attempt of one job and prints its output. A streaming handler prints each ' +
      'chunk as one line of JSON as soon as the handler yields it. Progress and the log go to standard error.',
    'With --json each line of standard output is an event: {"type":"chunk","output":…,"metrics":…}, ' +
      '{"type":"progress","value":…}, {"type":"log","entry":…}, and finally ' +
      '{"type":"result","status":"COMPLETED","output":…,"executionTime":12} or ' +
      '{"type":"result","status":"FAILED","error":…,"executionTime":12}. The result of a stream has an ' +
      'output only if the generator returned a value.',
  ],
  positionals: [
    { name: '<handler>', help: 'handler module, .ts or .js' },
    { name: '[-]', help: 'read the input from standard input' },
  ],
  options,
  examples: [
    `millrace run handlers/echo.ts --input '{"hello":"world"}'`,
    'millrace run handlers/image.ts --input-file request.json --timeout 30000',
    `millrace run handler.ts --test_input '{"input":{"prompt":"Hi"}}'`,
    'generate-input | millrace run handler.ts - --json | jq .output',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'the job is COMPLETED' },
    { code: EXIT.failed, meaning: 'the job is FAILED, or the handler cannot be loaded' },
    { code: EXIT.usage, meaning: 'wrong usage' },
    { code: EXIT.timedOut, meaning: 'the job is TIMED_OUT' },
    { code: EXIT.interrupted, meaning: 'interrupted by a signal; the job was cancelled' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  withholdKeys();
  const { values, positionals } = parseOptions(options, args.map(respell));
  const [handler, dash, ...rest] = positionals;
  const fromStdin = dash === '-';
  const handlerPath = findHandlerFile(
    [handler, fromStdin ? undefined : dash, ...rest].filter(isText),
  );
  const job = await readJob({ ...values, fromStdin });
  const signals = listenForStop();
  const output = new RunOutput({ format: values.json ? 'events' : 'lines' });
  const devices = await findUsableDevices(createTerminalLog('warn'));
  const logDestination = { write: (lines: Uint8Array) => output.log(lines) };
  const executor = new ThreadExecutor({ handlerPath, devices, logDestination });
  forceOnSecond(signals);
  try {
    const loading = executor.start();
    const interrupted = signals.first.then(() => 'interrupted' as const);
    const config = await Promise.race([loading, interrupted]);
    if (config === 'interrupted') {
      loading.catch(() => {});
      return EXIT.interrupted;
    }
    const timeoutMs = values.timeout ?? config.timeoutMs ?? LIMITS.executionTimeoutMs.default;
    const execution = executor.execute(makeLease(job, timeoutMs), timeoutMs, output.sink);
    output.onDelivered((bytes) => execution.grant(bytes));
    output.onBroken(() => execution.stop('cancelled'));
    void signals.first.then(() => execution.stop('cancelled'));
    const end = await execution.end;
    await output.finish(end);
    return findExitCode(end);
  } catch (error) {
    if (error instanceof HandlerNotLoadedError) throw new CommandError(error.message);
    throw error;
  } finally {
    await executor.stop();
    signals.release();
  }
}

function isText(value: string | undefined): value is string {
  return value !== undefined;
}

/** Accepts `--test_input`, the spelling of RunPod's SDK. */
function respell(arg: string): string {
  return arg.replace(/^--test_input(?==|$)/, '--test-input');
}

function makeLease({ id, input }: AskedJob, executionTimeoutMs: number): Lease {
  const token = 'run';
  const submittedAt = Date.now();
  return {
    jobId: id ?? `run-${submittedAt}`,
    attempt: 1,
    token,
    executionTimeoutMs,
    solo: false,
    submittedAt,
    input,
  };
}

interface InputSource {
  input: string | undefined;
  inputFile: string | undefined;
  testInput: string | undefined;
  fromStdin: boolean;
}

interface AskedJob {
  id?: string | undefined;
  input: Uint8Array;
}

/** Read from the current folder if no input is given. */
const TEST_INPUT_FILE = 'test_input.json';

async function readJob(source: InputSource): Promise<AskedJob> {
  const { fromStdin, input, inputFile, testInput } = source;
  const given = [input, inputFile, testInput, fromStdin || undefined].filter(
    (value) => value !== undefined,
  );
  if (given.length > 1) {
    throw new UsageError('--input, --input-file, --test-input and - exclude each other; give one');
  }
  if (testInput !== undefined) return readTestJob('--test-input', testInput);
  if (input !== undefined) return { input: checkInput('--input', input) };
  if (inputFile !== undefined) {
    return { input: checkInput('--input-file', readFile('--input-file', inputFile)) };
  }
  if (fromStdin) return { input: checkInput('-', await readText(process.stdin)) };
  if (!existsSync(TEST_INPUT_FILE)) return { input: Buffer.from('{}') };
  return readTestJob(TEST_INPUT_FILE, readFile(TEST_INPUT_FILE, TEST_INPUT_FILE));
}

/** Reads a job in the form that clients send, and gives it an ID. */
function readTestJob(source: string, json: string): AskedJob {
  const { id, input } = Object.fromEntries(Object.entries(parseObject(source, json)));
  if (input === undefined) throw new UsageError(`${source} must have an "input"`);
  const jobId = typeof id === 'string' && id !== '' ? id : undefined;
  return { id: jobId, input: checkInput(`${source}: input`, JSON.stringify(input)) };
}

function readFile(source: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${source}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Checks the input as the platform does: it must be an object. */
function checkInput(source: string, json: string): Uint8Array {
  parseObject(source, json);
  return Buffer.from(json);
}

function parseObject(source: string, json: string): object {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new UsageError(`${source} is not JSON: ${error instanceof Error ? error.message : ''}`);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new UsageError(`${source} must be a JSON object`);
}

const EXIT_CODES: Readonly<Record<Outcome['kind'], number>> = {
  completed: EXIT.ok,
  failed: EXIT.failed,
  timed_out: EXIT.timedOut,
  cancelled: EXIT.interrupted,
  released: EXIT.failed,
};

function findExitCode({ outcome }: ExecutionEnd): number {
  return EXIT_CODES[outcome.kind];
}
