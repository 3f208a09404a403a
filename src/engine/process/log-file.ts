// The log of a container: a file that the kernel appends to, and one older file, so that its size
// is bounded.
import { type FileHandle, open, rename, stat, truncate } from 'node:fs/promises';

/** Size at which the file is truncated; as much is kept in the older file. */
export const MAX_LOG_BYTES = 10_485_760;

/** Returns the end of the log, at most this many bytes. Empty without a log. */
export async function readLogEnd(path: string, maxBytes: number): Promise<Uint8Array> {
  const end = await readFileEnd(path, maxBytes);
  if (end.length === maxBytes) return end;
  return Buffer.concat([await readFileEnd(olderPath(path), maxBytes - end.length), end]);
}

/**
 * The container has the file open, so it is copied and then truncated: lines written in between are
 * lost. Containers write in append mode, wherever the file's end is.
 */
export async function cutLog(path: string, maxBytes = MAX_LOG_BYTES): Promise<void> {
  // Called often for every container, so a short log is not even opened.
  const size = (await stat(path).catch(() => undefined))?.size ?? 0;
  const file = size > maxBytes ? await openIfThere(path) : undefined;
  if (!file) return;
  try {
    const older = `${olderPath(path)}.new`;
    const copy = await open(older, 'w', 0o600);
    try {
      await copy.writeFile(await readEnd(file, maxBytes));
    } finally {
      await copy.close();
    }
    await truncate(path);
    await rename(older, olderPath(path));
  } finally {
    await file.close();
  }
}

function olderPath(path: string): string {
  return `${path}.1`;
}

async function readFileEnd(path: string, maxBytes: number): Promise<Buffer> {
  const file = await openIfThere(path);
  if (!file) return Buffer.alloc(0);
  try {
    return await readEnd(file, maxBytes);
  } finally {
    await file.close();
  }
}

async function readEnd(file: FileHandle, maxBytes: number): Promise<Buffer> {
  const { size } = await file.stat();
  const length = Math.min(size, maxBytes);
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await file.read(buffer, 0, length, size - length);
  return buffer.subarray(0, bytesRead);
}

async function openIfThere(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'r');
  } catch {
    return undefined;
  }
}
