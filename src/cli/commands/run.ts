// `millrace run`: runs one job with a handler in a thread, without a platform.
import { existsSync } from 'node:fs';
import { text as readText } from 'node:stream/consumers';
import { systemClock } from '../../base/clock.ts';
import { LIMITS } from '../../wire/job/job.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';
import { type ExecutionEnd, HandlerNotLoadedError } from '../../worker/execution/executor.ts';
import { LoneJob } from '../../worker/execution/lone-job.ts';
import { ThreadExecutor } from '../../worker/execution/thread-executor.ts';
import { CommandError, defineCommand, EXIT } from '../command.ts';
import { withholdKeys } from '../config.ts';
import { findHandlerFile } from '../dev/handler-files.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { flag, integer, type OptionValues, readNamedFile, text, UsageError } from '../options.ts';
import { forceOnSecond, listenForStop } from '../stop-signals.ts';
import { createTerminalLog } from '../terminal-log.ts';
import { findUsableDevices } from '../worker/worker-machine.ts';
import { type RunFormat, RunOutput } from './run-output.ts';

const options = {
  input: text({
    placeholder: 'JSON',
    help: 'input of the job, a JSON object; for a batch handler also an array of inputs; "-": read it from standard input; default: {}',
  }),
  inputFile: text({
    placeholder: 'FILE',
    help: 'file that contains the input; "-": standard input',
  }),
  testInput: text({
    alias: '--test_input',
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

export const runCommand = defineCommand({
  name: 'millrace run',
  description: [
    'Loads the handler, runs one job and prints its output. A failure is not retried. After a ctx.sleep, the handler runs ' +
      'again, as on a platform; ctx.run fails, because no platform starts child jobs. A streaming handler prints each ' +
      'chunk as one line of JSON as soon as the handler yields it. If its generator also returns a value, that value is ' +
      'the last line. Progress and the log go to standard error. On a terminal, chunks are shown with their metrics, and the ' +
      'times follow.',
    'With --json each line of standard output is an event: {"type":"chunk","output":…,"metrics":…}, ' +
      '{"type":"progress","value":…}, {"type":"log","entry":…}, and finally ' +
      '{"type":"result","status":"COMPLETED","executionTime":12,"loadTime":80,"chunks":0,"output":…} or ' +
      '{"type":"result","status":"FAILED","executionTime":12,"loadTime":80,"chunks":0,"error":…}. Times are in ms; loadTime is ' +
      'that of the module and its setup. The result of a stream has an output only if the generator returned a value.',
    'A batch handler also accepts an array of inputs. Each is the input of one job. Each line then names the index ' +
      'of its input: {"index":0,"output":…}. The exit code is the highest of all jobs.',
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
  exitCodes: {
    ok: 'the job is COMPLETED',
    failed: 'the job is FAILED, or the handler cannot be loaded',
    timedOut: 'the job is TIMED_OUT',
    interrupted: 'interrupted by a signal; the job was cancelled',
  },
  run,
});

async function run({ positionals, values }: ParsedArguments<typeof options>): Promise<number> {
  withholdKeys();
  const [handler, dash, ...rest] = positionals;
  const fromStdin = dash === '-';
  const handlerPath = findHandlerFile(
    [handler, fromStdin ? undefined : dash, ...rest].filter(isText),
  );
  const asked = await readJob({ ...values, fromStdin });
  const signals = listenForStop();
  const output = new RunOutput(chooseFormat(values.json));
  const devices = await findUsableDevices(createTerminalLog('warn'));
  const logDestination = { write: (lines: Uint8Array) => output.log(lines) };
  const executor = new ThreadExecutor({ handlerPath, devices, logDestination });
  forceOnSecond(signals);
  try {
    const startedAt = performance.now();
    const loading = executor.start();
    const interrupted = signals.first.then(() => 'interrupted' as const);
    const config = await Promise.race([loading, interrupted]);
    if (config === 'interrupted') {
      loading.catch(() => {});
      return EXIT.interrupted;
    }
    output.loadMs = performance.now() - startedAt;
    if (asked.isList && !config.batch) {
      throw new UsageError(
        'the input is an array, which only a batch handler accepts; give one JSON object',
      );
    }
    const timeoutMs = values.timeout ?? config.timeoutMs ?? LIMITS.executionTimeoutMs.default;
    const leases = makeLeases(asked, timeoutMs);
    const clock = systemClock;
    const jobs = leases.map((lease, index) => {
      const shown = output.openJob(asked.isList ? index : undefined);
      const job = new LoneJob({ executor, lease, timeoutMs, clock, noChildren: NO_CHILDREN });
      const execution = job.execute(shown.sink);
      shown.onDelivered((bytes) => execution.grant(bytes));
      return { execution, shown };
    });
    const cancel = () => {
      for (const { execution } of jobs) execution.stop('cancelled');
    };
    output.onBroken(cancel);
    void signals.first.then(cancel);
    const ends = await Promise.all(jobs.map(({ execution }) => execution.end));
    for (const [index, end] of ends.entries()) await jobs[index]?.shown.finish(end);
    return Math.max(...ends.map(findExitCode));
  } catch (error) {
    if (error instanceof HandlerNotLoadedError) throw new CommandError(error.message);
    throw error;
  } finally {
    await executor.stop();
    signals.release();
  }
}

function chooseFormat(json: boolean): RunFormat {
  if (json) return 'events';
  return process.stdout.isTTY ? 'terminal' : 'lines';
}

function isText(value: string | undefined): value is string {
  return value !== undefined;
}

function makeLeases({ id, inputs, isList }: AskedJobs, executionTimeoutMs: number): Lease[] {
  const submittedAt = Date.now();
  const named = id ?? `run-${submittedAt}`;
  return inputs.map((input, index) => ({
    jobId: isList ? `${named}-${index}` : named,
    attempt: 1,
    token: `run-${index}`,
    executionTimeoutMs,
    // A batch handler waits for no other job.
    solo: !isList,
    submittedAt,
    input,
  }));
}

const NO_CHILDREN =
  'millrace run starts no child jobs; submit the job to a platform, as `millrace dev` starts one, or test the handler with createHarness';

type InputSource = OptionValues<typeof options> & { fromStdin: boolean };

interface AskedJobs {
  id?: string | undefined;
  /** At least one. */
  inputs: Uint8Array[];
  /** The inputs were given as an array: jobs of a batch handler. */
  isList: boolean;
}

/** Read from the current folder if no input is given. */
const TEST_INPUT_FILE = 'test_input.json';

/** Stands for standard input. */
const STDIN = '-';

async function readJob(source: InputSource): Promise<AskedJobs> {
  const { fromStdin, input, inputFile, testInput } = source;
  const given = [input, inputFile, testInput, fromStdin || undefined].filter(
    (value) => value !== undefined,
  );
  if (given.length > 1) {
    throw new UsageError('--input, --input-file, --test-input and - exclude each other; give one');
  }
  if (testInput !== undefined) return readTestJob('--test-input', testInput);
  if (fromStdin || input === STDIN || inputFile === STDIN) {
    return readInputs('standard input', await readText(process.stdin));
  }
  if (input !== undefined) return readInputs('--input', input);
  if (inputFile !== undefined) {
    return readInputs('--input-file', readFile('--input-file', inputFile));
  }
  if (!existsSync(TEST_INPUT_FILE)) return { inputs: [Buffer.from('{}')], isList: false };
  return readTestJob(TEST_INPUT_FILE, readFile(TEST_INPUT_FILE, TEST_INPUT_FILE));
}

/** Reads a job in the form that clients send, and gives it an ID. */
function readTestJob(source: string, json: string): AskedJobs {
  const { id, input } = Object.fromEntries(Object.entries(parseObject(source, json)));
  if (input === undefined) throw new UsageError(`${source} must have an "input"`);
  const jobId = typeof id === 'string' && id !== '' ? id : undefined;
  checkInput(`${source}: input`, input);
  return { id: jobId, inputs: [Buffer.from(JSON.stringify(input))], isList: false };
}

function readFile(source: string, path: string): string {
  return readNamedFile(source, path).replace(/^\ufeff/, '');
}

/** One input, or an array of them. */
function readInputs(source: string, json: string): AskedJobs {
  const value = parseJson(source, json);
  if (!Array.isArray(value)) {
    checkInput(source, value);
    return { inputs: [Buffer.from(json)], isList: false };
  }
  if (value.length === 0) throw new UsageError(`${source} is an empty array; give an input`);
  for (const [index, input] of value.entries()) checkInput(`${source}[${index}]`, input);
  return { inputs: value.map((input) => Buffer.from(JSON.stringify(input))), isList: true };
}

/** Checks the input as the platform does: it must be an object. */
function checkInput(source: string, value: unknown): asserts value is object {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return;
  throw new UsageError(`${source} must be a JSON object`);
}

function parseObject(source: string, json: string): object {
  const value = parseJson(source, json);
  checkInput(source, value);
  return value;
}

function parseJson(source: string, json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (error) {
    throw new UsageError(`${source} is not JSON: ${error instanceof Error ? error.message : ''}`);
  }
}

const EXIT_CODES: Readonly<Record<Outcome['kind'], number>> = {
  completed: EXIT.ok,
  failed: EXIT.failed,
  timed_out: EXIT.timedOut,
  cancelled: EXIT.interrupted,
  released: EXIT.failed,
  waiting: EXIT.failed,
};

function findExitCode({ outcome }: ExecutionEnd): number {
  return EXIT_CODES[outcome.kind];
}
