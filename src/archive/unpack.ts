// Unpacks an archive to a folder, or reads what is in it without writing anything.
import { createHash } from 'node:crypto';
import { mkdir, open, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ARCHIVE_LIMITS, type ArchiveLimits } from '../wire/archive-limits.ts';
import { ArchiveError } from './archive-error.ts';
import { type ArchivedEntry, readArchive } from './read-archive.ts';

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
