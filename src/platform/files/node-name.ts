// The name of a node, stored with the pods of its machine: with the same data folder, a node finds its pods again,
// whatever its URL is.
import { randomBytes, randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { keepName } from './kept-name.ts';

const MAX_HOST = 48;

/** @throws PlatformOptionError if the file does not contain a name */
export function readNodeName(dataFolder: string): string {
  return keepName({
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
