// `millrace worker`: what it takes and says. As a rule the process becomes the supervisor of worker
// processes; each of these is the same command, and then the worker itself.
import { type Command, EXIT } from '../command.ts';
import { readVariable, withholdKeys } from '../config.ts';
import { findHandlerFile } from '../dev/handler-files.ts';
import { DEVICE_SET_VARIABLE, parseWorkerFlags, workerFlags } from './worker-flags.ts';

export const workerCommand: Command = {
  name: 'millrace worker',
  description: [
    "The worker loads the handler, takes jobs from the endpoint's queue and runs them in threads. Each set " +
      'of GPUs (without GPUs: the machine) has its own worker process, pinned to it and restarted when it ' +
      'dies. If the platform cannot be reached, the worker waits. The log goes to standard error: text on ' +
      'a terminal, else JSON lines; lines about a job carry its ID.',
    'With --state-dir, the worker writes each outcome to disk before it sends it. A killed worker ' +
      'delivers these outcomes after a restart with the same folder; the jobs do not run twice.',
    'On RunPod (RUNPOD_WEBHOOK_GET_JOB is set, --url is not) the worker uses the protocol of RunPod ' +
      'and reads its settings from the environment; --url, --endpoint and --key are not needed.',
    'On SIGTERM or SIGINT the worker takes no more jobs, waits for running jobs, releases the rest and ' +
      'exits. A second signal, a second or more later, makes it exit at once.',
  ],
  positionals: [{ name: '<handler>', help: 'handler module, .ts or .js' }],
  options: workerFlags,
  examples: [
    'MILLRACE_KEY=mr_… millrace worker handler.ts --url http://10.0.0.5:8000 --endpoint echo',
    'millrace worker handler.ts --threads 4 --jobs-per-thread 16   # the rest from MILLRACE_*',
    'millrace worker handler.ts --url grpcs://10.0.0.5:8001 --endpoint echo --ca ca.pem',
    'millrace worker handler.ts --gpus-per-worker 2 --state-dir /var/lib/millrace --health-port 9090',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'stopped by a signal; all outcomes delivered' },
    {
      code: EXIT.failed,
      meaning:
        'the handler cannot be loaded, the GPUs cannot be used, the health port, the state folder or the worker ID is in use, an outcome is undelivered, or a second signal came',
    },
    { code: EXIT.usage, meaning: 'wrong usage' },
    { code: EXIT.gaveUp, meaning: 'crash loop: no worker process became ready' },
    { code: EXIT.unfit, meaning: 'a check of the machine or of the handler failed' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  withholdKeys();
  const { values, positionals } = parseWorkerFlags(args);
  const handlerPath = findHandlerFile(positionals);
  // A supervisor has looked already.
  if (readVariable(DEVICE_SET_VARIABLE) === undefined && !values.underDev) {
    const { checkMachine } = await import('./fitness.ts');
    await checkMachine(values);
  }
  if (values.unsupervised || values.underDev) {
    const { runWorkerProcess } = await import('./worker-process.ts');
    return runWorkerProcess(handlerPath, values);
  }
  const { superviseWorkers } = await import('./supervise.ts');
  return superviseWorkers({ handlerPath, values, args });
}
