// Keeps what process engines record of the runs of containers, also after the engines have removed it: the independent
// record that a bill is compared with.
import {
  existsSync,
  linkSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseRunExit, parseRunRecord } from '../../../src/engine/process/runs.ts';

/** Shorter than a run with its removal takes. */
const LOOK_MS = 10;

export interface RecordedRun {
  podId: string;
  /** Folder of the platform that has run it. */
  folder: string;
  /** Unix ms. */
  startedAt: number;
  /** Undefined: the engine has recorded no end. */
  endedAt: number | undefined;
  /** False: an engine found it dead at `endedAt`. */
  isEndSeen: boolean;
  /** The engine had removed its record by then. Undefined: it is still there. */
  goneAt: number | undefined;
}

interface FoundRun extends Omit<RecordedRun, 'endedAt' | 'isEndSeen'> {
  file: string;
  /** A second name of the file whose last change is the end of the run. */
  exitFile: string;
}

export class RunRecords {
  readonly #folders: readonly string[];
  readonly #own = mkdtempSync(join(tmpdir(), 'millrace-run-records-'));
  readonly #found = new Map<string, FoundRun>();
  readonly #timer: NodeJS.Timeout;
  /** Runs whose files were removed before they could be kept. */
  readonly missed: string[] = [];

  /** `folders`: of platforms. */
  constructor(folders: readonly string[]) {
    this.#folders = folders;
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
  }

  read(): RecordedRun[] {
    this.#look();
    return [...this.#found.values()].map(({ exitFile, file: _, ...run }) => {
      const { exitCode, isEndSeen } = parseRunExit(readFileSync(exitFile, 'utf8'));
      const at = Math.max(run.startedAt, Math.round(statSync(exitFile).mtimeMs));
      return { ...run, isEndSeen, endedAt: exitCode === null ? undefined : at };
    });
  }

  close(): void {
    clearInterval(this.#timer);
    rmSync(this.#own, { recursive: true, force: true });
  }

  #look(): void {
    const now = Date.now();
    for (const run of this.#found.values()) {
      if (run.goneAt === undefined && !existsSync(run.file)) run.goneAt = now;
    }
    for (const folder of this.#folders) {
      const containers = join(folder, 'data', 'pods', 'containers');
      for (const podId of list(containers)) {
        for (const generation of list(join(containers, podId))) {
          const path = join(containers, podId, generation);
          const runs = list(path).filter((name) => /^run-\d+$/.test(name));
          for (const run of runs) this.#keep(join(path, run), { folder, path, podId });
        }
      }
    }
  }

  #keep(file: string, of: { folder: string; path: string; podId: string }): void {
    const record = parseRunRecord(read(file));
    if (!record) return;
    const name = `${of.podId}-${record.exitFile}`;
    if (this.#found.has(name)) return;
    const exitFile = join(this.#own, name);
    const { folder, podId } = of;
    try {
      linkSync(join(of.path, record.exitFile), exitFile);
      const { startedAt } = record;
      this.#found.set(name, { podId, folder, file, startedAt, exitFile, goneAt: undefined });
    } catch {
      this.missed.push(name);
    }
  }
}

/** Empty if the folder has been removed meanwhile. */
function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Empty if the file has been removed meanwhile. */
function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
