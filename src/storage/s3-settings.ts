// Reads where uploads go: from a job's `s3Config`, or from the variables that runpod-python reads. The two are never
// mixed: a client could otherwise have requests to a server of its own signed with the worker's keys.
import { NonRetryableError } from '../handler/retry-errors.ts';
import type { S3Config } from '../wire/job/job.ts';

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
