// A read that waits for the next iteration of the event loop waits in the simulated world too. With a real turn, one
// seed in thousands stood still: the one whose store had read 4 MB since its start.
import './global-time.ts';
import { expect, it } from 'vitest';
import { ReadPace } from '../../src/store/sqlite/sqlite.ts';
import { VirtualTime } from './virtual-time.ts';

it('reads of the store wait for simulated turns', async () => {
  const time = new VirtualTime();
  const giveBack = time.takeOver(() => 0);
  try {
    const pace = new ReadPace();
    pace.note([{ bytes: new Uint8Array(4 * 1_048_576) }]);
    expect(pace.isUsedUp).toBe(true);
    await time.finish(pace.next());
    expect(pace.isUsedUp).toBe(false);
  } finally {
    giveBack();
  }
});
