// The file that says which endpoint, pod and process a worker's folder belongs to.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readForeignFile } from './journal.ts';

const IDENTITY_FILE = 'worker.json';
/** Larger than any valid identity. */
const MAX_IDENTITY_BYTES = 65_536;

interface FolderIdentity {
  incarnation: number;
  endpointId: string;
  /** The worker's pod. Undefined without a pod. */
  podId?: string | undefined;
}

/** Reads the identity in this folder; undefined if it is not a worker's folder. */
export function readIdentity(folder: string): FolderIdentity | undefined {
  try {
    return parseIdentity(readFileSync(join(folder, IDENTITY_FILE), 'utf8'));
  } catch {
    return undefined;
  }
}

/** Like `readIdentity`, for a folder that another user owns. */
export async function readForeignIdentity(folder: string): Promise<FolderIdentity | undefined> {
  try {
    const bytes = await readForeignFile(join(folder, IDENTITY_FILE), MAX_IDENTITY_BYTES);
    return parseIdentity(bytes.toString());
  } catch {
    return undefined;
  }
}

export function writeIdentity(folder: string, identity: FolderIdentity): void {
  const path = join(folder, IDENTITY_FILE);
  writeFileSync(`${path}.new`, `${JSON.stringify(identity)}\n`, { flush: true });
  renameSync(`${path}.new`, path);
}

function parseIdentity(text: string): FolderIdentity | undefined {
  const { endpointId, incarnation, podId } = JSON.parse(text);
  if (!Number.isSafeInteger(incarnation) || typeof endpointId !== 'string') return undefined;
  return { incarnation, endpointId, ...(typeof podId === 'string' && { podId }) };
}
