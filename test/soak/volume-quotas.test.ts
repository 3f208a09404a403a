// Network volumes on real file systems with project quotas, below a kernel that has them: a pod cannot write more than
// the size of its volume.
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { findGuestTrouble, runInGuest } from '../support/quota/user-mode-linux.ts';

const PROGRAM = fileURLToPath(new URL('../support/quota/volumes-in-guest.ts', import.meta.url));
const BOOT_MS = 120_000;

const trouble = findGuestTrouble();
if (trouble) console.warn(`test/soak/volume-quotas.test.ts is left out: ${trouble}`);

it.skipIf(trouble)(
  'holds the size of a volume and of a disk on xfs and ext4, also when it grows, and says so where it cannot',
  async () => {
    const stoppedAt = (megabytes: number) => ({ status: 1, megabytes, isFull: true });
    const [first, grown, again] = [stoppedAt(10), stoppedAt(20), stoppedAt(30)];
    const limited = { fills: [first, first], isLimited: true };
    const free = { status: 0, megabytes: 40, isFull: false };
    const reason = 'the file system /mnt is tmpfs; project quotas need ext4 or xfs';
    expect(await runInGuest(PROGRAM)).toEqual({
      xfs: { first, grown, again, disk: limited, isLimitable: true, notes: [] },
      ext4: { first, grown, again, disk: limited, isLimitable: true, notes: [] },
      plain: {
        ...{ first: free, grown: free, again: free },
        disk: { fills: [free, free], isLimited: false },
        isLimitable: false,
        notes: [expect.objectContaining({ reason })],
      },
    });
  },
  BOOT_MS,
);
