// `millrace endpoints`: what has to be known of an endpoint outside of the platform.
import { randomBytes } from 'node:crypto';
import { endpointId } from '../wire/endpoint.ts';
import { RUNPOD_BASE } from '../wire/routes.ts';
import { type Command, EXIT } from './command.ts';
import { flag, integer, parseOptions, requiredText, text, UsageError } from './options.ts';

const options = {
  runpod: flag({
    help: "for a worker that speaks RunPod's protocol, one that was written for that",
  }),
  url: text({
    default: 'http://127.0.0.1:8000',
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'of the platform, as the worker reaches it',
  }),
  key: requiredText({
    placeholder: 'KEY',
    env: 'MILLRACE_KEY',
    help: 'API key with the scope worker',
  }),
  workerId: text({
    placeholder: 'ID',
    help: '--runpod: name of the worker, of its own for each; default: a new one each time',
  }),
  pingSeconds: integer({
    min: 1,
    max: 600,
    default: 10,
    help: '--runpod: how often the worker says that it is there; a lease lasts three times as long',
  }),
};

export const endpointsCommand: Command = {
  name: 'millrace endpoints',
  summary: 'what a worker of an endpoint needs in its environment',
  description: [
    'env: prints the environment for one worker of the endpoint, a line each, as `docker run ' +
      '--env-file` takes it. A shell, or a file that is searched for variables, would take the $ ' +
      'signs for its own: they belong to the values.',
    'With --runpod the worker may be an image that was made for RunPod, unchanged. Each worker needs ' +
      'a RUNPOD_POD_ID of its own: run the command again for the next.',
  ],
  positionals: [
    { name: '<action>', help: 'env' },
    { name: '<endpoint>', help: 'id of the endpoint' },
  ],
  options,
  examples: [
    'MILLRACE_KEY=mr_… millrace endpoints env image --runpod --url https://queue.example.com > worker.env',
    'docker run --rm --gpus all --env-file worker.env an-image-made-for-runpod',
    'MILLRACE_KEY=mr_… millrace endpoints env echo',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'printed' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const [action, endpoint, surplus] = positionals;
  if (action !== 'env') throw new UsageError(`<action>: must be env, got ${action ?? 'nothing'}`);
  if (endpoint === undefined) throw new UsageError('<endpoint> is missing');
  if (surplus !== undefined) throw new UsageError(`${surplus}: is one argument too many`);
  const checked = endpointId.safeParse(endpoint);
  if (!checked.success) throw new UsageError(`${endpoint}: is no id of an endpoint`);
  const url = readUrl(values.url);
  const { key, pingSeconds, runpod, workerId } = values;
  const environment = runpod
    ? describeRunpodWorker({ endpoint, key, pingSeconds, url, workerId })
    : { MILLRACE_URL: url, MILLRACE_ENDPOINT: endpoint, MILLRACE_KEY: key };
  const lines = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  process.stdout.write(`${lines.join('\n')}\n`);
  return EXIT.ok;
}

interface RunpodWorker {
  endpoint: string;
  key: string;
  pingSeconds: number;
  url: string;
  workerId: string | undefined;
}

/**
 * The URLs are templates of that protocol. $ID is the worker where jobs are taken, elsewhere the job;
 * the workers append "&name=value" and look for no "?": so there is one.
 */
function describeRunpodWorker(worker: RunpodWorker): Record<string, string> {
  const { endpoint, key, pingSeconds, url } = worker;
  const workerId = worker.workerId ?? `${endpoint}-${randomBytes(4).toString('hex')}`;
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(workerId)) {
    throw new UsageError('--worker-id: must be 1 to 128 letters, digits, ".", "_" or "-"');
  }
  const base = `${url}${RUNPOD_BASE}/v2/${endpoint}`;
  const pingMs = pingSeconds * 1_000;
  return {
    RUNPOD_WEBHOOK_GET_JOB: `${base}/job-take/$ID?`,
    RUNPOD_WEBHOOK_POST_OUTPUT: `${base}/job-done/$RUNPOD_POD_ID/$ID?`,
    RUNPOD_WEBHOOK_POST_STREAM: `${base}/job-stream/$RUNPOD_POD_ID/$ID?`,
    RUNPOD_WEBHOOK_PING: `${base}/ping/$RUNPOD_POD_ID?every=${pingMs}`,
    RUNPOD_PING_INTERVAL: String(pingMs),
    RUNPOD_AI_API_KEY: key,
    RUNPOD_POD_ID: workerId,
    RUNPOD_ENDPOINT_ID: endpoint,
  };
}

/** Without what would end up in the middle of the paths. @throws UsageError */
function readUrl(given: string): string {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  const isPlain = url && /^https?:$/.test(url.protocol) && url.search === '' && url.hash === '';
  if (!isPlain) throw new UsageError('--url: must be an http or https URL without a query');
  return given.replace(/\/+$/, '');
}
