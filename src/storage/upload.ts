// Puts one object: in one request if it fits into one part, else as a multipart upload, which appears when it is complete.
import { open } from 'node:fs/promises';
import type { CompletedPart, S3Client } from '@aws-sdk/client-s3';
import { NonRetryableError } from '../handler/thrown.ts';
import type { S3Packages } from './s3-client.ts';

interface PutOptions {
  client: S3Client;
  packages: S3Packages;
  source: UploadSource;
  bucket: string;
  key: string;
  contentType: string;
  partBytes: number;
  /** Parts at a time. */
  concurrency: number;
  maxBytes: number;
  signal: AbortSignal;
}

/** For the removal of parts after a failure: the upload's own time may be over. */
const ABORT_TIMEOUT_MS = 10_000;

/** Returns the number of bytes. @throws NonRetryableError if it is too large, and errors of the SDK */
export async function putObject(options: PutOptions): Promise<number> {
  const { bucket: Bucket, client, contentType: ContentType, key: Key, packages, signal } = options;
  const parts = limitBytes(cutParts(options.source, options.partBytes), options.maxBytes);
  try {
    const first = await takeNext(parts, signal);
    const second = await takeNext(parts, signal);
    if (first && second) return await putParts(options, [first, second], parts);
    const Body = first ?? Buffer.alloc(0);
    const command = new packages.client.PutObjectCommand({ Bucket, Key, Body, ContentType });
    await client.send(command, { abortSignal: signal });
    return Body.length;
  } finally {
    // Closes the file, or the caller's stream. A stream that waits for data ends when it has some.
    void parts.return().catch(() => undefined);
  }
}

type Parts = AsyncGenerator<Buffer, void, void>;

async function putParts(options: PutOptions, begun: Buffer[], parts: Parts): Promise<number> {
  const { bucket: Bucket, client, contentType: ContentType, key: Key, packages, signal } = options;
  const {
    AbortMultipartUploadCommand,
    CompleteMultipartUploadCommand,
    CreateMultipartUploadCommand,
  } = packages.client;
  const create = new CreateMultipartUploadCommand({ Bucket, Key, ContentType });
  const { UploadId } = await client.send(create, { abortSignal: signal });
  if (UploadId === undefined) throw new Error('the server gave no upload ID');
  const upload = { Bucket, Key, UploadId };
  try {
    const { Parts, bytes } = await sendParts(options, { upload, begun, parts });
    const complete = new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts } });
    await client.send(complete, { abortSignal: signal });
    return bytes;
  } catch (error) {
    const abortSignal = AbortSignal.timeout(ABORT_TIMEOUT_MS);
    // Servers remove the parts of uploads that are never completed, if their owner has set that up.
    await client
      .send(new AbortMultipartUploadCommand(upload), { abortSignal })
      .catch(() => undefined);
    throw error;
  }
}

interface Sending {
  upload: { Bucket: string; Key: string; UploadId: string };
  begun: Buffer[];
  parts: Parts;
}

async function sendParts({ client, concurrency, packages, signal }: PutOptions, sending: Sending) {
  const { begun, parts, upload } = sending;
  const completed: CompletedPart[] = [];
  let bytes = 0;
  const failed = new AbortController();
  const abortSignal = AbortSignal.any([signal, failed.signal]);
  /** Each sends one part after the other. Parts are read in their order, one at a time. */
  let number = 0;
  let last: Promise<unknown> = Promise.resolve();
  const takePart = () => {
    const taken = last.then(async () => {
      const body = begun.shift() ?? (await takeNext(parts, abortSignal));
      if (!body) return undefined;
      number += 1;
      return { body, number };
    });
    last = taken.catch(() => undefined);
    return taken;
  };
  const lane = async () => {
    for (let part = await takePart(); part; part = await takePart()) {
      const { body: Body, number: PartNumber } = part;
      const command = new packages.client.UploadPartCommand({ ...upload, PartNumber, Body });
      const { ETag } = await client.send(command, { abortSignal });
      completed[PartNumber - 1] = { PartNumber, ETag };
      bytes += Body.length;
    }
  };
  let first: { error: unknown } | undefined;
  const stopAll = (error: unknown) => {
    first ??= { error };
    failed.abort(error);
  };
  await Promise.all(Array.from({ length: concurrency }, () => lane().catch(stopAll)));
  if (first) throw first.error;
  return { Parts: completed, bytes };
}

/** Undefined at the end. Does not wait for a source that gives nothing after an abort. */
async function takeNext(parts: Parts, signal: AbortSignal): Promise<Buffer | undefined> {
  signal.throwIfAborted();
  const { promise, reject } = Promise.withResolvers<never>();
  const stop = () => reject(signal.reason);
  signal.addEventListener('abort', stop, { once: true });
  try {
    const step = await Promise.race([parts.next(), promise]);
    return step.done ? undefined : step.value;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

async function* limitBytes(parts: Parts, maxBytes: number): Parts {
  let bytes = 0;
  for await (const part of parts) {
    bytes += part.length;
    if (bytes > maxBytes) throw new NonRetryableError(`larger than ${maxBytes} bytes`);
    yield part;
  }
}

/** A file, bytes in memory, or a stream of bytes: exactly one of them. */
export type UploadSource =
  | { file: string; bytes?: never; stream?: never }
  | { bytes: Uint8Array; file?: never; stream?: never }
  | { stream: AsyncIterable<Uint8Array>; bytes?: never; file?: never };

/** The parts; only the last one may be shorter. Without bytes it is one empty part. */
async function* cutParts(
  source: UploadSource,
  partBytes: number,
): AsyncGenerator<Buffer, void, void> {
  if (source.bytes) yield* cutBytes(source.bytes, partBytes);
  else if (source.stream) yield* gather(source.stream, partBytes);
  else yield* readFile(source.file, partBytes);
}

function* cutBytes(bytes: Uint8Array, partBytes: number): Generator<Buffer, void, void> {
  const whole = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at === 0 || at < whole.length; at += partBytes) {
    yield whole.subarray(at, at + partBytes);
  }
}

async function* gather(
  stream: AsyncIterable<Uint8Array>,
  partBytes: number,
): AsyncGenerator<Buffer, void, void> {
  let part = Buffer.allocUnsafe(partBytes);
  let filled = 0;
  let count = 0;
  for await (const piece of stream) {
    for (let at = 0; at < piece.length; ) {
      const taken = piece.subarray(at, at + partBytes - filled);
      part.set(taken, filled);
      filled += taken.length;
      at += taken.length;
      if (filled < partBytes) continue;
      count += 1;
      yield part;
      part = Buffer.allocUnsafe(partBytes);
      filled = 0;
    }
  }
  if (filled > 0 || count === 0) yield part.subarray(0, filled);
}

/** @throws Error if it is not a regular file: a device or a pipe may have no end */
async function* readFile(path: string, partBytes: number): AsyncGenerator<Buffer, void, void> {
  await using file = await open(path, 'r');
  if (!(await file.stat()).isFile()) throw new Error(`${path}: is not a file`);
  for (let count = 0; ; count += 1) {
    const part = Buffer.allocUnsafe(partBytes);
    let filled = 0;
    while (filled < partBytes) {
      const { bytesRead } = await file.read(part, filled, partBytes - filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    if (filled > 0 || count === 0) yield part.subarray(0, filled);
    if (filled < partBytes) return;
  }
}
