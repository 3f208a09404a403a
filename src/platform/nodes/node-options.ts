// The options of a platform that is one of several nodes on a Postgres database.
import { PlatformOptionError } from '../option-error.ts';
import type { CompleteOptions } from '../platform-options.ts';

/** Of a secret, characters. */
const MIN_SECRET = 32;

export interface NodeOptions {
  /** How other nodes reach this one: `http://10.0.0.5:8091`. */
  url: string;
  /** Address and port to listen on for other nodes. Default: those of `url`. */
  listen?: { host: string; port: number } | undefined;
  /** Secrets that nodes send each other: the first is sent, all are accepted. At least 32 characters each. */
  secrets: readonly string[];
  /** Number of shards, which the first start fixes for good. Default 16. */
  shards?: number | undefined;
}

/** The options of a node, complete. */
export interface NodePlatformOptions extends CompleteOptions {
  nodes: NodeOptions;
  store: string;
}

/** Undefined: the platform is no node. @throws PlatformOptionError */
export function checkNodeOptions(options: CompleteOptions): NodePlatformOptions | undefined {
  const { compute, nodes, store, webhooks } = options;
  if (!nodes) return undefined;
  if (store === undefined) {
    throw refuse('nodes', 'needs a Postgres database, which the nodes share: set `store`');
  }
  if (compute.engine !== 'none') {
    const problem = `must be none with \`nodes\`: pods of the engine ${compute.engine} belong to one machine`;
    throw refuse('compute.engine', problem);
  }
  if (webhooks.secretFile === undefined) {
    throw refuse(
      'webhooks.secretFile',
      'is needed with `nodes`, with the same content on all of them',
    );
  }
  if (nodes.secrets.length === 0 || nodes.secrets.some(({ length }) => length < MIN_SECRET)) {
    const problem = `needs at least one secret, each of ${MIN_SECRET} or more characters`;
    throw refuse('nodes.secrets', problem);
  }
  return { ...options, nodes, store };
}

function refuse(option: string, problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', option, problem);
}
