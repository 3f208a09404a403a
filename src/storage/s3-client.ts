// Makes requests to S3: a client that connects to permitted addresses only, reads no settings of the machine, and whose
// errors hold no secret.
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
import { NonRetryableError } from '../handler/retry-errors.ts';
import { isTransient } from './fetch-body.ts';
import type { S3Settings } from './s3-settings.ts';

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
