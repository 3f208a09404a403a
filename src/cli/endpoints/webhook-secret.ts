// `millrace endpoints webhook-secret`: prints the secrets that verify the webhooks of one endpoint.
import { resolve } from 'node:path';
import { locateWebhookSecrets, readReceiverSecrets } from '../../platform/files/secret-files.ts';
import { CommandError, defineVerb, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import {
  dataOption,
  explainPlatformError,
  webhookSecretFileOption,
} from '../options/platform-flags.ts';
import { print } from '../output.ts';

const options = {
  data: dataOption('data folder of the platform, on this machine'),
  webhookSecretFile: webhookSecretFileOption,
};

const positionals = [
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
  positionals,
  options,
  examples: [
    'millrace endpoints webhook-secret echo',
    'millrace endpoints webhook-secret echo --data /var/lib/millrace',
  ],
  exitCodes: {
    ok: 'secrets printed, one a line',
    failed: 'the secrets file does not exist: no platform has used this data folder',
    usage: 'wrong usage, or the secrets file cannot be read or is invalid',
  },
  run,
});

async function run({
  values,
  positionals: words,
}: ParsedArguments<typeof options>): Promise<number> {
  const [endpoint = ''] = words;
  const path = values.webhookSecretFile ?? locateWebhookSecrets(resolve(values.data));
  const own = read(path, endpoint);
  if (!own)
    throw new CommandError(
      `${path} does not exist; start the platform with this data folder first`,
    );
  void print(`${own.join('\n')}\n`);
  return EXIT.ok;
}

function read(path: string, endpoint: string): string[] | undefined {
  try {
    return readReceiverSecrets(path, endpoint);
  } catch (error) {
    throw explainPlatformError(error, options);
  }
}
