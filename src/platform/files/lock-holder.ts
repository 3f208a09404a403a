// Checks that a process holds the lock on a file, before somebody signals it. The ID in a file beside the lock is not
// proof: it may be stale, forged by the owner of the folder, or of another PID namespace, such as a container's.
import { readFileSync, statSync } from 'node:fs';

/** One line of /proc/locks: `1: POSIX  ADVISORY  WRITE 4242 fd:01:1311 0 EOF`. */
const LOCK_LINE = /^\d+: \w+ +\w+ +WRITE +(-?\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) /;

/** PIDs of the processes that have a write lock on a file with this inode, by the text of /proc/locks. Pure. */
export function findLockOwners(locks: string, inode: bigint): number[] {
  return locks.split('\n').flatMap((line) => {
    const [, pid, ino = '0'] = LOCK_LINE.exec(line) ?? [];
    return pid !== undefined && BigInt(ino) === inode ? [Number(pid)] : [];
  });
}

/**
 * Whether the process holds a write lock on the file. If the system does not list its locks, or not this one, the
 * process must at least belong to the owner of the file, so that nobody can have root signal the process of another.
 */
export function holdsLock(path: string, pid: number): boolean {
  const { ino, uid } = statSync(path, { bigint: true });
  const owners = findLockOwners(readLocks(), ino);
  if (owners.length > 0) return owners.includes(pid);
  const owner = statSync(`/proc/${pid}`, { bigint: true, throwIfNoEntry: false })?.uid;
  // Without /proc, the system itself refuses signals to the processes of others, except from root.
  return owner === undefined ? process.geteuid?.() !== 0 : owner === uid;
}

function readLocks(): string {
  try {
    return readFileSync('/proc/locks', 'utf8');
  } catch {
    return '';
  }
}
