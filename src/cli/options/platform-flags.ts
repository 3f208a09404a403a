// Options of every command that runs a platform.
import { flag, integer, list, text } from '../options.ts';

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
