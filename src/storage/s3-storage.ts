// The public API for uploads: puts files, bytes or streams into a bucket and gives a URL for each.
import { extname } from 'node:path';
import {
  type AddressRule,
  anyAddress,
  publicOnly,
  type ResolveName,
} from '../base/net/public-address.ts';
import type { Context, Job } from '../handler/define.ts';
import { NonRetryableError } from '../handler/thrown.ts';
import { checkNumber } from './check-number.ts';
import { createS3Client, loadS3Packages, readS3Settings, type S3Settings } from './s3-client.ts';
import { putObject, type UploadSource } from './upload.ts';

export interface StorageOptions {
  /** Default: `s3Config.bucketName`, or the variable BUCKET_NAME. */
  bucket?: string;
  /** Default: the region that the endpoint's host names, else us-east-1. */
  region?: string;
  /** Which addresses may be connected to. Default: `publicOnly` if the client named the endpoint, else `anyAddress`. */
  rule?: AddressRule;
  /** Resolves names. Default: the machine's resolver. */
  resolve?: ResolveName;
  /** Size of the parts of large uploads, 5,242,880 to 104,857,600 bytes. Default 8,388,608. */
  partBytes?: number;
  /** Parts of one upload that are sent at a time, 1 to 16; as many are in memory. Default 4. */
  concurrency?: number;
  /** Largest upload, bytes; at most 10,000 parts. Default 10,737,418,240 (10 GiB). */
  maxBytes?: number;
  /** Longest time of one upload, ms. Default 1,800,000. */
  timeoutMs?: number;
  /** How long URLs are valid, seconds, 1 to 604,800. Default 604,800 (seven days). */
  urlExpiresS?: number;
}

export type UploadOptions = UploadSource & {
  /** Name of the object, 1 to 1,024 bytes; the client's `objectPath` comes before it. */
  key: string;
  /** Default: from the extension of the key, else application/octet-stream. */
  contentType?: string;
};

export interface UploadedFile {
  /** Presigned URL: whoever has it can download the object until it expires. */
  url: string;
  bucket: string;
  /** With the client's `objectPath`. */
  key: string;
  bytes: number;
}

export interface Storage {
  /**
   * Uploads a file, bytes or a stream. A failed upload of several parts leaves none.
   *
   * @throws NonRetryableError if another attempt cannot help: the packages are not installed, the address is refused, it
   * is too large, a 4xx. An ordinary Error for the rest. The signal's reason if it aborts.
   */
  upload(options: UploadOptions, ctx: Pick<Context, 'signal'>): Promise<UploadedFile>;
  /** A presigned URL for the download of an object. `key` as `UploadedFile` has it. No request is made. */
  createUrl(key: string, urlExpiresS?: number): Promise<string>;
}

/**
 * Opens the storage that the job's client named (`job.s3Config`), else that of the worker's environment
 * (BUCKET_ENDPOINT_URL, BUCKET_ACCESS_KEY_ID, BUCKET_SECRET_ACCESS_KEY, BUCKET_NAME). Connects to nothing yet.
 *
 * @throws NonRetryableError if settings are missing or invalid, TypeError for a wrong option
 */
export function openStorage(job: Pick<Job, 's3Config'>, options: StorageOptions = {}): Storage {
  // biome-ignore lint/style/noProcessEnv: the variables of the worker, as handlers see them.
  const settings = readS3Settings(job.s3Config, process.env, options);
  return new S3Storage(settings, completeOptions(options, settings));
}

const MIB = 1_048_576;
const MAX_PARTS = 10_000;
const MAX_URL_EXPIRES_S = 604_800;

type CompleteOptions = ReturnType<typeof completeOptions>;

function completeOptions(options: StorageOptions, { source }: S3Settings) {
  const { partBytes = 8 * MIB, resolve, rule, urlExpiresS = MAX_URL_EXPIRES_S } = options;
  const { concurrency = 4, maxBytes = 10_240 * MIB, timeoutMs = 1_800_000 } = options;
  checkNumber('partBytes', partBytes, { min: 5 * MIB, max: 100 * MIB });
  checkNumber('concurrency', concurrency, { min: 1, max: 16 });
  checkNumber('maxBytes', maxBytes, { min: 1, max: MAX_PARTS * partBytes });
  checkNumber('timeoutMs', timeoutMs, { min: 1, max: 604_800_000 });
  checkNumber('urlExpiresS', urlExpiresS, { min: 1, max: MAX_URL_EXPIRES_S });
  const allowed = rule ?? (source === 'client' ? publicOnly : anyAddress);
  return { partBytes, concurrency, maxBytes, timeoutMs, urlExpiresS, resolve, rule: allowed };
}

class S3Storage implements Storage {
  // Private, so that a log of this object shows no secret.
  readonly #settings: S3Settings;
  readonly #options: CompleteOptions;

  constructor(settings: S3Settings, options: CompleteOptions) {
    this.#settings = settings;
    this.#options = options;
  }

  async upload(options: UploadOptions, { signal }: Pick<Context, 'signal'>): Promise<UploadedFile> {
    signal.throwIfAborted();
    const { bucket, prefix } = this.#settings;
    const key = checkKey(prefix === '' ? options.key : `${prefix}/${options.key}`);
    const contentType = options.contentType ?? findContentType(key);
    const { timeoutMs, partBytes, concurrency, maxBytes } = this.#options;
    const timeout = AbortSignal.timeout(timeoutMs);
    const packages = loadS3Packages();
    try {
      using client = this.#connect(packages);
      const bytes = await putObject({
        client: client.s3,
        packages,
        source: options,
        bucket,
        key,
        contentType,
        partBytes,
        concurrency,
        maxBytes,
        signal: AbortSignal.any([signal, timeout]),
      });
      return { url: await this.createUrl(key), bucket, key, bytes };
    } catch (error) {
      signal.throwIfAborted();
      if (timeout.aborted) throw new Error(`upload of ${key}: not done within ${timeoutMs} ms`);
      throw error;
    }
  }

  async createUrl(key: string, urlExpiresS = this.#options.urlExpiresS): Promise<string> {
    checkNumber('urlExpiresS', urlExpiresS, { min: 1, max: MAX_URL_EXPIRES_S });
    const packages = loadS3Packages();
    const { GetObjectCommand } = packages.client;
    const command = new GetObjectCommand({ Bucket: this.#settings.bucket, Key: checkKey(key) });
    using client = this.#connect(packages);
    return await packages.presigner.getSignedUrl(client.s3, command, { expiresIn: urlExpiresS });
  }

  #connect(packages: ReturnType<typeof loadS3Packages>) {
    const s3 = createS3Client(packages, this.#settings, this.#options);
    return { s3, [Symbol.dispose]: () => s3.destroy() };
  }
}

const TYPES: ReadonlyMap<string, string> = new Map([
  ['.csv', 'text/csv'],
  ['.flac', 'audio/flac'],
  ['.gif', 'image/gif'],
  ['.glb', 'model/gltf-binary'],
  ['.jpeg', 'image/jpeg'],
  ['.jpg', 'image/jpeg'],
  ['.json', 'application/json'],
  ['.mp3', 'audio/mpeg'],
  ['.mp4', 'video/mp4'],
  ['.ogg', 'audio/ogg'],
  ['.pdf', 'application/pdf'],
  ['.png', 'image/png'],
  ['.txt', 'text/plain; charset=utf-8'],
  ['.wav', 'audio/wav'],
  ['.webm', 'video/webm'],
  ['.webp', 'image/webp'],
  ['.zip', 'application/zip'],
]);

function findContentType(key: string): string {
  return TYPES.get(extname(key).toLowerCase()) ?? 'application/octet-stream';
}

const MAX_KEY_BYTES = 1_024;

/** Returns the key. @throws NonRetryableError: the same input has the same key in each attempt */
function checkKey(key: string): string {
  const refuse = (problem: string) =>
    new NonRetryableError(`key ${JSON.stringify(key.slice(0, 100))}: ${problem}`);
  const bytes = Buffer.byteLength(key);
  if (bytes < 1 || bytes > MAX_KEY_BYTES) {
    throw refuse(`has ${bytes} bytes; a key has 1 to ${MAX_KEY_BYTES}`);
  }
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
  if (/[\u0000-\u001f\u007f]/.test(key)) throw refuse('has a control character');
  // Proxies resolve such segments, and the request would be for another object.
  const isRelative = key
    .split('/')
    .some((segment) => segment === '.' || segment === '..' || segment === '');
  if (isRelative) throw refuse('has an empty, . or .. segment');
  return key;
}
