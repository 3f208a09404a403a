// How a store under a clock of the test puts its commits on disk: at once, because nothing waits for the disk
// while that clock is advanced.
import { fdatasyncSync } from 'node:fs';

export async function syncAtOnce(descriptor: number): Promise<void> {
  fdatasyncSync(descriptor);
}
