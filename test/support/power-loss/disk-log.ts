// Reads the log that power-loss.c writes.
import { chmodSync, closeSync, openSync, readSync, writeFileSync } from 'node:fs';

/** The log's first page, which the processes share. Its first number is the length of the log. */
const HEADER_BYTES = 4_096;
const RECORD_BYTES = 48;

export type Change =
  | { kind: 'create'; inode: bigint; isFolder: boolean }
  | { kind: 'write'; inode: bigint; at: number; bytes: Buffer }
  | { kind: 'resize'; inode: bigint; size: number }
  | { kind: 'sync' | 'failed-sync'; inode: bigint }
  | { kind: 'link' | 'unlink'; inode: bigint; folder: bigint; name: string }
  | { kind: 'move'; inode: bigint; from: bigint; name: string; to: bigint; newName: string };

/** Makes an empty log. */
export function resetLog(path: string): void {
  writeFileSync(path, Buffer.alloc(HEADER_BYTES));
  // Postgres runs as another user.
  chmodSync(path, 0o666);
}

/** Of the log so far, in bytes. Whole records only. */
export function measureLog(path: string): number {
  const length = Buffer.alloc(8);
  const file = openSync(path, 'r');
  readSync(file, length);
  closeSync(file);
  return Number(length.readBigUInt64LE());
}

/** The changes of the first bytes of a log. */
export function* readLog(log: Buffer, end: number): Generator<Change> {
  for (let start = HEADER_BYTES; start < end; ) {
    const nameBytes = log.readUInt32LE(start + 4);
    const [inode = 0n, at = 0n, length = 0n, folder = 0n, to = 0n] = [8, 16, 24, 32, 40].map(
      (offset) => log.readBigUInt64LE(start + offset),
    );
    const names = start + RECORD_BYTES;
    const [name = '', newName = ''] = log.toString('utf8', names, names + nameBytes).split('\0');
    const content = names + nameBytes;
    const kind = log.readUInt32LE(start);
    start = content + (kind === 2 ? Number(length) : 0);
    if (kind === 1) yield { kind: 'create', inode, isFolder: at === 1n };
    else if (kind === 2)
      yield { kind: 'write', inode, at: Number(at), bytes: log.subarray(content, start) };
    else if (kind === 3) yield { kind: 'resize', inode, size: Number(at) };
    else if (kind === 4) yield { kind: 'sync', inode };
    else if (kind === 5) yield { kind: 'failed-sync', inode };
    else if (kind === 6 || kind === 7)
      yield { kind: kind === 6 ? 'link' : 'unlink', inode, folder, name };
    else if (kind === 8) yield { kind: 'move', inode, from: folder, name, to, newName };
    else throw new Error(`power loss: the log has a record of kind ${kind} at byte ${start}`);
  }
}
