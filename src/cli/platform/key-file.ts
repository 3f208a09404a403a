// The keys of `millrace serve --key-file`: made and written on the first start, read on later ones.
import { readFileSync, writeFileSync } from 'node:fs';
import {
  type FirstKeys,
  generateKey,
  type Keys,
  scopesOfWorkers,
} from '../../control/keys/keys.ts';
import { ProblemError } from '../../wire/problem.ts';
import { UsageError } from '../options.ts';

const ADMIN = 'MILLRACE_ADMIN_KEY';
const WORKER = 'MILLRACE_WORKER_KEY';
const OWNER_ONLY = 0o600;

export interface FileKeys extends FirstKeys {
  origin: 'made' | 'read';
}

/**
 * The platform lets in the keys of the file, which is made if it is missing. The worker key is bound to
 * these endpoints, and stays bound to those of earlier starts; without any it is for all endpoints.
 * @throws UsageError
 */
export async function useKeyFile(
  keys: Keys,
  path: string,
  endpointIds: readonly string[] = [],
): Promise<FileKeys> {
  const found = readKeyFile(path);
  const { admin, worker } = found ?? makeKeyFile(path);
  try {
    await keys.importKey(admin, { name: 'admin key of the key file', scopes: ['admin'] });
    const before = [...(keys.authenticate(worker)?.scopes ?? [])];
    const scopes = extendScopes(before, endpointIds);
    await keys.importKey(worker, { name: 'worker key of the key file', scopes });
  } catch (error) {
    if (error instanceof ProblemError)
      throw new UsageError(`--key-file: ${path}: ${error.message}`);
    throw error;
  }
  return { admin, worker, origin: found ? 'read' : 'made' };
}

/** What the worker key could do, and the endpoints that are declared now. */
function extendScopes(before: readonly string[], endpointIds: readonly string[]): string[] {
  if (before.includes('worker') || (before.length > 0 && endpointIds.length === 0))
    return [...before];
  return [...new Set([...before, ...scopesOfWorkers(endpointIds)])];
}

function readKeyFile(path: string): FirstKeys | undefined {
  let content: string;
  try {
    content = readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw refuse(error);
  }
  const lines = new Map(
    content.split(/\r?\n/).map((line): [string, string] => {
      const [name = '', ...value] = line.split('=');
      return [name.trim(), value.join('=').trim()];
    }),
  );
  const admin = lines.get(ADMIN);
  const worker = lines.get(WORKER);
  if (admin && worker) return { admin, worker };
  throw new UsageError(`--key-file: ${path} has no ${admin ? WORKER : ADMIN}=… line`);
}

function makeKeyFile(path: string): FirstKeys {
  const made = { admin: generateKey(), worker: generateKey() };
  try {
    writeFileSync(path, `${ADMIN}=${made.admin}\n${WORKER}=${made.worker}\n`, {
      flag: 'wx',
      mode: OWNER_ONLY,
    });
  } catch (error) {
    throw refuse(error);
  }
  return made;
}

function refuse(error: unknown): UsageError {
  return new UsageError(`--key-file: ${error instanceof Error ? error.message : String(error)}`);
}
