// The name of a node, stored with the pods of its machine: with the same data folder, a node finds its pods again,
// whatever its URL is.
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { PlatformOptionError } from '../option-error.ts';

const NAME = /^[a-z0-9][a-z0-9-]{0,62}$/;
const MAX_HOST = 48;

/** @throws PlatformOptionError if the file does not contain a name */
export function readNodeName(dataFolder: string): string {
  const path = join(dataFolder, 'node-name');
  try {
    // If two processes create the file, the first wins.
    writeFileSync(path, `${createName(hostname())}\n`, { flag: 'wx' });
  } catch (error) {
    const isThere = error instanceof Error && 'code' in error && error.code === 'EEXIST';
    if (!isThere) throw error;
  }
  const name = readFileSync(path, 'utf8').trim();
  if (NAME.test(name)) return name;
  throw new PlatformOptionError(
    'unusable',
    'dataFolder',
    `${path}: must contain the name of this node, up to 63 lowercase letters, digits and hyphens; ` +
      'with another name the nodes do not find its pods',
  );
}

/** Several nodes of one machine get different names. */
export function createName(host: string): string {
  const [first = ''] = host.toLowerCase().split('.');
  const readable = first.replace(/[^a-z0-9-]/g, '-').replace(/^-+|-+$/g, '');
  const suffix = randomBytes(3).toString('hex');
  return `${readable.slice(0, MAX_HOST) || 'node'}-${suffix}`;
}
