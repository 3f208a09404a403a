// What every command that runs a platform shares: options, errors that name the flag of an option, and the end of the process
// whose database is lost.

import type { Log } from '../../base/log.ts';
import { PlatformOptionError } from '../../platform/option-error.ts';
import { CommandError, EXIT } from '../command.ts';
import { flag, integer, list, text, UsageError } from '../options.ts';

export const portOption = integer({
  min: 0,
  max: 65_535,
  default: 8_000,
  placeholder: 'PORT',
  env: 'MILLRACE_PORT',
  help: 'TCP port; 0 picks a free one',
});

export const MAX_ATTEMPTS_HELP =
  'failed attempts after which a job is FAILED; 1: no automatic retry';

/** Applies to the endpoints that the command declares. */
export const maxAttemptsOption = integer({
  min: 1,
  max: 100,
  help: `${MAX_ATTEMPTS_HELP}; for the endpoints that this command declares; default: 3, or the value of an earlier start`,
});

export const webhookSecretFileOption = text({
  placeholder: 'FILE',
  env: 'MILLRACE_WEBHOOK_SECRET_FILE',
  help: 'file of the secrets that sign webhooks; default: webhook-secrets in --data',
});

export const secretsKeyFileOption = text({
  placeholder: 'FILE',
  env: 'MILLRACE_SECRETS_KEY_FILE',
  help: 'file of keys that encrypt the secrets of registries and the variables of templates and pods, one per line, the current one first; make one with `openssl rand -base64 32`; default: none, registries cannot be created and variables are stored in the clear',
});

export const catalogOption = text({
  placeholder: 'FILE',
  env: 'MILLRACE_CATALOG',
  help: 'JSON file of GPU types, CPU flavors and prices; default: the devices of this machine at no cost',
});

export const corsOption = list({
  placeholder: 'ORIGIN',
  env: 'MILLRACE_CORS',
  help: 'origin of a web page that may call the API, such as https://app.example.com; default: none; "*": every page, only if all calls need a key',
});

export const noConsoleOption = flag({
  env: 'MILLRACE_NO_CONSOLE',
  help: 'do not serve the web console at /console/',
});

const FLAGS: Readonly<Record<string, string>> = {
  dataFolder: '--data',
  store: '--store',
  from: '--from',
  to: '--to',
  nodes: '--node-url',
  'nodes.secrets': '--node-secret-file',
  'nodes.secretFile': '--node-secret-file',
  'nodes.shards': '--shards',
  'nodes.listen': '--node-listen',
  'nodes.advertiseUrl': '--advertise-url',
  'nodes.advertiseGrpcUrl': '--advertise-grpc-url',
  host: '--host',
  port: '--port',
  endpoints: '--endpoint',
  corsOrigins: '--cors',
  keyFile: '--key-file',
  secretsKeyFile: '--secrets-key-file',
  tls: '--tls-cert, --tls-key',
  'tls.key': '--tls-key',
  'grpc.port': '--grpc-port',
  'webhooks.secretFile': '--webhook-secret-file',
  'traces.url': '--trace-url',
  'traces.ratio': '--trace-percent',
  'compute.catalogFile': '--catalog',
  'compute.engine': '--engine',
  'compute.dockerHost': '--docker-host',
  'compute.kubernetes': '--kubeconfig',
  'compute.kubernetes.settings': '--kube-settings',
  'compute.podUser': '--pod-user',
  'compute.workerUrl': '--worker-url',
};

/** Returns other errors unchanged. */
export function explainPlatformError(error: unknown): unknown {
  if (!(error instanceof PlatformOptionError)) return error;
  const { fault, option } = error;
  const problem = error.problem.replaceAll(/`([\w.]+)`/g, (text, name) => FLAGS[name] ?? text);
  const message = `${FLAGS[option] ?? option}: ${problem}`;
  return fault === 'invalid' ? new UsageError(message) : new CommandError(message);
}

/**
 * Returns what to do when the store is lost. Closing it would copy pages whose content nobody knows, so the
 * process exits as it is, as if it had been killed.
 */
export function exitOnStoreLoss(log: Log, store: 'file' | 'database' = 'file'): () => void {
  return () => {
    if (store === 'file') {
      log.fatal(
        'the disk failed to store a commit; exiting, because only a new start can read what the disk has',
      );
    } else {
      log.fatal(
        'the database is not as this platform left it; exiting, because only a new start can read it',
      );
    }
    process.exit(EXIT.failed);
  };
}
