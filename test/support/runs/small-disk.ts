// A real file system of a few megabytes that a test can fill: a tmpfs, which needs root.
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  mkdtempSync,
  openSync,
  rmdirSync,
  rmSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export class SmallDisk {
  readonly path: string;
  readonly #filler: string;

  private constructor(path: string) {
    this.path = path;
    this.#filler = join(path, 'filler');
  }

  /** @throws Error if the machine cannot mount */
  static mount(megabytes: number): SmallDisk {
    const path = mkdtempSync(join(tmpdir(), 'millrace-disk-'));
    try {
      const options = `size=${megabytes}m,mode=0700`;
      execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path], { stdio: 'pipe' });
    } catch (error) {
      rmdirSync(path);
      throw error;
    }
    return new SmallDisk(path);
  }

  get freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.path);
    return bavail * bsize;
  }

  /** Fills the disk completely. */
  fill(): void {
    const block = Buffer.alloc(65_536);
    const file = openSync(this.#filler, 'a');
    try {
      for (;;) writeSync(file, block);
    } catch (error) {
      const isFull = error instanceof Error && 'code' in error && error.code === 'ENOSPC';
      if (!isFull) throw error;
    } finally {
      closeSync(file);
    }
  }

  empty(): void {
    rmSync(this.#filler, { force: true });
  }

  unmount(): void {
    execFileSync('umount', ['-l', this.path], { stdio: 'pipe' });
    rmdirSync(this.path);
  }
}

/** False only on a developer's machine without permission to mount; CI must have it. */
export function canMountDisks(): boolean {
  if (process.env['CI'] === 'true') return true;
  try {
    SmallDisk.mount(1).unmount();
    return true;
  } catch {
    return false;
  }
}
