// Reads the operator's file of keys that encrypt the secrets of users: one key per line, the current one first.
import { randomBytes } from 'node:crypto';
import { SECRET_KEY_BYTES, SecretSealer } from '../../control/registries/sealed-secret.ts';
import { createOptionFile, PlatformOptionError, readOptionFile } from '../option-error.ts';

const OPTION = 'secretsKeyFile';
const MAX_KEYS = 100;

/** Undefined: without a key. @throws PlatformOptionError */
export function openSealer(path: string | undefined): SecretSealer {
  return new SecretSealer(path === undefined ? [] : readSecretKeys(path));
}

/** At least one. @throws PlatformOptionError that names the line */
export function readSecretKeys(path: string): Uint8Array[] {
  const content = readOptionFile(OPTION, path);
  if (content === undefined) {
    throw refuse(`${path} does not exist; make it: openssl rand -base64 ${SECRET_KEY_BYTES}`);
  }
  const lines = content.split(/\r?\n/).map((line, index) => ({ text: line.trim(), at: index + 1 }));
  const given = lines.filter(({ text }) => text !== '' && !text.startsWith('#'));
  if (given.length === 0) throw refuse(`${path} contains no key`);
  if (given.length > MAX_KEYS) throw refuse(`${path} contains more than ${MAX_KEYS} keys`);
  return given.map(({ at, text }) => {
    const key = Buffer.from(text, 'base64');
    // The decoder ignores what is not base64; the line itself stays out of the message.
    if (key.length === SECRET_KEY_BYTES && key.toString('base64') === text) return key;
    const wanted = `write ${SECRET_KEY_BYTES} random bytes as base64`;
    throw refuse(`${path}, line ${at}: invalid key; ${wanted}`);
  });
}

/** @throws PlatformOptionError if the file exists or cannot be written */
export function makeSecretsKey(path: string): void {
  createOptionFile(OPTION, path, `${randomBytes(SECRET_KEY_BYTES).toString('base64')}\n`);
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', OPTION, problem);
}
