// Verbs of `millrace endpoints` for programs elsewhere: the environment of workers, and the secrets that verify
// webhooks.
import { randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import { ENDPOINT_ID, isReserved } from '../../wire/resources/fields.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import { CommandError, defineVerb, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import {
  dataOption,
  explainPlatformError,
  webhookSecretFileOption,
} from '../options/platform-option.ts';
import { flag, integer, type OptionValues, text, UsageError } from '../options.ts';
import { print } from '../output.ts';
import { clientOptions, DEFAULT_URL } from '../resources/client-options.ts';

const options = {
  json: flag({ help: 'print one line of JSON' }),
  url: text({
    default: DEFAULT_URL,
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'URL of the platform, as the worker reaches it',
  }),
  key: { ...clientOptions.key, help: 'worker key; required' },
  runpod: flag({ help: 'print the variables for a worker written for RunPod' }),
  workerId: text({
    placeholder: 'ID',
    help: 'with --runpod: worker ID, unique for each worker; default: a new one each time',
  }),
  pingSeconds: integer({
    min: 1,
    max: 600,
    default: 10,
    placeholder: 'S',
    help: "with --runpod: interval of the worker's pings, s; a lease lasts three times as long",
  }),
  skipSystemChecks: flag({
    help: "with --runpod: skip runpod-python's system checks, one of which connects to 8.8.8.8",
  }),
};

const positionals = [{ name: '<id>', help: 'endpoint ID' }];

export const environmentVerb = defineVerb({
  summary: 'prints the environment of a worker that you start yourself',
  description: [
    'Prints one variable a line, in the format of `docker run --env-file`, without a call to the platform. ' +
      'Values may contain $ signs, so do not let a shell expand them.',
    'With --runpod the worker can be an unchanged RunPod image. Run the command again for each worker, ' +
      'because each needs its own RUNPOD_POD_ID.',
  ],
  positionals,
  options,
  examples: [
    'MILLRACE_KEY=mr_… millrace endpoints env image --runpod --url https://q.example.com > worker.env',
  ],
  exitCodes: {
    ok: 'done',
  },
  async run({ positionals: words, values }) {
    const [endpoint = ''] = words;
    const environment = describeEnvironment({ endpoint, ...values });
    const lines = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
    void print(`${values.json ? JSON.stringify(environment) : lines.join('\n')}\n`);
    return EXIT.ok;
  },
});

type WorkerEnvironment = OptionValues<typeof options> & { endpoint: string };

/** @throws UsageError */
function describeEnvironment(worker: WorkerEnvironment): Record<string, string> {
  const { endpoint, key } = worker;
  if (!ENDPOINT_ID.test(endpoint) || isReserved(endpoint)) {
    throw new UsageError(`${endpoint}: not an endpoint ID`);
  }
  if (key === undefined) {
    throw new UsageError('--key KEY is required (or MILLRACE_KEY in the environment)');
  }
  const url = readUrl(worker.url);
  return worker.runpod
    ? describeRunpodWorker({ ...worker, key, url })
    : { MILLRACE_URL: url, MILLRACE_ENDPOINT: endpoint, MILLRACE_KEY: key };
}

/**
 * The URLs are templates of RunPod's protocol. $ID is the worker in the URL that takes jobs, and
 * the job elsewhere. Workers append "&name=value" without adding a "?", so the URLs contain one.
 */
function describeRunpodWorker(worker: WorkerEnvironment & { key: string }): Record<string, string> {
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
    ...(worker.skipSystemChecks && { RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'true' }),
  };
}

/** Rejects URLs with a query or fragment, which would end up inside the paths. @throws UsageError */
function readUrl(given: string): string {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  const isPlain = url && /^https?:$/.test(url.protocol) && url.search === '' && url.hash === '';
  if (!isPlain) throw new UsageError('--url: must be an http or https URL without a query');
  return given.replace(/\/+$/, '');
}

const secretOptions = {
  data: dataOption('data folder of the platform, on this machine'),
  webhookSecretFile: webhookSecretFileOption,
};

const secretPositionals = [
  {
    name: '<id>',
    help: 'ID of an endpoint or a budget; not its name, because the platform is not called',
  },
];

export const webhookSecretVerb = defineVerb({
  summary: "prints the secret that verifies the endpoint's webhooks, on the platform's machine",
  description: [
    "The receivers of an endpoint's webhooks pass the secret to verifyWebhook of millrace/client. Each " +
      'endpoint has its own secret, derived from the secrets file in the data folder.',
    'To change the secret, add a line to the file (mrw_ and 32 random bytes as 43 base64url characters) ' +
      'and restart the platform. The platform then signs with both secrets, and this command prints both. ' +
      'Remove the old line when every receiver has the new secret.',
  ],
  positionals: secretPositionals,
  options: secretOptions,
  examples: [
    'millrace endpoints webhook-secret echo',
    'millrace endpoints webhook-secret echo --data /var/lib/millrace',
  ],
  exitCodes: {
    ok: 'secrets printed, one a line',
    failed: 'the secrets file does not exist: no platform has used this data folder',
    usage: 'wrong usage, or the secrets file cannot be read or is invalid',
  },
  run: printSecrets,
});

async function printSecrets({
  values,
  positionals: words,
}: ParsedArguments<typeof secretOptions>): Promise<number> {
  const [endpoint = ''] = words;
  // They load zod, which no other command of endpoints needs.
  const files = await import('../../platform/files/secret-files.ts');
  const path = values.webhookSecretFile ?? files.locateWebhookSecrets(resolve(values.data));
  const own = explained(() => files.readReceiverSecrets(path, endpoint));
  if (!own)
    throw new CommandError(
      `${path} does not exist; start the platform with this data folder first`,
    );
  void print(`${own.join('\n')}\n`);
  return EXIT.ok;
}

/** @throws an error that names the flags */
function explained<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw explainPlatformError(error, secretOptions);
  }
}
