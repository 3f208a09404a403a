// The file of secrets that sign webhooks: one per line, created at the first start.
import { join } from 'node:path';
import {
  deriveEndpointSecret,
  generatePlatformSecret,
  isPlatformSecret,
} from '../../queue/webhooks/webhook-signature.ts';
import { createOptionFile, PlatformOptionError, readOptionFile } from '../option-error.ts';

const OPTION = 'webhooks.secretFile';

/** Default path. */
export function locateWebhookSecrets(dataFolder: string): string {
  return join(dataFolder, 'webhook-secrets');
}

/**
 * Secrets with which receivers verify webhooks of the endpoint. Undefined: the file does not exist.
 * @throws PlatformOptionError
 */
export function readReceiverSecrets(path: string, endpointId: string): string[] | undefined {
  return readWebhookSecrets(path)?.map((secret) => deriveEndpointSecret(secret, endpointId));
}

/**
 * Returns at least one secret; creates the file with one if it is missing. @throws
 * PlatformOptionError
 */
export function useWebhookSecrets(path: string): string[] {
  return readWebhookSecrets(path) ?? makeWebhookSecrets(path);
}

/** Undefined: the file does not exist. @throws PlatformOptionError */
export function readWebhookSecrets(path: string): string[] | undefined {
  const content = readOptionFile(OPTION, path);
  if (content === undefined) return undefined;
  const lines = content.split(/\r?\n/).map((line) => line.trim());
  const secrets = lines.filter((line) => line !== '' && !line.startsWith('#'));
  const wrong = lines.findIndex((line) => secrets.includes(line) && !isPlatformSecret(line));
  if (wrong >= 0) {
    throw refuse(
      `${path}, line ${wrong + 1}: invalid secret; write mrw_ and 43 base64url characters`,
    );
  }
  if (secrets.length === 0) throw refuse(`${path} contains no secret`);
  return secrets;
}

/** @throws PlatformOptionError if the file exists or cannot be written */
export function makeWebhookSecrets(path: string): string[] {
  const secret = generatePlatformSecret();
  createOptionFile(OPTION, path, `${secret}\n`);
  return [secret];
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', OPTION, problem);
}
