// The flags of a platform that is one of several nodes.
import { readFileSync } from 'node:fs';
import { DEFAULT_SHARDS } from '../../platform/defaults.ts';
import type { PlatformOptions } from '../../platform/platform-options.ts';
import { flagName, integer, type OptionValues, text, UsageError } from '../options.ts';

export const nodeOptions = {
  nodeUrl: text({
    placeholder: 'URL',
    env: 'MILLRACE_NODE_URL',
    help: 'makes this platform one of several nodes that share the database of --store; URL at which the other nodes reach this one, on a port of its own: http://10.0.0.5:8091',
  }),
  nodeListen: text({
    placeholder: 'HOST:PORT',
    env: 'MILLRACE_NODE_LISTEN',
    section: 'advanced',
    help: 'address and port to listen on for other nodes; default: those of --node-url',
  }),
  nodeSecretFile: text({
    placeholder: 'FILE',
    env: 'MILLRACE_NODE_SECRET_FILE',
    help: 'file with the secret of the nodes, 32 to 1,024 ASCII characters, as `millrace nodes init` writes it; with several lines, all are accepted and the first one is sent',
  }),
  advertiseUrl: text({
    placeholder: 'URL',
    env: 'MILLRACE_ADVERTISE_URL',
    help: 'URL at which workers reach this node directly, not through a load balancer: https://node-1.example.com:8080; workers then call the node that owns their endpoint; default: workers use only their --url',
  }),
  advertiseGrpcUrl: text({
    placeholder: 'URL',
    env: 'MILLRACE_ADVERTISE_GRPC_URL',
    section: 'advanced',
    help: 'gRPC URL at which workers reach this node directly, as --advertise-url for HTTP: grpcs://node-1.example.com:8090',
  }),
  shards: integer({
    min: 1,
    max: 256,
    placeholder: 'N',
    env: 'MILLRACE_SHARDS',
    section: 'advanced',
    help: `number of shards, the most nodes that can have jobs; fixed by the first node of a database; default: ${DEFAULT_SHARDS}`,
  }),
  replaceWorkersMs: integer({
    min: 0,
    max: 86_400_000,
    placeholder: 'MS',
    env: 'MILLRACE_REPLACE_WORKERS_MS',
    section: 'advanced',
    help: 'time after which other nodes replace the workers of a node that is gone, ms; 0: never; default: 300000',
  }),
};

type NodeValues = OptionValues<typeof nodeOptions> & {
  store: string | undefined;
  webhookSecretFile: string | undefined;
};

/** @throws UsageError that names all flags that are missing */
export function readNodes(values: NodeValues): PlatformOptions['nodes'] {
  const { advertiseGrpcUrl, advertiseUrl, nodeListen, nodeSecretFile, nodeUrl } = values;
  const { replaceWorkersMs, shards, store, webhookSecretFile } = values;
  if (nodeUrl === undefined) {
    const others = { nodeListen, nodeSecretFile, shards, advertiseUrl, advertiseGrpcUrl };
    const given = listFlags({ ...others, replaceWorkersMs }, { isGiven: true });
    if (given.length === 0) return undefined;
    throw new UsageError(`${join(given)} ${given.length === 1 ? 'needs' : 'need'} --node-url`);
  }
  const missing = listFlags({ store, nodeSecretFile, webhookSecretFile }, { isGiven: false });
  if (nodeSecretFile === undefined || missing.length > 0) {
    const how = '`millrace nodes init` writes the secrets that nodes share';
    throw new UsageError(`--node-url needs ${join(missing)}; ${how}`);
  }
  return {
    url: readUrl(nodeUrl),
    listen: nodeListen === undefined ? undefined : readListen(nodeListen),
    secrets: readSecrets(nodeSecretFile),
    secretFile: nodeSecretFile,
    advertiseUrl,
    advertiseGrpcUrl,
    shards,
    replaceWorkersMs,
  };
}

function listFlags(values: Readonly<Record<string, unknown>>, { isGiven }: { isGiven: boolean }) {
  const named = Object.entries(values).filter(([, value]) => (value !== undefined) === isGiven);
  return named.map(([name]) => flagName(name));
}

function join(flags: readonly string[]): string {
  return new Intl.ListFormat('en-GB').format(flags);
}

function readUrl(given: string): string {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url?.protocol === 'http:' && url.pathname === '/' && url.search === '') return url.origin;
  throw new UsageError('--node-url: must be a URL such as http://10.0.0.5:8091, without a path');
}

function readListen(given: string): { host: string; port: number } {
  const [, host, port] = /^\[?([^\]]+)\]?:(\d{1,5})$/.exec(given) ?? [];
  if (host !== undefined && Number(port) <= 65_535) return { host, port: Number(port) };
  throw new UsageError('--node-listen: must be an address and a port, such as 0.0.0.0:8091');
}

function readSecrets(path: string): string[] {
  let content: string;
  try {
    content = readFileSync(path, 'utf8');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new UsageError(`--node-secret-file: ${reason}`);
  }
  return content.split(/\r?\n/).filter((line) => line !== '');
}
