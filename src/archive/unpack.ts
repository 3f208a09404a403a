// Unpacks an archive to a folder, or reads what is in it without writing anything.
import { createHash } from 'node:crypto';
import { mkdir, open, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { Header } from 'tar/header';
import { Pax } from 'tar/pax';
import { ARCHIVE_LIMITS, type ArchiveLimits } from '../wire/archive-limits.ts';
import {
  ArchiveError,
  ArchivePaths,
  quotePath,
  tooLargePacked,
  tooLargeUnpacked,
} from './archive-paths.ts';

/** The bytes of an archive, at once or in parts. */
type ArchiveSource = Uint8Array | AsyncIterable<Uint8Array>;

export interface ArchivedFile {
  /** Relative, with `/`. */
  path: string;
  bytes: number;
  /** Of the content, hex. */
  sha256: string;
  isExecutable: boolean;
}

interface ArchiveContent {
  /** In the archive's order; at least one. */
  files: ArchivedFile[];
  unpackedBytes: number;
}

/**
 * Unpacks a tar.gz archive to a folder, which must not exist. If it fails, the folder is removed.
 * Files get mode 644, or 755 if they are executable in the archive; nothing is synced to disk.
 * @throws ArchiveError, and the errors of the source and the file system
 */
export async function unpackArchive(
  source: ArchiveSource,
  folder: string,
  limits: ArchiveLimits = ARCHIVE_LIMITS,
): Promise<ArchiveContent> {
  await mkdir(folder);
  const made = new Set<string>();
  try {
    return await readFiles(source, limits, async ({ isExecutable, path }, content) => {
      const parent = dirname(path);
      if (!made.has(parent)) await mkdir(join(folder, parent), { recursive: true });
      made.add(parent);
      // wx: the file is new, and no link is followed.
      await using file = await open(join(folder, path), 'wx', isExecutable ? 0o755 : 0o644);
      await file.writeFile(content);
    });
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/**
 * Reads the contents of files of at most `maxBytes` that `isWanted` names into memory.
 * @throws ArchiveError, and the errors of the source
 */
export async function readArchivedFiles(
  source: ArchiveSource,
  { isWanted, maxBytes }: { isWanted: (path: string) => boolean; maxBytes: number },
): Promise<Map<string, Buffer>> {
  const contents = new Map<string, Buffer>();
  await readFiles(source, ARCHIVE_LIMITS, async ({ bytes, path }, content) => {
    const parts = await Array.fromAsync(content);
    if (bytes <= maxBytes && isWanted(path)) contents.set(path, Buffer.concat(parts));
  });
  return contents;
}

/** Checks a tar.gz archive as unpacking does, and lists its files. @throws ArchiveError, and the errors of the source */
export function inspectArchive(
  source: ArchiveSource,
  limits: ArchiveLimits = ARCHIVE_LIMITS,
): Promise<ArchiveContent> {
  return readFiles(source, limits, async (_, content) => {
    for await (const _part of content);
  });
}

type FileReader = (entry: ArchivedEntry, content: AsyncIterable<Buffer>) => Promise<void>;

async function readFiles(
  source: ArchiveSource,
  limits: ArchiveLimits,
  readFile: FileReader,
): Promise<ArchiveContent> {
  const files: ArchivedFile[] = [];
  const stream = source instanceof Uint8Array ? yieldOnce(source) : source;
  for await (const entry of readArchive(stream, limits)) {
    const { bytes, isExecutable, path } = entry;
    const hash = createHash('sha256');
    await readFile(entry, hashWhileReading(entry.content, hash));
    files.push({ path, bytes, sha256: hash.digest('hex'), isExecutable });
  }
  if (files.length === 0) throw new ArchiveError('The archive has no files');
  return { files, unpackedBytes: files.reduce((sum, { bytes }) => sum + bytes, 0) };
}

async function* hashWhileReading(
  content: AsyncIterable<Buffer>,
  hash: { update(b: Buffer): unknown },
) {
  for await (const part of content) {
    hash.update(part);
    yield part;
  }
}

async function* yieldOnce(bytes: Uint8Array) {
  yield bytes;
}

const BLOCK_BYTES = 512;
/** Records before a file, such as its long path. Those of macOS have attributes of a few KB. */
const MAX_RECORD_BYTES = 64 * 1024;
/** Maximum number of records before one file: its attributes, its long path, and a comment. */
const MAX_RECORDS = 8;
/** Bytes of headers, records and padding of all files together. */
const MAX_OVERHEAD_BYTES = 64 * 1024 * 1024;
const GUNZIP_CHUNK_BYTES = 64 * 1024;

const FILE_TYPES = new Set(['File', 'OldFile', 'ContiguousFile']);

export interface ArchivedEntry {
  /** Relative, with `/`. */
  path: string;
  bytes: number;
  isExecutable: boolean;
  /** To be read to its end before the next file is asked for. */
  content: AsyncIterable<Buffer>;
}

/** Yields the files in the archive's order. @throws ArchiveError, and the errors of the source */
export async function* readArchive(
  source: AsyncIterable<Uint8Array>,
  limits: ArchiveLimits,
): AsyncGenerator<ArchivedEntry, void, undefined> {
  const reader = new ByteReader(decompress(source, limits));
  const paths = new ArchivePaths(limits);
  let unpackedBytes = 0;
  try {
    for await (const { bytes, header, path } of readHeaders(reader)) {
      if (header.type === 'Directory') {
        if (path !== '') paths.addFolder(path);
        continue;
      }
      paths.addFile(path);
      unpackedBytes += bytes;
      if (unpackedBytes > limits.unpackedBytes) throw tooLargeUnpacked(limits);
      const isExecutable = ((header.mode ?? 0) & 0o111) !== 0;
      yield { path, bytes, isExecutable, content: readContent(reader, path, bytes) };
      await readExactly(reader, padding(bytes));
    }
  } finally {
    await reader.close();
  }
}

interface FoundHeader {
  header: Header;
  /** Without "./" before and "/" after it; empty for the folder itself. */
  path: string;
  bytes: number;
}

/** Yields the headers of files and folders. The caller reads the content of each file. */
async function* readHeaders(reader: ByteReader): AsyncGenerator<FoundHeader, void, undefined> {
  let record: Pax | undefined;
  let longPath: string | undefined;
  let records = 0;
  for (;;) {
    const block = await readExactly(reader, BLOCK_BYTES);
    const header = readHeader(block, record);
    if (header.nullBlock) return skipRest(reader);
    const given = longPath ?? record?.path ?? header.path ?? '';
    const { size: bytes = 0, type } = header;
    if (!Number.isSafeInteger(bytes) || bytes < 0) {
      throw new ArchiveError(`${quotePath(given)} has an invalid size`);
    }
    if (type === 'ExtendedHeader' || type === 'OldExtendedHeader') {
      record = Pax.parse(await readRecord(reader, bytes), record, false);
    } else if (type === 'NextFileHasLongPath' || type === 'OldGnuLongPath') {
      longPath = (await readRecord(reader, bytes)).split('\0', 1)[0];
    } else if (type === 'GlobalExtendedHeader') {
      // Comments of `git archive`; no other use matters here.
      await readRecord(reader, bytes);
    } else {
      if (type !== 'Directory' && !FILE_TYPES.has(type)) {
        throw new ArchiveError(
          `${quotePath(given)} is neither a file nor a folder, but of type ${type}`,
        );
      }
      yield { header, path: trimPath(given), bytes: type === 'Directory' ? 0 : bytes };
      record = undefined;
      longPath = undefined;
      records = -1;
    }
    records += 1;
    if (records > MAX_RECORDS) {
      throw new ArchiveError(`The archive has more than ${MAX_RECORDS} records before one file`);
    }
  }
}

function readHeader(block: Buffer, record: Pax | undefined): Header {
  try {
    const header = new Header(block, 0, record);
    if (header.nullBlock || header.cksumValid) return header;
  } catch {
    // A field that cannot be decoded.
  }
  throw new ArchiveError('The archive is not a tar file, or is damaged');
}

/** Reads on to the end of the compressed stream, which has its checksum there. */
async function skipRest(reader: ByteReader): Promise<void> {
  for await (const _ of reader.take(Number.POSITIVE_INFINITY));
}

/** `tar czf x.tgz .` writes "./a/". */
function trimPath(path: string): string {
  return path
    .replace(/^(?:\.\/)+/, '')
    .replace(/\/$/, '')
    .replace(/^\.$/, '');
}

async function readRecord(reader: ByteReader, bytes: number): Promise<string> {
  if (bytes > MAX_RECORD_BYTES) {
    throw new ArchiveError(`The archive has a header of ${bytes} bytes`);
  }
  const content = await readExactly(reader, bytes + padding(bytes));
  return content.toString('utf8', 0, bytes);
}

async function* readContent(reader: ByteReader, path: string, bytes: number) {
  let read = 0;
  for await (const part of reader.take(bytes)) {
    read += part.length;
    yield part;
  }
  if (read < bytes) throw new ArchiveError(`The archive ends inside ${quotePath(path)}`);
}

async function readExactly(reader: ByteReader, bytes: number): Promise<Buffer> {
  const content = await reader.read(bytes);
  if (content.length === bytes) return content;
  throw new ArchiveError('The archive is incomplete, or not a tar file');
}

function padding(bytes: number): number {
  return (BLOCK_BYTES - (bytes % BLOCK_BYTES)) % BLOCK_BYTES;
}

/** Yields the bytes of the tar file; stops at the limits, so that a small archive cannot expand without end. */
async function* decompress(source: AsyncIterable<Uint8Array>, limits: ArchiveLimits) {
  const gunzip = createGunzip({ chunkSize: GUNZIP_CHUNK_BYTES });
  const input = Readable.from(limitPacked(source, limits));
  // The loop below gets the errors too.
  const feeding = pipeline(input, gunzip).catch(() => {});
  let bytes = 0;
  try {
    for await (const chunk of gunzip) {
      bytes += chunk.length;
      if (bytes > limits.unpackedBytes + MAX_OVERHEAD_BYTES) throw tooLargeUnpacked(limits);
      yield chunk;
    }
  } catch (error) {
    throw explainGzip(error);
  } finally {
    gunzip.destroy();
    await feeding;
  }
}

async function* limitPacked(source: AsyncIterable<Uint8Array>, limits: ArchiveLimits) {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.byteLength;
    if (bytes > limits.bytes) throw tooLargePacked(limits);
    yield chunk;
  }
}

function explainGzip(error: unknown): unknown {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'Z_BUF_ERROR') return new ArchiveError('The archive is incomplete');
  const isZlib = typeof code === 'string' && code.startsWith('Z_');
  return isZlib ? new ArchiveError('The archive is not a gzip file, or is damaged') : error;
}

class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Resolves with `size` bytes, or with fewer if the stream ends. */
  async read(size: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of this.take(size)) parts.push(part);
    const [only] = parts;
    return parts.length === 1 && only ? only : Buffer.concat(parts);
  }

  /** Yields `size` bytes in parts as they come, or fewer if the stream ends. */
  async *take(size: number): AsyncGenerator<Buffer, void, undefined> {
    let missing = size;
    while (missing > 0 && (await this.#fill())) {
      const part = this.#rest.subarray(0, missing);
      this.#rest = this.#rest.subarray(part.length);
      missing -= part.length;
      yield part;
    }
  }

  /** Ends the source, whose rest nobody reads. */
  async close(): Promise<void> {
    await this.#source.return?.();
  }

  async #fill(): Promise<boolean> {
    while (this.#rest.length === 0) {
      const next = await this.#source.next();
      if (next.done) return false;
      const { buffer, byteLength, byteOffset } = next.value;
      this.#rest = Buffer.from(buffer, byteOffset, byteLength);
    }
    return true;
  }
}
