// Downloads what URLs in a job's input name, into the temporary folder of the attempt or into memory.
import { createWriteStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type AddressRule, publicOnly, type ResolveName } from '../base/net/public-address.ts';
import type { Context } from '../handler/define.ts';
import { NonRetryableError } from '../handler/thrown.ts';
import { checkNumber } from './check-number.ts';
import { type FetchedBody, type FetchOptions, fetchBody } from './fetch-body.ts';

export interface DownloadOptions {
  /** Name of the URL in errors, such as `input.url`. Default `url`. */
  name?: string;
  /** Most bytes of a call: of all files together. Default 1,073,741,824 (1 GiB); in memory 20,971,520 (20 MiB). */
  maxBytes?: number;
  /** Longest time of a call, redirects included, ms. Default 600,000. */
  timeoutMs?: number;
  /** Default 5; 0: none. */
  maxRedirects?: number;
  /** Which addresses may be connected to, also after redirects. Default: `publicOnly` of `millrace/outgoing`. */
  rule?: AddressRule;
  /** Resolves names. Default: the machine's resolver. */
  resolve?: ResolveName;
}

export interface DownloadAllOptions extends DownloadOptions {
  /** Downloads at a time, 1 to 100. Default 4. */
  concurrency?: number;
  /** Most URLs. Default 100. */
  maxFiles?: number;
}

export interface DownloadedFile {
  /** Absolute path. The file is gone when the attempt has ended. */
  path: string;
  /** Last part of `path`: from the answer or the URL, with letters, digits, `.`, `_` and `-` only. */
  name: string;
  bytes: number;
  /** Content-Type of the answer, which the server may have made up. */
  contentType: string | undefined;
}

/** A handler's `ctx`, or a job of a batch. */
export type DownloadContext = Pick<Context, 'signal' | 'tempFolder'>;

const GIB = 1_073_741_824;
const MAX_BYTES_IN_MEMORY = 20_971_520;
const MAX_TIMEOUT_MS = 604_800_000;

/**
 * Downloads one file into the attempt's temporary folder.
 *
 * @throws NonRetryableError where trying again cannot help: a bad URL, a refused address, too many bytes or redirects, a
 * 4xx. RetryAfterError if the server asked for a wait. An ordinary Error for the rest. The signal's reason if it aborts.
 */
export async function download(
  url: string,
  ctx: DownloadContext,
  options: DownloadOptions = {},
): Promise<DownloadedFile> {
  const budget = { left: readMaxBytes(options, GIB) };
  return await downloadTo(url, ctx, budget, completeOptions(options, ctx.signal));
}

/** Downloads several files; the results have the order of the URLs. If one fails, so do all. Throws as `download`. */
export async function downloadAll(
  urls: readonly string[],
  ctx: DownloadContext,
  options: DownloadAllOptions = {},
): Promise<DownloadedFile[]> {
  const { concurrency = 4, maxFiles = 100, name = 'urls' } = options;
  checkNumber('concurrency', concurrency, { min: 1, max: 100 });
  checkNumber('maxFiles', maxFiles, { min: 1, max: 100_000 });
  if (urls.length > maxFiles) {
    throw new NonRetryableError(`${name}: has ${urls.length} URLs; the limit is ${maxFiles}`);
  }
  const abort = new AbortController();
  const complete = completeOptions(options, AbortSignal.any([ctx.signal, abort.signal]));
  const budget = { left: readMaxBytes(options, GIB) };
  const files: DownloadedFile[] = [];
  const entries = urls.entries();
  /** Each runs one download after the other; they share the iterator. */
  const lane = async () => {
    for (const [index, url] of entries) {
      files[index] = await downloadTo(url, ctx, budget, { ...complete, name: `${name}[${index}]` });
    }
  };
  let first: { error: unknown } | undefined;
  const stopAll = (error: unknown) => {
    first ??= { error };
    abort.abort(error);
  };
  const lanes = Array.from({ length: Math.min(concurrency, urls.length) }, () =>
    lane().catch(stopAll),
  );
  await Promise.all(lanes);
  if (first) throw first.error;
  return files;
}

/** Downloads into memory. Throws as `download`. */
export async function downloadBytes(
  url: string,
  ctx: Pick<Context, 'signal'>,
  options: DownloadOptions = {},
): Promise<Buffer> {
  const budget = { left: readMaxBytes(options, MAX_BYTES_IN_MEMORY) };
  return await fetchBody(url, completeOptions(options, ctx.signal), async (fetched) => {
    const pieces: Uint8Array[] = [];
    for await (const piece of limitBytes(fetched, budget)) pieces.push(piece);
    return Buffer.concat(pieces);
  });
}

/** Bytes that may still come, of all files of a call. */
interface Budget {
  left: number;
}

async function downloadTo(
  url: string,
  ctx: DownloadContext,
  budget: Budget,
  options: FetchOptions,
): Promise<DownloadedFile> {
  return await fetchBody(url, options, async (fetched) => {
    // A folder for each file: it keeps its name, and names do not collide.
    const folder = await mkdtemp(join(ctx.tempFolder(), 'download-'));
    try {
      const contentType = readHeader(fetched, 'content-type');
      const contentDisposition = readHeader(fetched, 'content-disposition');
      const name = chooseFileName({ url: fetched.url, contentDisposition, contentType });
      const path = join(folder, name);
      const file = createWriteStream(path, { flags: 'wx', mode: 0o600 });
      await pipeline(limitBytes(fetched, budget), file, { signal: options.signal });
      return { path, name, bytes: file.bytesWritten, contentType };
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  });
}

async function* limitBytes(
  { body, headers, subject }: FetchedBody,
  budget: Budget,
): AsyncGenerator<Uint8Array, void, void> {
  const allowed = budget.left;
  const refuse = () => new NonRetryableError(`${subject}: larger than ${allowed} bytes`);
  if (Number(headers['content-length']) > allowed) throw refuse();
  for await (const piece of body) {
    budget.left -= piece.length;
    if (budget.left < 0) throw refuse();
    yield piece;
  }
}

function readHeader({ headers }: FetchedBody, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

function readMaxBytes({ maxBytes }: DownloadOptions, fallback: number): number {
  return checkNumber('maxBytes', maxBytes ?? fallback, { min: 1, max: Number.MAX_SAFE_INTEGER });
}

function completeOptions(
  {
    maxRedirects = 5,
    name = 'url',
    resolve,
    rule = publicOnly,
    timeoutMs = 600_000,
  }: DownloadOptions,
  signal: AbortSignal,
): FetchOptions {
  checkNumber('timeoutMs', timeoutMs, { min: 1, max: MAX_TIMEOUT_MS });
  checkNumber('maxRedirects', maxRedirects, { min: 0, max: 100 });
  return { name, timeoutMs, maxRedirects, rule, resolve, signal };
}

const MAX_CHARS = 100;
const MAX_EXTENSION_CHARS = 16;
/** For servers that name no file. */
const EXTENSIONS: ReadonlyMap<string, string> = new Map([
  ['application/json', '.json'],
  ['application/pdf', '.pdf'],
  ['application/zip', '.zip'],
  ['audio/mpeg', '.mp3'],
  ['audio/wav', '.wav'],
  ['image/gif', '.gif'],
  ['image/jpeg', '.jpg'],
  ['image/png', '.png'],
  ['image/webp', '.webp'],
  ['text/plain', '.txt'],
  ['video/mp4', '.mp4'],
]);

interface NamedAnswer {
  url: URL;
  contentDisposition: string | undefined;
  contentType: string | undefined;
}

/**
 * The name in the Content-Disposition header, else the last segment of the URL's path, else `file`. It has letters,
 * digits, `.`, `_` and `-` only, at most 100, and does not begin with a dot or a dash.
 */
export function chooseFileName({ contentDisposition, contentType, url }: NamedAnswer): string {
  const stated = readDisposition(contentDisposition);
  const name = clean(stated ?? '') || clean(decode(url.pathname.split('/').at(-1) ?? '')) || 'file';
  if (extname(name) !== '') return name;
  const type = contentType?.split(';')[0]?.trim().toLowerCase() ?? '';
  return `${name}${EXTENSIONS.get(type) ?? ''}`;
}

/** `filename*` (RFC 5987) wins over `filename`. */
function readDisposition(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  const extended = /;\s*filename\*=utf-8'[^']*'([^;\s]+)/i.exec(header)?.[1];
  if (extended !== undefined) return decode(extended);
  const plain =
    /;\s*filename="((?:[^"\\]|\\.)*)"/i.exec(header) ?? /;\s*filename=([^;\s]+)/i.exec(header);
  return plain?.[1];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function clean(text: string): string {
  const last = text.split(/[/\\]/).at(-1) ?? '';
  const plain = last
    .replaceAll(/[^A-Za-z0-9._-]+/g, '_')
    .replace(/^[._-]+/, '')
    .replace(/\.+$/, '');
  if (plain.length <= MAX_CHARS) return plain;
  const extension = extname(plain).slice(0, MAX_EXTENSION_CHARS);
  return plain.slice(0, MAX_CHARS - extension.length) + extension;
}
