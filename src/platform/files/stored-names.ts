// Names that are created with the data folder and kept in files there: the platform's on a shared engine, by which it finds
// its own containers, and a node's, by which it finds its pods again, whatever its URL is.
import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { PlatformOptionError } from '../option-error.ts';
import { createFile, hasCode } from './durable-files.ts';

/** @throws PlatformOptionError if the file does not contain a name */
export function readEngineName(dataFolder: string): string {
  return storeName({
    dataFolder,
    file: 'engine-name',
    pattern: /^[a-z0-9]{4,32}$/,
    create: () => randomBytes(6).toString('hex'),
    requirement:
      "this platform's name on its engine, 4 to 32 lowercase letters and digits; " +
      'with another name the platform does not find its containers',
  });
}

const MAX_HOST = 48;

/** @throws PlatformOptionError if the file does not contain a name */
export function readNodeName(dataFolder: string): string {
  return storeName({
    dataFolder,
    file: 'node-name',
    pattern: /^[a-z0-9][a-z0-9-]{0,62}$/,
    create: () => createName(hostname()),
    requirement:
      'the name of this node, up to 63 lowercase letters, digits and hyphens; ' +
      'with another name the nodes do not find its pods',
  });
}

/** The ID of this run of a node contains the node's name, so that others know it when the node is gone. */
export function createNodeId(name: string): string {
  return name === '' ? `node_${randomUUID()}` : `node_${name}_${randomUUID()}`;
}

/** Null if the ID has none: the node has no engine. */
export function findNameInId(id: string): string | null {
  return /^node_([a-z0-9][a-z0-9.-]{0,252})_[0-9a-f-]{36}$/.exec(id)?.[1] ?? null;
}

/** Several nodes of one machine get different names. */
export function createName(host: string): string {
  const [first = ''] = host.toLowerCase().split('.');
  const readable = first.replace(/[^a-z0-9-]/g, '-').replace(/^-+|-+$/g, '');
  const suffix = randomBytes(3).toString('hex');
  return `${readable.slice(0, MAX_HOST) || 'node'}-${suffix}`;
}

interface StoredName {
  dataFolder: string;
  file: string;
  pattern: RegExp;
  create: () => string;
  /** What the file must contain, and why. */
  requirement: string;
}

/** @throws PlatformOptionError if the file does not contain a name */
function storeName({ create, dataFolder, file, pattern, requirement }: StoredName): string {
  const path = join(dataFolder, file);
  try {
    // If two processes create the file, the first wins.
    createFile(path, `${create()}\n`);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
  const name = readFileSync(path, 'utf8').trim();
  if (pattern.test(name)) return name;
  throw new PlatformOptionError('unusable', 'dataFolder', `${path}: must contain ${requirement}`);
}
