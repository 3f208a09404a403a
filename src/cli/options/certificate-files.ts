// Reads the files of certificates again when they change, so that renewed ones need no restart.
import { statSync } from 'node:fs';
import type { Log } from '../../base/log.ts';

/** Interval between two checks of the files, ms. */
const CHECK_MS = 2_000;

/** Reads the files and uses them. @throws Error if they cannot be used; nothing changes then */
type Renew = () => void;

export class CertificateFiles {
  readonly #paths: readonly (string | undefined)[];
  readonly #log: Log;
  /** State of the files at the last check, and when they were last read. */
  #seen: string;
  #read: string;
  #timer: NodeJS.Timeout | undefined;

  /** The caller already uses the current content of the files. */
  constructor(paths: readonly (string | undefined)[], log: Log) {
    this.#paths = paths;
    this.#log = log;
    this.#seen = this.#stamp();
    this.#read = this.#seen;
  }

  watch(renew: Renew): void {
    this.#timer = setInterval(() => this.look(renew), CHECK_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Reads changed files once two checks see the same state: the files are not all replaced at once. */
  look(renew: Renew): void {
    const stamp = this.#stamp();
    const isSettled = stamp === this.#seen;
    this.#seen = stamp;
    if (!isSettled || stamp === this.#read) return;
    this.#read = stamp;
    try {
      renew();
      this.#log.info('certificate replaced');
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#log.error({ reason }, 'replacing the certificate failed');
    }
  }

  #stamp(): string {
    return this.#paths.map(stampFile).join();
  }
}

function stampFile(path = ''): string {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats ? `${stats.ino} ${stats.size} ${stats.mtimeMs}` : '';
}
