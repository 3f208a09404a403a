// The file of the platform's keys: written on the first start, read on later starts.
import { type FirstKeys, type Keys, scopesOfWorkers } from '../../control/keys/keys.ts';
import { generateKey } from '../../control/keys/known-keys.ts';
import { ProblemError } from '../../wire/problem.ts';
import { createOptionFile, PlatformOptionError, readOptionFile } from '../option-error.ts';

const OPTION = 'keyFile';
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
    throw error instanceof ProblemError ? refuse(`${path}: ${error.message}`) : error;
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
  const content = readOptionFile(OPTION, path);
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
  throw refuse(`${path} has no ${admin ? WORKER : ADMIN}=… line`);
}

/** @throws PlatformOptionError if the file exists or cannot be written */
export function makeKeyFile(path: string): FirstKeys {
  const made = { admin: generateKey(), worker: generateKey() };
  createOptionFile(OPTION, path, `${ADMIN}=${made.admin}\n${WORKER}=${made.worker}\n`);
  return made;
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', OPTION, problem);
}
