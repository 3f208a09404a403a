// Reads a file from a folder that another user may own and change at the same time.
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';

/**
 * Follows no links and opens only regular files: a pipe would block a thread of this process for
 * ever, and a device has no end. @throws Error, also for a file of more than `maxBytes`
 */
export async function readForeignFile(path: string, maxBytes: number): Promise<Buffer> {
  const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
  const file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw new Error(`${path} is not a file`);
    if (stats.size > maxBytes) throw new Error(`${path} has more than ${maxBytes} bytes`);
    const bytes = Buffer.allocUnsafeSlow(stats.size);
    let at = 0;
    while (at < bytes.length) {
      const { bytesRead } = await file.read(bytes, at, bytes.length - at, at);
      if (bytesRead === 0) break;
      at += bytesRead;
    }
    return bytes.subarray(0, at);
  } finally {
    await file.close();
  }
}
