// `millrace webhook-secret`: what the receivers of an endpoint's webhooks need to check them.
import { resolve } from 'node:path';
import { deriveEndpointSecret } from '../../queue/webhooks/webhook-signature.ts';
import { type Command, CommandError, EXIT } from '../command.ts';
import { parseOptions, text, UsageError } from '../options.ts';
import { print } from '../output.ts';
import {
  locateWebhookSecrets,
  readWebhookSecrets,
  webhookSecretFileOption,
} from '../platform/webhook-secrets.ts';

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
  summary: "what checks the signature of an endpoint's webhooks",
  description: [
    "Prints the secret that the receivers of an endpoint's webhooks are given, for verifyWebhook of " +
      'millrace/client. Each endpoint has its own, made out of those in the file.',
    'To change it, add a line to the file, mrw_ and 43 base64url characters of 32 random bytes, and ' +
      'start the platform anew: webhooks are then signed with both, this prints both, and the old ' +
      'line can go when every receiver has the new secret.',
  ],
  positionals: [{ name: '<endpoint>', help: 'id of the endpoint' }],
  options,
  examples: [
    'millrace webhook-secret echo',
    'millrace webhook-secret echo --data /var/lib/millrace',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'printed, one a line' },
    { code: EXIT.failed, meaning: 'the platform has not been started there' },
    { code: EXIT.usage, meaning: 'wrong usage, or the file cannot be read' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const [endpoint, surplus] = positionals;
  if (endpoint === undefined) throw new UsageError('<endpoint> is missing');
  if (surplus !== undefined) throw new UsageError(`${surplus}: is one argument too many`);
  const path = locateWebhookSecrets(resolve(values.data), values.webhookSecretFile);
  const secrets = readWebhookSecrets(path);
  if (!secrets) throw new CommandError(`${path} is not there: no platform was started with it yet`);
  const own = secrets.map((secret) => deriveEndpointSecret(secret, endpoint));
  void print(`${own.join('\n')}\n`);
  return EXIT.ok;
}
