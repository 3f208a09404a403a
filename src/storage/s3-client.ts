// Makes requests to S3: reads the settings of a job or of the worker, and makes a client that connects to permitted
// addresses only and whose errors hold no secret.
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { createRequire } from 'node:module';
import type { S3Client } from '@aws-sdk/client-s3';
import { checkProxied } from '../base/net/outgoing-agents.ts';
import { describeProxy, readProxies, toAgentProxy } from '../base/net/outgoing-proxy.ts';
import {
  type AddressRule,
  guardLookup,
  judgeLiteral,
  RefusedAddressError,
  type ResolveName,
} from '../base/net/public-address.ts';
import { readHandlerFile } from '../handler/loading/handler-file.ts';
import { NonRetryableError } from '../handler/thrown.ts';
import type { S3Config } from '../wire/job/job.ts';
import { isTransient } from './fetch-body.ts';

/** Attempts of one request; the waits between them are the SDK's. */
const MAX_ATTEMPTS = 3;
const CONNECT_TIMEOUT_MS = 10_000;
/** For one request, which carries at most one part. */
const REQUEST_TIMEOUT_MS = 300_000;
const MAX_REASON_CHARS = 300;

interface S3Connection {
  /** For one call. */
  concurrency: number;
  rule: AddressRule;
  resolve: ResolveName | undefined;
}

/** @throws NonRetryableError if the endpoint is an address that the rule refuses */
export function createS3Client(
  { client: { S3Client } }: S3Packages,
  settings: S3Settings,
  { concurrency, resolve, rule }: S3Connection,
): S3Client {
  const { accessId: accessKeyId, accessSecret: secretAccessKey, endpoint, region } = settings;
  const refusal = judgeLiteral(endpoint.hostname, rule);
  if (refusal) throw new NonRetryableError(`S3 storage: ${refusal.message}`);
  // biome-ignore lint/style/noProcessEnv: the variables of the worker, as handlers see them.
  const proxy = readProxies(process.env)(endpoint);
  const guard = { rule, resolve };
  const agent = {
    keepAlive: true,
    maxSockets: concurrency,
    // A proxy resolves names itself.
    ...(proxy ? toAgentProxy(proxy) : { lookup: guardLookup(guard) }),
  };
  const s3 = new S3Client({
    endpoint: endpoint.href,
    region,
    credentials: { accessKeyId, secretAccessKey },
    // Works with every server. Names of buckets in host names need DNS entries and certificates.
    forcePathStyle: true,
    // Many servers do not know the checksums that the SDK would add. Signatures cover the content.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    maxAttempts: MAX_ATTEMPTS,
    requestHandler: {
      connectionTimeout: CONNECT_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      throwOnRequestTimeout: true,
      httpAgent: new HttpAgent(agent),
      httpsAgent: new HttpsAgent(agent),
    },
    // Everything that the SDK would otherwise look up in the machine's AWS settings.
    defaultsMode: 'standard',
    retryMode: 'standard',
    useArnRegion: false,
    useDualstackEndpoint: false,
    useFipsEndpoint: false,
    disableMultiregionAccessPoints: true,
    disableS3ExpressSessionAuth: true,
    followRegionRedirects: false,
  });
  s3.middlewareStack.add(
    (next, { commandName = 'request' }) =>
      async (input) => {
        const action = `S3 ${commandName.replace(/Command$/, '')}${describeProxy(proxy)}`;
        try {
          if (proxy) await checkProxied(endpoint.hostname, guard);
          return await next(input);
        } catch (error) {
          throw explainError(error, action, settings);
        }
      },
    { step: 'initialize', priority: 'high', name: 'explainErrors' },
  );
  return s3;
}

/**
 * What to throw for a failed request. The SDK's own errors hold requests, answers and access IDs, and would show them in
 * logs.
 */
function explainError(error: unknown, action: string, settings: S3Settings): Error {
  const refused = findRefusal(error);
  if (refused) return new NonRetryableError(`${action}: ${refused.message}`);
  const status = readStatus(error);
  const name = error instanceof Error ? error.name : 'Error';
  const message = hideSecrets(error instanceof Error ? error.message : String(error), settings);
  const answer = status === undefined ? '' : ` (${status})`;
  const reason = `${name}${answer}: ${message.slice(0, MAX_REASON_CHARS)}`;
  const isFinal = status !== undefined && status >= 300 && !isTransient(status);
  const text = `${action}: ${reason}`;
  return isFinal ? new NonRetryableError(text) : new Error(text);
}

function hideSecrets(text: string, { accessId, accessSecret }: S3Settings): string {
  return text.replaceAll(accessSecret, '[secret]').replaceAll(accessId, '[access ID]');
}

function findRefusal(error: unknown): RefusedAddressError | undefined {
  for (let each = error; each instanceof Error; each = each.cause) {
    if (each instanceof RefusedAddressError) return each;
  }
  return undefined;
}

function readStatus(error: unknown): number | undefined {
  if (typeof error !== 'object' || error === null || !('$metadata' in error)) return undefined;
  const metadata = error.$metadata;
  if (typeof metadata !== 'object' || metadata === null) return undefined;
  const status: unknown = Reflect.get(metadata, 'httpStatusCode');
  return typeof status === 'number' ? status : undefined;
}

export interface S3Packages {
  client: typeof import('@aws-sdk/client-s3');
  presigner: typeof import('@aws-sdk/s3-request-presigner');
}

let loaded: S3Packages | undefined;

/** @throws NonRetryableError that names the command which installs the packages */
export function loadS3Packages(): S3Packages {
  loaded ??= loadFrom(readHandlerFile()) ?? loadFrom(import.meta.url);
  if (loaded) return loaded;
  throw new NonRetryableError(
    'uploads to S3 need two packages in the project of the handler: ' +
      'npm install @aws-sdk/client-s3 @aws-sdk/s3-request-presigner',
  );
}

/** Undefined if a package is not installed there. */
export function loadFrom(file: string | undefined): S3Packages | undefined {
  if (file === undefined) return undefined;
  const load = createRequire(file);
  try {
    return { client: load('@aws-sdk/client-s3'), presigner: load('@aws-sdk/s3-request-presigner') };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

export interface S3Settings {
  /** http or https, without user, query and bucket. */
  endpoint: URL;
  region: string;
  bucket: string;
  accessId: string;
  accessSecret: string;
  /** Begins each key; without a slash at its ends. */
  prefix: string;
  /** `client`: the job's client has chosen the endpoint. */
  source: 'client' | 'environment';
}

/** What an author's options set. */
interface ChosenSettings {
  bucket?: string | undefined;
  region?: string | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

const VARIABLES = {
  endpointUrl: 'BUCKET_ENDPOINT_URL',
  accessId: 'BUCKET_ACCESS_KEY_ID',
  accessSecret: 'BUCKET_SECRET_ACCESS_KEY',
  bucketName: 'BUCKET_NAME',
} as const;
const REQUIRED = ['endpointUrl', 'accessId', 'accessSecret'] as const;

/** Excludes ARNs and other names that stand for another host. */
const BUCKET = /^[A-Za-z0-9][A-Za-z0-9._-]{1,62}$/;
const REGION = /^[A-Za-z0-9-]{1,64}$/;
/** `bucket.s3.region.amazonaws.com`: the form that runpod-python's documentation uses. */
const AWS_BUCKET_HOST = /^(.+)\.(s3[.-](?:[a-z0-9-]+\.)?amazonaws\.com(?:\.cn)?)$/;
const S3_HOST = /(?:^|\.)s3[.-]([a-z0-9-]+)\./;
const SPACES_HOST = /(?:^|\.)([a-z0-9-]+)\.digitaloceanspaces\.com$/;
const DEFAULT_REGION = 'us-east-1';

/** @throws NonRetryableError that names what is missing or wrong, without secrets */
export function readS3Settings(
  s3Config: S3Config | undefined,
  environment: Environment,
  chosen: ChosenSettings,
): S3Settings {
  const source = s3Config ? 'client' : 'environment';
  const found = s3Config ?? readEnvironment(environment);
  const nameOf = (member: keyof typeof VARIABLES) =>
    s3Config ? `s3Config.${member}` : VARIABLES[member];
  const missing = REQUIRED.filter((member) => !found[member]).map(nameOf);
  const { accessId, accessSecret, endpointUrl } = found;
  if (!accessId || !accessSecret || !endpointUrl) {
    const remedy = s3Config
      ? 'the client must send it'
      : 'set it in the environment of the worker, or let the client send s3Config';
    throw new NonRetryableError(`S3 storage: ${missing.join(', ')} is missing; ${remedy}`);
  }
  const { bucket: hostBucket, endpoint } = readEndpoint(endpointUrl, nameOf('endpointUrl'));
  const bucket = chosen.bucket ?? (found.bucketName || hostBucket);
  if (hostBucket !== undefined && bucket !== hostBucket) {
    throw new NonRetryableError(
      `S3 storage: ${nameOf('endpointUrl')} names the bucket ${hostBucket}, and another one is set: ${bucket}`,
    );
  }
  if (bucket === undefined || !BUCKET.test(bucket)) {
    const fault = bucket ? `is no name of a bucket: ${JSON.stringify(bucket)}` : 'is missing';
    throw new NonRetryableError(`S3 storage: ${nameOf('bucketName')} ${fault}`);
  }
  const region = chosen.region ?? findRegion(endpoint.hostname);
  if (!REGION.test(region))
    throw new TypeError(`region ${region} is invalid; pass a name such as us-east-1`);
  const prefix = s3Config?.objectPath?.replace(/^\/+|\/+$/g, '') ?? '';
  return { endpoint, region, bucket, accessId, accessSecret, prefix, source };
}

function readEnvironment(environment: Environment): S3Config {
  const values = Object.entries(VARIABLES).map(([member, name]) => [member, environment[name]]);
  return Object.fromEntries(values);
}

/** @throws NonRetryableError; its message has no URL, which may hold a password */
function readEndpoint(text: string, name: string): { endpoint: URL; bucket: string | undefined } {
  const url = URL.parse(text.trim());
  const refuse = (problem: string) => new NonRetryableError(`S3 storage: ${name} ${problem}`);
  if (url === null) throw refuse('is not a URL');
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw refuse(`begins with ${url.protocol}; use https: or http:`);
  }
  if (url.username !== '' || url.password !== '') {
    throw refuse('must not carry a user name or password');
  }
  if (url.search !== '' || url.hash !== '') throw refuse('must not have a query or a fragment');
  const [, bucket, host] = AWS_BUCKET_HOST.exec(url.hostname) ?? [];
  if (host !== undefined) url.hostname = host;
  return { endpoint: url, bucket };
}

/** The region that the host names. Most servers that are not Amazon's accept any. */
function findRegion(host: string): string {
  const region = S3_HOST.exec(host)?.[1] ?? SPACES_HOST.exec(host)?.[1];
  return region === undefined || region === 'amazonaws' ? DEFAULT_REGION : region;
}
