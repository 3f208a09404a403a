// The files of secrets that options name, and a warning if all users of the machine can read one.
import { statSync } from 'node:fs';
import type { Log } from '../../base/log.ts';
import type { CompleteOptions } from '../platform-options.ts';

/** Permissions of all who are neither the owner nor in the group. */
const OTHERS = 0o007;
const PERMISSIONS = 0o777;

type SecretFileOptions = Pick<
  CompleteOptions,
  'keyFile' | 'nodes' | 'secretsKeyFile' | 'tls' | 'webhooks'
>;

/** By option; undefined for options that are not given. */
export function listSecretFiles({
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
