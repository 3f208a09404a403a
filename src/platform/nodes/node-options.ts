// The options of a platform that is one of several nodes on a Postgres database.
import { PlatformOptionError } from '../option-error.ts';
import type { CompleteOptions, NodeOptions, WebhookOptions } from '../platform-options.ts';

/** Of a secret, characters. It travels in a header, with others. */
const MIN_SECRET = 32;
const MAX_SECRET = 1_024;
/** Of an advertised URL, characters: workers refuse longer ones. */
const MAX_ADVERTISED = 512;
const SECRET = new RegExp(`^[\\x21-\\x7e]{${MIN_SECRET},${MAX_SECRET}}$`);

export interface NodePlatformOptions extends CompleteOptions {
  nodes: NodeOptions;
  store: string;
  webhooks: WebhookOptions & { secretFile: string };
}

/**
 * The name by which nodes find the pods of their cluster, which is one machine of all of them. Undefined: each node has
 * a machine of its own.
 */
export function findClusterName({
  engine,
  kubernetes,
}: CompleteOptions['compute']): string | undefined {
  return engine === 'kubernetes' ? kubernetes?.settings?.platform : undefined;
}

/** Undefined: the platform is no node. @throws PlatformOptionError */
export function checkNodeOptions(options: CompleteOptions): NodePlatformOptions | undefined {
  const { nodes, store, webhooks } = options;
  if (!nodes) return undefined;
  if (store === undefined) {
    throw refuse('nodes', 'needs a Postgres database, which the nodes share: set `store`');
  }
  const { secretFile } = webhooks;
  if (secretFile === undefined) {
    throw refuse(
      'webhooks.secretFile',
      'is needed with `nodes`, with the same content on all of them',
    );
  }
  if (options.compute.engine === 'kubernetes' && findClusterName(options.compute) === undefined) {
    const problem = 'needs `platform` in its settings with nodes: the same name for all of them';
    throw refuse('compute.kubernetes.settings', problem);
  }
  checkSecrets(nodes.secrets);
  checkAdvertised('nodes.advertiseUrl', nodes.advertiseUrl, ['http:', 'https:']);
  checkAdvertised('nodes.advertiseGrpcUrl', nodes.advertiseGrpcUrl, ['grpc:', 'grpcs:']);
  return { ...options, nodes, store, webhooks: { ...webhooks, secretFile } };
}

/** Never shows a secret. @throws PlatformOptionError */
export function checkSecrets(secrets: readonly string[]): void {
  if (secrets.length > 0 && secrets.every((secret) => SECRET.test(secret))) return;
  const problem = `needs at least one secret, each of ${MIN_SECRET} to ${MAX_SECRET} visible ASCII characters`;
  throw refuse('nodes.secrets', problem);
}

/** @throws PlatformOptionError */
export function checkAdvertised(
  option: string,
  given: string | undefined,
  schemes: readonly [string, string],
): void {
  if (given === undefined) return;
  const url = given.length <= MAX_ADVERTISED ? URL.parse(given) : null;
  const isPlain = url && !url.username && !url.password && !url.search && !url.hash;
  const hasPath = url && schemes[0] === 'grpc:' && !['', '/'].includes(url.pathname);
  // It travels in a header.
  const isText = /^[\x21-\x7e]+$/.test(given);
  if (isPlain && isText && url.hostname && schemes.includes(url.protocol) && !hasPath) return;
  const scheme = schemes.map((each) => each.slice(0, -1)).join(' or ');
  throw refuse(
    option,
    `must be an ${scheme} URL of at most ${MAX_ADVERTISED} ASCII characters without user, query and fragment${schemes[0] === 'grpc:' ? ', and without a path' : ''}`,
  );
}

function refuse(option: string, problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', option, problem);
}
