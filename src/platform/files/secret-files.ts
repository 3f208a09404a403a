// The files of secrets that options name: the platform's own keys, keys that encrypt the secrets of users, and
// secrets that sign webhooks. Warns if all users of the machine can read one.
import { randomBytes } from 'node:crypto';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { type FirstKeys, type Keys, scopesOfWorkers } from '../../control/keys/keys.ts';
import { generateKey } from '../../control/keys/known-keys.ts';
import { SECRET_KEY_BYTES, SecretSealer } from '../../control/registries/sealed-secret.ts';
import {
  deriveEndpointSecret,
  generatePlatformSecret,
  isPlatformSecret,
} from '../../queue/webhooks/webhook-sender.ts';
import { ProblemError } from '../../wire/problem.ts';
import { createOptionFile, PlatformOptionError, readOptionFile } from '../option-error.ts';
import type { CompleteOptions } from '../platform-options.ts';

/** Permissions of all who are neither the owner nor in the group. */
const OTHERS = 0o007;
const PERMISSIONS = 0o777;

type SecretFileOptions = Pick<
  CompleteOptions,
  'history' | 'keyFile' | 'nodes' | 'secretsKeyFile' | 'tls' | 'webhooks'
>;

/** By option; undefined for options that are not given. */
export function listSecretFiles({
  history,
  keyFile,
  nodes,
  secretsKeyFile,
  tls,
  webhooks,
}: SecretFileOptions): Record<string, string | undefined> {
  return {
    keyFile,
    'tls.key': tls?.keyFile,
    'webhooks.secretFile': webhooks.secretFile,
    secretsKeyFile,
    'history.keyFile': history?.keyFile,
    'nodes.secretFile': nodes?.secretFile,
  };
}

/** Missing files are made later, readable by their owner only. Windows has no such permissions. */
export function warnOfOpenFiles(
  files: Readonly<Record<string, string | undefined>>,
  log: Log,
): void {
  if (process.platform === 'win32') return;
  for (const [option, path] of Object.entries(files)) {
    const mode = path === undefined ? 0 : (statSync(path, { throwIfNoEntry: false })?.mode ?? 0);
    if ((mode & OTHERS) === 0) continue;
    const note = { option, path, mode: (mode & PERMISSIONS).toString(8) };
    log.warn(note, 'file of secrets is open to all users of this machine');
  }
}

// The keys that encrypt the secrets of users: one per line, the current one first.

const KEYS_OPTION = 'secretsKeyFile';
const MAX_KEYS = 100;

/** Undefined: without a key. @throws PlatformOptionError */
export function openSealer(path: string | undefined): SecretSealer {
  return new SecretSealer(path === undefined ? [] : readSecretKeys(path));
}

/** At least one. @throws PlatformOptionError that names the line */
export function readSecretKeys(path: string): Uint8Array[] {
  const content = readOptionFile(KEYS_OPTION, path);
  if (content === undefined) {
    throw refuse(
      KEYS_OPTION,
      `${path} does not exist; make it: openssl rand -base64 ${SECRET_KEY_BYTES}`,
    );
  }
  const lines = content.split(/\r?\n/).map((line, index) => ({ text: line.trim(), at: index + 1 }));
  const given = lines.filter(({ text }) => text !== '' && !text.startsWith('#'));
  if (given.length === 0) throw refuse(KEYS_OPTION, `${path} contains no key`);
  if (given.length > MAX_KEYS)
    throw refuse(KEYS_OPTION, `${path} contains more than ${MAX_KEYS} keys`);
  return given.map(({ at, text }) => {
    const key = Buffer.from(text, 'base64');
    // The decoder ignores what is not base64; the line itself stays out of the message.
    if (key.length === SECRET_KEY_BYTES && key.toString('base64') === text) return key;
    const wanted = `write ${SECRET_KEY_BYTES} random bytes as base64`;
    throw refuse(KEYS_OPTION, `${path}, line ${at}: invalid key; ${wanted}`);
  });
}

/** @throws PlatformOptionError if the file exists or cannot be written */
export function makeSecretsKey(path: string): void {
  createOptionFile(KEYS_OPTION, path, `${randomBytes(SECRET_KEY_BYTES).toString('base64')}\n`);
}

// The secrets that sign webhooks: one per line, created at the first start.

const WEBHOOKS_OPTION = 'webhooks.secretFile';

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
  const content = readOptionFile(WEBHOOKS_OPTION, path);
  if (content === undefined) return undefined;
  const lines = content.split(/\r?\n/).map((line) => line.trim());
  const secrets = lines.filter((line) => line !== '' && !line.startsWith('#'));
  const wrong = lines.findIndex((line) => secrets.includes(line) && !isPlatformSecret(line));
  if (wrong >= 0) {
    throw refuse(
      WEBHOOKS_OPTION,
      `${path}, line ${wrong + 1}: invalid secret; write mrw_ and 43 base64url characters`,
    );
  }
  if (secrets.length === 0) throw refuse(WEBHOOKS_OPTION, `${path} contains no secret`);
  return secrets;
}

/** @throws PlatformOptionError if the file exists or cannot be written */
export function makeWebhookSecrets(path: string): string[] {
  const secret = generatePlatformSecret();
  createOptionFile(WEBHOOKS_OPTION, path, `${secret}\n`);
  return [secret];
}

function refuse(option: string, problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', option, problem);
}

const KEY_FILE_OPTION = 'keyFile';
const ADMIN = 'MILLRACE_ADMIN_KEY';
const WORKER = 'MILLRACE_WORKER_KEY';

/** `generated`: only the caller has them. `written` to the key file, or `read` from it. */
export interface PlatformKeys extends FirstKeys {
  origin: 'generated' | 'written' | 'read';
}

/**
 * Returns the keys of the key file. Without a key file, returns the keys of the first start;
 * undefined on later starts.
 * @throws PlatformOptionError
 */
export async function prepareKeys(
  keys: Keys,
  { endpoints, keyFile }: { endpoints: readonly string[]; keyFile?: string | undefined },
): Promise<PlatformKeys | undefined> {
  if (keyFile !== undefined) return useKeyFile(keys, keyFile, endpoints);
  const first = await keys.ensureFirstKeys(endpoints);
  return first && { ...first, origin: 'generated' };
}

/**
 * Accepts the keys of the file, which is created if it is missing. The worker key is bound to these
 * endpoints and to those of earlier starts; without any it is valid for all endpoints.
 * @throws PlatformOptionError
 */
export async function useKeyFile(
  keys: Keys,
  path: string,
  endpointIds: readonly string[] = [],
): Promise<PlatformKeys> {
  const found = readKeyFile(path);
  const { admin, worker } = found ?? makeKeyFile(path);
  try {
    await keys.importKey(admin, { name: 'admin key of the key file', scopes: ['admin'] });
    const before = [...(keys.authenticate(worker)?.scopes ?? [])];
    const scopes = extendScopes(before, endpointIds);
    await keys.importKey(worker, { name: 'worker key of the key file', scopes });
  } catch (error) {
    throw error instanceof ProblemError
      ? refuse(KEY_FILE_OPTION, `${path}: ${error.message}`)
      : error;
  }
  return { admin, worker, origin: found ? 'read' : 'written' };
}

/** Adds the declared endpoints to the scopes that the worker key had. */
function extendScopes(before: readonly string[], endpointIds: readonly string[]): string[] {
  if (before.includes('worker') || (before.length > 0 && endpointIds.length === 0))
    return [...before];
  return [...new Set([...before, ...scopesOfWorkers(endpointIds)])];
}

function readKeyFile(path: string): FirstKeys | undefined {
  const content = readOptionFile(KEY_FILE_OPTION, path);
  if (content === undefined) return undefined;
  const lines = new Map(
    content.split(/\r?\n/).map((line): [string, string] => {
      const [name = '', ...value] = line.split('=');
      return [name.trim(), value.join('=').trim()];
    }),
  );
  const admin = lines.get(ADMIN);
  const worker = lines.get(WORKER);
  if (admin && worker) return { admin, worker };
  throw refuse(KEY_FILE_OPTION, `${path} has no ${admin ? WORKER : ADMIN}=… line`);
}

/** @throws PlatformOptionError if the file exists or cannot be written */
export function makeKeyFile(path: string): FirstKeys {
  const made = { admin: generateKey(), worker: generateKey() };
  createOptionFile(KEY_FILE_OPTION, path, `${ADMIN}=${made.admin}\n${WORKER}=${made.worker}\n`);
  return made;
}
