// Makes random IDs for workers, which need nothing else of node:crypto: it takes a tenth of the processor time of a start.
import { closeSync, openSync, readSync } from 'node:fs';

/** Returns 128 bits of the system's random source as 32 hexadecimal digits. */
export function createRandomId(): string {
  const file = openSync('/dev/urandom', 'r');
  try {
    const bytes = Buffer.alloc(16);
    readSync(file, bytes);
    return bytes.toString('hex');
  } finally {
    closeSync(file);
  }
}
