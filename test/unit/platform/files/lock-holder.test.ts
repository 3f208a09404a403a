// Who holds a lock, by the kernel's list.
import { describe, expect, it } from 'vitest';
import { findLockOwners } from '../../../../src/platform/files/lock-holder.ts';

const LOCKS = `1: POSIX  ADVISORY  READ 14725 fe:00:4270136 128 128
2: POSIX  ADVISORY  WRITE 14725 fe:00:4270133 1073741824 1073742335
2: -> POSIX  ADVISORY  WRITE 99 fe:00:4270133 1073741824 1073742335
3: FLOCK  ADVISORY  WRITE 7 00:1a:4270133 0 EOF
4: POSIX  ADVISORY  WRITE 14663 fe:00:42701 0 EOF
`;

describe('the owners of a lock', () => {
  it('have a write lock on the inode; who waits for one has none', () => {
    expect(findLockOwners(LOCKS, 4270133n)).toEqual([14725, 7]);
    expect(findLockOwners(LOCKS, 4270136n)).toEqual([]);
    expect(findLockOwners('', 1n)).toEqual([]);
  });
});
