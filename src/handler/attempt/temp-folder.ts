// The folder for the files of one attempt: created on first use, removed when the attempt has ended. If the thread dies
// first, the worker removes the thread's folders; if the worker process dies, its supervisor does.
import { mkdirSync, mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Only the worker's user can read the files: jobs of other workers on the machine cannot. */
const OWN_ONLY = 0o700;
/** Code that the attempt left running may still create files. */
const REMOVE = { recursive: true, force: true, maxRetries: 3, retryDelay: 100 };

export class TempFolder {
  readonly #choosePath: () => string;
  #path: string | undefined;
  #isOver = false;

  /** `place`: folder of the thread, and a name that is unique in it. Default: in the system's temporary folder. */
  constructor(place?: { parent: string; name: string }) {
    this.#choosePath = () => {
      if (!place) return mkdtempSync(join(tmpdir(), 'millrace-attempt-'));
      const path = join(place.parent, place.name);
      mkdirSync(path, { recursive: true, mode: OWN_ONLY });
      return path;
    };
  }

  /** Creates the folder on the first call. @throws Error if the attempt has ended, or of the file system */
  open(): string {
    if (this.#isOver) throw new Error('the attempt has ended: it has no temporary folder any more');
    this.#path ??= this.#choosePath();
    return this.#path;
  }

  /** The attempt has ended. What cannot be removed now is removed with the thread's folder. */
  async remove(): Promise<void> {
    this.#isOver = true;
    if (this.#path !== undefined) await rm(this.#path, REMOVE).catch(() => undefined);
  }
}
