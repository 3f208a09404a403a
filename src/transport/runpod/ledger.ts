// Records in a file which jobs a worker process has. RunPod knows only the machine, so when the
// process dies, the next one must post the failure of its jobs.
import {
  appendFileSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { makeFolder } from '../../base/make-folder.ts';
import type { WorkerIdentity } from '../../wire/link/worker-link.ts';

const SUFFIX = '.jobs';

export interface LedgerOptions {
  /** Created if it is missing; other workers of the machine may share it. */
  folder: string;
  log: Log;
}

/**
 * Job IDs that a process left, with their file, which is claimed so that no other process uses it.
 */
export interface AbandonedJobs {
  jobIds: string[];
  /** The failure of all of them is posted. */
  forget(): void;
  /** Not all are posted: another process must try. */
  putBack(): void;
}

/** If the disk fails, only this record is lost. */
export class RunPodLedger {
  readonly #options: LedgerOptions;
  #path: string | undefined;
  /** The last write may have stopped halfway. */
  #isTorn = false;
  readonly #jobIds = new Set<string>();

  constructor(options: LedgerOptions) {
    this.#options = options;
  }

  /** Creates the file of this process. */
  open(identity: WorkerIdentity): void {
    const { folder } = this.#options;
    this.#try(() => {
      makeFolder(folder, 0o700);
      const path = join(folder, nameFile(identity));
      writeFileSync(path, '', { mode: 0o600 });
      this.#path = path;
    });
  }

  add(jobId: string): void {
    this.#jobIds.add(jobId);
    this.#write(`+${JSON.stringify(jobId)}\n`);
  }

  remove(jobId: string): void {
    if (!this.#jobIds.delete(jobId)) return;
    const path = this.#path;
    if (this.#jobIds.size > 0) this.#write(`-${JSON.stringify(jobId)}\n`);
    else if (path !== undefined) this.#try(() => writeFileSync(path, ''));
  }

  /** The process exits and has posted the end of all its jobs. */
  close(): void {
    const path = this.#path;
    this.#path = undefined;
    if (path !== undefined && this.#jobIds.size === 0) this.#try(() => rmSync(path));
  }

  /** Claims what earlier processes of this worker have left. */
  takeOver({ incarnation, workerId }: WorkerIdentity): AbandonedJobs[] {
    const { folder } = this.#options;
    const names = this.#try(() => readdirSync(folder)) ?? [];
    return names.flatMap((name) => {
      const other = readName(name);
      const isOlder = other?.workerId === workerId && other.incarnation < incarnation;
      return isOlder ? (this.#claim(join(folder, name)) ?? []) : [];
    });
  }

  /** Undefined if another process was faster. */
  #claim(path: string): AbandonedJobs | undefined {
    const claimed = `${path}.taken`;
    try {
      renameSync(path, claimed);
      return {
        jobIds: readJobIds(readFileSync(claimed, 'utf8')),
        forget: () => this.#try(() => rmSync(claimed)),
        putBack: () => this.#try(() => renameSync(claimed, path)),
      };
    } catch {
      return undefined;
    }
  }

  #write(line: string): void {
    const path = this.#path;
    if (path === undefined) return;
    // A full disk may have cut off the previous line; it must not damage this one.
    const text = this.#isTorn ? `\n${line}` : line;
    this.#isTorn = true;
    this.#try(() => {
      appendFileSync(path, text);
      this.#isTorn = false;
    });
  }

  #try<T>(act: () => T): T | undefined {
    try {
      return act();
    } catch (error) {
      const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
      const level = isMissing ? 'debug' : 'warn';
      this.#options.log[level]({ err: error }, 'writing the list of running jobs failed');
      return undefined;
    }
  }
}

function nameFile({ incarnation, workerId }: WorkerIdentity): string {
  return `${workerId}.${incarnation}${SUFFIX}`;
}

function readName(name: string): WorkerIdentity | undefined {
  const [, workerId, incarnation] = /^(.+)\.(\d+)\.jobs$/.exec(name) ?? [];
  if (workerId === undefined) return undefined;
  return { workerId, incarnation: Number(incarnation) };
}

/** A line may have been written halfway, when the process died or its disk was full: others still count. */
function readJobIds(text: string): string[] {
  const jobIds = new Set<string>();
  for (const line of text.split('\n').slice(0, -1)) {
    const jobId = readJobId(line.slice(1));
    if (jobId === undefined) continue;
    if (line.startsWith('+')) jobIds.add(jobId);
    else jobIds.delete(jobId);
  }
  return [...jobIds];
}

function readJobId(json: string): string | undefined {
  try {
    const jobId: unknown = JSON.parse(json);
    return typeof jobId === 'string' ? jobId : undefined;
  } catch {
    return undefined;
  }
}
