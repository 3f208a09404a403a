// Options of `serve` for the database, and for a platform that is one of several nodes on it.
import { DEFAULT_SHARDS } from '../../platform/defaults.ts';
import type { StoreLimits } from '../../platform/platform-options.ts';
import { readVariable } from '../config.ts';
import {
  defineGroup,
  flagName,
  integer,
  joinFlags,
  type OptionValues,
  readNamedFile,
  text,
  UsageError,
} from '../options.ts';
import { dataOption, mbInBytes, member } from './platform-option.ts';

const HOUR_MS = 3_600_000;

function milliseconds(limit: keyof StoreLimits, help: string, fallback: number) {
  const range = { min: 100, max: HOUR_MS, unit: 'ms' } as const;
  const sets = [member(`storeLimits.${limit}`)];
  return integer({ ...range, default: fallback, section: 'advanced', sets, help });
}

export function passwordFileOption(owner: string) {
  return text({
    placeholder: 'FILE',
    env: 'MILLRACE_STORE_PASSWORD_FILE',
    help: `file with the password for ${owner}; default: the password of the URL, or PGPASSWORD`,
  });
}

export const storeOptions = defineGroup('Data folder and database', {
  data: dataOption(
    'data folder: jobs, keys, pods; one platform at a time; with --store only files of this machine',
  ),
  store: text({
    placeholder: 'URL',
    sets: [member('store')],
    help: 'Postgres database for jobs, keys and endpoints: postgres://USER@HOST/DATABASE; default: a file in --data',
  }),
  storePasswordFile: {
    ...passwordFileOption('--store'),
    needs: 'store',
    sets: [member('storePassword', readPostgresPassword)],
  },
  storeConnectMs: milliseconds('connectTimeoutMs', 'maximum time to connect to Postgres', 10_000),
  storeLockWaitMs: milliseconds(
    'lockWaitMs',
    'how long the start waits for another platform to leave the Postgres database',
    15_000,
  ),
  storeStatementMs: milliseconds(
    'statementTimeoutMs',
    'maximum time of one statement on Postgres',
    30_000,
  ),
  storeWaitMs: milliseconds(
    'waitMs',
    'how long calls wait for a lost connection to Postgres before they fail with 503',
    5_000,
  ),
  diskReserve: integer({
    sets: [member('storage.reserveBytes', mbInBytes)],
    min: 0,
    max: 65_536,
    default: 32,
    unit: 'MB',
    section: 'advanced',
    help: 'disk space reserved for ending and deleting jobs while the disk is full; 0: no reserve',
  }),
  eraseAfterMs: integer({
    sets: [member('storage.eraseAfterMs')],
    min: 1,
    max: 24 * HOUR_MS,
    default: 30_000,
    unit: 'ms',
    section: 'advanced',
    help: 'time from a deletion until an idle platform erases the deleted data from its files',
  }),
  storeCheckMs: integer({
    sets: [member('storage.checkMs')],
    min: 0,
    max: 24 * HOUR_MS,
    default: 60_000,
    unit: 'ms',
    section: 'advanced',
    help: 'maximum time for the check of the database after the start; 0: no check',
  }),
});

/** The URL's own password wins. @throws UsageError */
export function readPostgresPassword(path: string | undefined): string | undefined {
  return path === undefined ? readVariable('PGPASSWORD') : readPassword(path);
}

function readPassword(path: string): string {
  const password = readNamedFile('--store-password-file', path).replace(/\r?\n$/, '');
  if (password === '') throw new UsageError(`--store-password-file: ${path} is empty`);
  return password;
}

export const nodeOptions = defineGroup('Nodes', {
  nodeUrl: text({
    placeholder: 'URL',
    sets: ['nodes', member('nodes.url', readUrl)],
    help: 'makes this platform one of several nodes that share the database of --store; URL at which the other nodes reach this one, on a port of its own: http://10.0.0.5:8091',
  }),
  nodeListen: text({
    needs: 'nodeUrl',
    placeholder: 'HOST:PORT',
    sets: [member('nodes.listen', readListen)],
    section: 'advanced',
    help: 'address and port to listen on for other nodes; default: those of --node-url',
  }),
  nodeSecretFile: text({
    needs: 'nodeUrl',
    placeholder: 'FILE',
    sets: [member('nodes.secretFile'), member('nodes.secrets', readSecrets)],
    help: 'file with the secret of the nodes, 32 to 1,024 ASCII characters, as `millrace nodes init` writes it; with several lines, all are accepted and the first one is sent',
  }),
  advertiseUrl: text({
    needs: 'nodeUrl',
    placeholder: 'URL',
    sets: [member('nodes.advertiseUrl')],
    help: 'URL at which workers reach this node directly, not through a load balancer: https://node-1.example.com:8080; workers then call the node that owns their endpoint; default: workers use only their --url',
  }),
  advertiseGrpcUrl: text({
    needs: 'nodeUrl',
    placeholder: 'URL',
    sets: [member('nodes.advertiseGrpcUrl')],
    section: 'advanced',
    help: 'gRPC URL at which workers reach this node directly, as --advertise-url for HTTP: grpcs://node-1.example.com:8090',
  }),
  shards: integer({
    needs: 'nodeUrl',
    min: 1,
    max: 256,
    placeholder: 'N',
    sets: [member('nodes.shards')],
    section: 'advanced',
    help: `number of shards, the most nodes that can have jobs; fixed by the first node of a database; default: ${DEFAULT_SHARDS}`,
  }),
  replaceWorkersMs: integer({
    needs: 'nodeUrl',
    sets: [member('nodes.replaceWorkersMs')],
    min: 0,
    max: 86_400_000,
    unit: 'ms',
    section: 'advanced',
    help: 'time after which other nodes replace the workers of a node that is gone; 0: never; default: 300000',
  }),
});

type NodeValues = OptionValues<typeof nodeOptions> & {
  store: string | undefined;
  webhookSecretFile: string | undefined;
};

/** @throws UsageError that names all flags that are missing */
export function checkNodes(values: NodeValues): void {
  const { nodeSecretFile, nodeUrl, store, webhookSecretFile } = values;
  if (nodeUrl === undefined) return;
  const needed = Object.entries({ store, nodeSecretFile, webhookSecretFile });
  const missing = needed.filter(([, value]) => value === undefined).map(([name]) => flagName(name));
  if (missing.length === 0) return;
  const how = '`millrace nodes init` writes the secrets that nodes share';
  throw new UsageError(`--node-url needs ${joinFlags(missing)}; ${how}`);
}

function readUrl(given: string | undefined): string | undefined {
  if (given === undefined) return undefined;
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url?.protocol === 'http:' && url.pathname === '/' && url.search === '') return url.origin;
  throw new UsageError('--node-url: must be a URL such as http://10.0.0.5:8091, without a path');
}

function readListen(given: string | undefined): { host: string; port: number } | undefined {
  if (given === undefined) return undefined;
  const [, host, port] = /^\[?([^\]]+)\]?:(\d{1,5})$/.exec(given) ?? [];
  if (host !== undefined && Number(port) <= 65_535) return { host, port: Number(port) };
  throw new UsageError('--node-listen: must be an address and a port, such as 0.0.0.0:8091');
}

function readSecrets(path: string | undefined): string[] | undefined {
  if (path === undefined) return undefined;
  return readNamedFile('--node-secret-file', path)
    .split(/\r?\n/)
    .filter((line) => line !== '');
}
