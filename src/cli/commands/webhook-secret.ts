// `millrace webhook-secret`: what the receivers of an endpoint's webhooks need to check them.
import { resolve } from 'node:path';
import { locateWebhookSecrets, readReceiverSecrets } from '../../platform/webhook-secrets.ts';
import { type Command, CommandError, EXIT } from '../command.ts';
import { explainPlatformError } from '../options/platform-errors.ts';
import { webhookSecretFileOption } from '../options/platform-options.ts';
import { parseOptions, text, UsageError } from '../options.ts';
import { print } from '../output.ts';

const options = {
  data: text({
    default: './.millrace',
    placeholder: 'DIR',
    env: 'MILLRACE_DATA',
    help: 'data folder of the platform, on this machine',
  }),
  webhookSecretFile: webhookSecretFileOption,
};

export const webhookSecretCommand: Command = {
  name: 'millrace webhook-secret',
  summary: "print the secret that verifies an endpoint's webhooks",
  description: [
    "Prints the secret that the receivers of an endpoint's webhooks pass to verifyWebhook of " +
      'millrace/client. Each endpoint has its own secret, derived from the secrets file.',
    'To change the secret, add a line to the file (mrw_ and 32 random bytes as 43 base64url characters) ' +
      'and restart the platform. The platform then signs with both secrets, and this command prints both. ' +
      'Remove the old line when every receiver has the new secret.',
  ],
  positionals: [{ name: '<endpoint>', help: 'endpoint ID' }],
  options,
  examples: [
    'millrace webhook-secret echo',
    'millrace webhook-secret echo --data /var/lib/millrace',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'secrets printed, one a line' },
    { code: EXIT.failed, meaning: 'no platform was started with this data folder' },
    { code: EXIT.usage, meaning: 'wrong usage, or the file cannot be read' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const [endpoint, surplus] = positionals;
  if (endpoint === undefined) throw new UsageError('<endpoint> is missing; give an endpoint ID');
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
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
    throw explainPlatformError(error);
  }
}
