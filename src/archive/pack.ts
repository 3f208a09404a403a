// Packs files of a folder into a tar.gz archive. Equal files give equal bytes: paths are sorted, and
// the archive has no times, owners or modes other than 644 and 755.
import { createHash } from 'node:crypto';
import { constants, type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { Header } from 'tar/header';
import { Pax } from 'tar/pax';
import { ARCHIVE_LIMITS, type ArchiveLimits } from '../wire/archive-limits.ts';
import { ArchiveError, tooLargePacked, tooLargeUnpacked } from './archive-error.ts';
import { ArchivePaths, quotePath } from './archive-paths.ts';
import type { ArchivedFile } from './unpack.ts';

const BLOCK_BYTES = 512;
const READ_BYTES = 256 * 1024;
/** Two empty blocks end a tar file. */
const END = Buffer.alloc(2 * BLOCK_BYTES);

/** Position of the operating system in gzip's header, and the value for an unknown one. */
const GZIP_SYSTEM = { at: 9, unknown: 255 };

export interface PackedArchive {
  bytes: Buffer;
  /** Of the archive, hex. */
  sha256: string;
  /** Sorted by path. */
  files: ArchivedFile[];
  unpackedBytes: number;
}

/**
 * `paths` are files, relative to the folder, with `/`. `written` has the content of those that are not read.
 * @throws ArchiveError, and the errors of the file system
 */
export async function packFiles(
  folder: string,
  paths: readonly string[],
  limits: ArchiveLimits = ARCHIVE_LIMITS,
  written: ReadonlyMap<string, string> = new Map(),
): Promise<PackedArchive> {
  const files: ArchivedFile[] = [];
  const parts: Buffer[] = [];
  const source = { folder, paths: paths.toSorted(), limits, written };
  await pipeline(writeTar(source, files), createGzip(), (packed) => collect(packed, parts, limits));
  const bytes = Buffer.concat(parts);
  bytes[GZIP_SYSTEM.at] = GZIP_SYSTEM.unknown;
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  return { bytes, sha256, files, unpackedBytes: files.reduce((sum, file) => sum + file.bytes, 0) };
}

async function collect(packed: AsyncIterable<Buffer>, parts: Buffer[], limits: ArchiveLimits) {
  let bytes = 0;
  for await (const part of packed) {
    bytes += part.length;
    if (bytes > limits.bytes) throw tooLargePacked(limits);
    parts.push(part);
  }
}

interface TarSource {
  folder: string;
  paths: readonly string[];
  limits: ArchiveLimits;
  written: ReadonlyMap<string, string>;
}

/** Yields the tar file, and appends what it has written to `files`. */
async function* writeTar(
  { folder, limits, paths, written }: TarSource,
  files: ArchivedFile[],
): AsyncGenerator<Buffer, void, undefined> {
  const seen = new ArchivePaths(limits);
  let unpackedBytes = 0;
  for (const path of paths) {
    seen.addFile(path);
    const text = written.get(path);
    await using file = text === undefined ? await openFile(folder, path) : undefined;
    const content = Buffer.from(text ?? '');
    const { mode, size } = (await file?.stat()) ?? { mode: 0o644, size: content.length };
    unpackedBytes += size;
    if (unpackedBytes > limits.unpackedBytes) throw tooLargeUnpacked(limits);
    const isExecutable = (mode & 0o111) !== 0;
    yield formatHeader(path, size, isExecutable);
    const hash = createHash('sha256');
    for await (const part of file ? readContent(file, path, size) : [content]) {
      hash.update(part);
      yield part;
    }
    yield Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
    files.push({ path, bytes: size, sha256: hash.digest('hex'), isExecutable });
  }
  yield END;
}

/** @throws ArchiveError if the path is no file */
async function openFile(folder: string, path: string): Promise<FileHandle> {
  // NOFOLLOW: the path was a file when it was listed. NONBLOCK: opening a pipe would wait for a writer.
  const { O_NOFOLLOW = 0, O_NONBLOCK = 0, O_RDONLY } = constants;
  const file = await open(join(folder, path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if ((await file.stat()).isFile()) return file;
  await file.close();
  throw new ArchiveError(`${quotePath(path)} is not a file`);
}

async function* readContent(file: FileHandle, path: string, size: number) {
  let bytes = 0;
  for await (const part of file.createReadStream({ autoClose: false, highWaterMark: READ_BYTES })) {
    bytes += part.length;
    if (bytes > size) break;
    yield part;
  }
  if (bytes !== size) throw new ArchiveError(`${quotePath(path)} changed while it was packed`);
}

function formatHeader(path: string, size: number, isExecutable: boolean): Buffer {
  const header = new Header({ path, size, mode: isExecutable ? 0o755 : 0o644, type: 'File' });
  const needsRecord = header.encode();
  const block = header.block ?? Buffer.alloc(0);
  return needsRecord ? Buffer.concat([new Pax({ path, size }).encode(), block]) : block;
}
