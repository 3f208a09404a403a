// `millrace worker`: arguments and help. The process becomes a supervisor and starts the same
// command again for each worker process; with --unsupervised or --under-dev it is the worker.
import { flushCompileCache } from 'node:module';
import type { Command } from '../command.ts';
import { readVariable, withholdKeys } from '../config.ts';
import { findHandlerFile } from '../dev/handler-files.ts';
import { outliveOutput } from '../output.ts';
import type { WeightsAhead } from './weights-ahead.ts';
import {
  DEVICE_SET_VARIABLE,
  parseWorkerFlags,
  type WorkerFlags,
  workerFlags,
} from './worker-flags.ts';

export const workerCommand: Command = {
  name: 'millrace worker',
  description: [
    "Loads the handler, takes jobs from the endpoint's queue and runs them in threads. One " +
      'worker process runs for each device set, or one process if there is no GPU. Each process sees only ' +
      'its own GPUs and is restarted when it dies. If the platform cannot be reached, the worker waits. ' +
      'The log goes to standard error, as text on a terminal, else as JSON lines. Log lines about a job ' +
      'have its ID.',
    'With --state-dir, the worker writes each outcome to disk before it sends it. If the worker is ' +
      'killed, it delivers these outcomes after a restart with the same folder. Jobs whose leases expire before ' +
      'the restart (15 s by default) run again.',
    "If RUNPOD_WEBHOOK_GET_JOB is set and --url is not, the worker uses RunPod's protocol and reads its " +
      'settings from the environment. It then needs no --url, --endpoint or --key.',
    'On SIGTERM or SIGINT the worker takes no more jobs, waits for running jobs, releases the rest and ' +
      'exits. A second signal, a second or more later, makes it exit at once.',
  ],
  positionals: [
    { name: '<handler>', help: 'handler module, .ts or .js; not used with --handler-version' },
  ],
  options: workerFlags,
  examples: [
    'MILLRACE_KEY=mr_… millrace worker handler.ts --url http://10.0.0.5:8000 --endpoint echo',
    'millrace worker handler.ts --threads 4 --jobs-per-thread 16   # the rest from MILLRACE_*',
    'millrace worker handler.ts --url grpcs://10.0.0.5:8001 --endpoint echo --ca ca.pem',
    'millrace worker handler.ts --gpus-per-worker 2 --state-dir /var/lib/millrace --health-port 9090',
  ],
  exitCodes: {
    ok: 'stopped by a signal; all outcomes delivered',
    failed:
      'the GPUs cannot be used, the health port, the state folder or the worker ID is in use, an outcome is undelivered, or a second SIGTERM or SIGHUP came',
    gaveUp: 'crash loop: no worker process became ready',
    unfit: 'a check of the machine or of the handler failed',
    notLoaded: 'the handler cannot be loaded',
    refused:
      'the platform refused the key, or had no such endpoint, for the time of --auth-timeout',
    interrupted: 'a second Ctrl-C',
  },
  run,
};

async function run(args: readonly string[]): Promise<number> {
  outliveOutput();
  withholdKeys();
  const { values, positionals } = parseWorkerFlags(args);
  const isSupervisor = !values.unsupervised && !values.underDev;
  const weights = isSupervisor ? await readWeightsAhead(values) : undefined;
  try {
    return await start(args, { values, positionals, weights });
  } finally {
    weights?.end();
  }
}

interface Start extends ReturnType<typeof parseWorkerFlags> {
  weights: WeightsAhead | undefined;
}

async function start(
  args: readonly string[],
  { positionals, values, weights }: Start,
): Promise<number> {
  const beganAt = performance.now();
  const handlerPath = await findHandler(positionals, values);
  const installMs = values.handlerVersion === undefined ? 0 : performance.now() - beganAt;
  // In a worker process, the supervisor has already checked the machine.
  if (readVariable(DEVICE_SET_VARIABLE) === undefined && !values.underDev) {
    const { checkMachine } = await import('./worker-machine.ts');
    await checkMachine(values);
  }
  if (values.unsupervised || values.underDev) {
    const { runWorkerProcess } = await import('./run-worker.ts');
    return runWorkerProcess(handlerPath, values, installMs);
  }
  const { superviseWorkers } = await import('./supervise.ts');
  // Not at the end, because a killed supervisor has none.
  flushCompileCache();
  return superviseWorkers({ handlerPath, values, args, installMs, weights });
}

/** Only a worker with a state folder remembers weights. */
async function readWeightsAhead(values: WorkerFlags): Promise<WeightsAhead | undefined> {
  if (values.stateDir === undefined) return undefined;
  const ahead = await import('./weights-ahead.ts');
  return ahead.readWeightsAhead(values);
}

/** The image names a handler of its own as its command, so a version takes precedence. */
async function findHandler(positionals: readonly string[], values: WorkerFlags): Promise<string> {
  const { handlerVersion } = values;
  if (handlerVersion === undefined) return findHandlerFile(positionals);
  const { provideVersion } = await import('./handler-version.ts');
  return provideVersion({ ...values, handlerVersion });
}
