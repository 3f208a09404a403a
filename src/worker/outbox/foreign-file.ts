// Reads a file from a folder that another user may own and change at the same time.
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/**
 * Follows no links and opens only regular files: a pipe would block a thread of this process
 * forever, and a device has no end. @throws Error, also for a file of more than `maxBytes`
 */
export function readForeignFile(path: string, maxBytes: number): Promise<Buffer> {
  return useForeignFile(path, maxBytes, async (file, size) => {
    const bytes = Buffer.allocUnsafeSlow(size);
    return bytes.subarray(0, await fill(file, bytes, 0));
  });
}

/** Opens the file under the same rules and closes it after `use`. */
export async function useForeignFile<T>(
  path: string,
  maxBytes: number,
  use: (file: FileHandle, size: number) => Promise<T>,
): Promise<T> {
  const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
  const file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw new Error(`${path} is not a file`);
    if (stats.size > maxBytes) throw new Error(`${path} has more than ${maxBytes} bytes`);
    return await use(file, stats.size);
  } finally {
    await file.close();
  }
}

/**
 * Reads into `bytes` from `position` on.
 * @returns the number of bytes read; less than `bytes.length` only at the end of the file
 */
export async function fill(file: FileHandle, bytes: Buffer, position: number): Promise<number> {
  let at = 0;
  while (at < bytes.length) {
    const { bytesRead } = await file.read(bytes, at, bytes.length - at, position + at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  return at;
}
