// The file of secrets that webhooks are signed with: one a line, made at the first start.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  generatePlatformSecret,
  isPlatformSecret,
} from '../../queue/webhooks/webhook-signature.ts';
import { text, UsageError } from '../options.ts';

const OWNER_ONLY = 0o600;
const OPTION = '--webhook-secret-file';

/** Of every command that needs the secrets. */
export const webhookSecretFileOption = text({
  placeholder: 'FILE',
  env: 'MILLRACE_WEBHOOK_SECRET_FILE',
  help: 'file of the secrets that sign webhooks; default: webhook-secrets in --data',
});

export function locateWebhookSecrets(dataFolder: string, given: string | undefined): string {
  return given ?? join(dataFolder, 'webhook-secrets');
}

/** At least one; the file is made, with one, if it is missing. @throws UsageError */
export function useWebhookSecrets(path: string): string[] {
  return readWebhookSecrets(path) ?? makeWebhookSecrets(path);
}

/** Undefined: there is no such file. @throws UsageError */
export function readWebhookSecrets(path: string): string[] | undefined {
  let content: string;
  try {
    content = readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw refuse(error);
  }
  const lines = content.split(/\r?\n/).map((line) => line.trim());
  const secrets = lines.filter((line) => line !== '' && !line.startsWith('#'));
  const wrong = lines.findIndex((line) => secrets.includes(line) && !isPlatformSecret(line));
  if (wrong >= 0) {
    throw new UsageError(
      `${OPTION}: ${path}, line ${wrong + 1}: invalid secret; write mrw_ and 43 base64url characters`,
    );
  }
  if (secrets.length === 0) throw new UsageError(`${OPTION}: ${path} contains no secret`);
  return secrets;
}

function makeWebhookSecrets(path: string): string[] {
  const secret = generatePlatformSecret();
  try {
    writeFileSync(path, `${secret}\n`, { flag: 'wx', mode: OWNER_ONLY });
  } catch (error) {
    throw refuse(error);
  }
  return [secret];
}

function refuse(error: unknown): UsageError {
  return new UsageError(`${OPTION}: ${error instanceof Error ? error.message : String(error)}`);
}
