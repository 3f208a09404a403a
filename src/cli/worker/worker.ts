// `millrace worker`: what it takes and says. As a rule the process becomes the supervisor of worker
// processes; each of these is the same command, and then the worker itself.
import { type Command, EXIT } from '../command.ts';
import { readVariable, withholdKeys } from '../config.ts';
import { findHandlerFile } from '../dev/handler-files.ts';
import { DEVICE_SET_VARIABLE, parseWorkerFlags, workerFlags } from './worker-flags.ts';

export const workerCommand: Command = {
  name: 'millrace worker',
  summary: 'a worker: takes jobs from one endpoint and runs them',
  description: [
    "Loads the handler, takes jobs from the endpoint's queue and runs them in threads. Each set of GPUs " +
      '(without GPUs: the machine) has a worker process of its own, pinned to it, which is started again ' +
      'when it dies. A platform that cannot be reached is waited for. The log goes to standard error, as ' +
      'JSON lines where that is no terminal; lines of a job carry its id.',
    'With --state-dir, what was finished is on disk before it is sent: a worker that is killed delivers ' +
      'it when it is started again with the same folder, and the jobs are not run twice.',
    'On RunPod (where RUNPOD_WEBHOOK_GET_JOB is set and no --url) it speaks the protocol of that ' +
      'platform by itself, with what the environment says: no --url, --endpoint or --key is needed.',
    'SIGTERM and SIGINT: takes no more, lets running jobs end, gives back the rest, leaves. A second ' +
      'one, a second or more later: leaves at once.',
  ],
  positionals: [{ name: '<handler>', help: 'the handler module, .ts or .js' }],
  options: workerFlags,
  examples: [
    'MILLRACE_KEY=mr_… millrace worker handler.ts --url http://10.0.0.5:8000 --endpoint echo',
    'millrace worker handler.ts --threads 4 --jobs-per-thread 16   # the rest from MILLRACE_*',
    'millrace worker handler.ts --url grpcs://10.0.0.5:8001 --endpoint echo --ca ca.pem',
    'millrace worker handler.ts --gpus-per-worker 2 --state-dir /var/lib/millrace --health-port 9090',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'left as asked; every outcome was delivered' },
    {
      code: EXIT.failed,
      meaning:
        'the handler cannot be loaded, the GPUs cannot be used, the health port or the state folder is another process’s, another worker runs under the id, an outcome is undelivered, or it was told twice to leave',
    },
    { code: EXIT.usage, meaning: 'wrong usage' },
    { code: EXIT.unfit, meaning: 'a check of the machine or of the handler failed' },
    { code: EXIT.gaveUp, meaning: 'crash loop: no worker process came as far as to take jobs' },
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
