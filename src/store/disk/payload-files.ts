// Files of large payloads, beside the database: one file a payload, written and read in the thread pool. SQLite would
// write such a payload twice, to its log and to its file, and the event loop would wait for each page.
import { createHash } from 'node:crypto';
import { closeSync, constants, openSync, readSync, statSync } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, opendir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import type { Clock } from '../../base/clock.ts';
import { number, text } from '../sql/rows.ts';
import { isUsed, splitAt } from '../sql/unused-payloads.ts';
import {
  type FilePiece,
  PayloadFileError,
  type PayloadFiles,
  type StagedPayload,
} from '../store.ts';

const OWNER_ONLY = 0o600;
const OWNER_ONLY_FOLDER = 0o700;

/** A link in the folder is never followed: `backup` may run as root. */
const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;
const CREATE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
const CONTINUE = O_WRONLY | O_NOFOLLOW;
const READ = O_RDONLY | O_NOFOLLOW;

/** Reads parts of payloads at once. */
export type PartFiles = Pick<PayloadFolder, 'readPartSync' | 'reportLost'>;

export interface PayloadFolderOptions {
  /** Created with the first payload. */
  folder: string;
  /** False while the disk is full. Default: always true. */
  isUsable?: () => boolean;
  /** Called with each failure of the disk. Default: ignored. */
  onFailure?: (error: unknown) => void;
}

/** The folder of a database's payloads. */
export function locatePayloads(databasePath: string): string {
  return `${databasePath}.payloads`;
}

export class PayloadFolder implements PayloadFiles {
  readonly #folder: string;
  readonly #isUsable: () => boolean;
  readonly #onFailure: (error: unknown) => void;

  constructor({ folder, isUsable = () => true, onFailure = () => {} }: PayloadFolderOptions) {
    this.#folder = folder;
    this.#isUsable = isUsable;
    this.#onFailure = onFailure;
  }

  get isUsable(): boolean {
    return this.#isUsable();
  }

  /** Path of the file. Its name has no text of a caller. */
  locate({ endpointId, id, kind, origin }: StagedPayload): string {
    const name = createHash('sha256').update(`${kind} ${endpointId}/${id} ${origin}`).digest('hex');
    return `${this.#folder}/${name.slice(0, 40)}`;
  }

  async write(payload: StagedPayload, { at, bytes, isLast }: FilePiece): Promise<void> {
    const path = this.locate(payload);
    try {
      if (!this.isUsable) throw describeNoSpace();
      const file = await (at === 0 ? this.#create(path) : open(path, CONTINUE));
      try {
        for (let done = 0; done < bytes.length; ) {
          const length = bytes.length - done;
          done += (await file.write(bytes, done, length, at + done)).bytesWritten;
        }
        await file.datasync();
      } finally {
        await file.close();
      }
      if (isLast) await syncFolder(this.#folder);
    } catch (error) {
      this.#onFailure(error);
      // So that its space is free again.
      await rm(path, { force: true }).catch(() => {});
      throw new PayloadFileError(path, error);
    }
  }

  /** A file of this name may remain from a payload whose rows were deleted right before a power failure. */
  async #create(path: string): Promise<FileHandle> {
    try {
      return await open(path, CREATE, OWNER_ONLY);
    } catch (error) {
      if (hasCode(error, 'EEXIST')) await rm(path, { force: true });
      else if (hasCode(error, 'ENOENT')) await this.#createFolder();
      else throw error;
      return open(path, CREATE, OWNER_ONLY);
    }
  }

  async #createFolder(): Promise<void> {
    await mkdir(this.#folder, { mode: OWNER_ONLY_FOLDER, recursive: true });
    await syncFolder(dirname(this.#folder));
  }

  async read(payload: StagedPayload, at: number, part: Uint8Array): Promise<boolean> {
    const path = this.locate(payload);
    try {
      const file = await open(path, READ);
      try {
        for (let done = 0; done < part.length; ) {
          const { bytesRead } = await file.read(part, done, part.length - done, at + done);
          if (bytesRead === 0) return false;
          done += bytesRead;
        }
        return true;
      } finally {
        await file.close();
      }
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return false;
      this.#onFailure(error);
      throw new PayloadFileError(path, error);
    }
  }

  reportLost(payload: StagedPayload): PayloadFileError {
    const cause = Object.assign(new Error('it is missing or too short'), { code: 'ENOENT' });
    this.#onFailure(cause);
    return new PayloadFileError(this.locate(payload), cause);
  }

  /** Blocks. Undefined if the file lacks the part. @throws PayloadFileError */
  readPartSync(payload: StagedPayload, at: number, bytes: number): Uint8Array | undefined {
    const path = this.locate(payload);
    try {
      const file = openSync(path, READ);
      try {
        const part = Buffer.allocUnsafeSlow(bytes);
        for (let done = 0; done < bytes; ) {
          const bytesRead = readSync(file, part, done, bytes - done, at + done);
          if (bytesRead === 0) return undefined;
          done += bytesRead;
        }
        return part;
      } finally {
        closeSync(file);
      }
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return undefined;
      this.#onFailure(error);
      throw new PayloadFileError(path, error);
    }
  }

  async remove(payloads: readonly StagedPayload[]): Promise<StagedPayload[]> {
    const kept: StagedPayload[] = [];
    for (const payload of payloads) {
      try {
        await rm(this.locate(payload), { force: true });
      } catch (error) {
        this.#onFailure(error);
        kept.push(payload);
      }
    }
    try {
      if (payloads.length > 0) await syncFolder(this.#folder);
      return kept;
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return kept;
      this.#onFailure(error);
      return [...payloads];
    }
  }
}

/** Puts the names of its files on disk. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, READ);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function describeNoSpace(): Error {
  return Object.assign(new Error('the disk is full'), { code: 'ENOSPC' });
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

/** Shortest time between the starts of two walks, ms: each one asks the system for every file. */
const WALK_EVERY_MS = 60_000;

export interface PayloadsSizeOptions {
  /** May be missing. */
  folder: string;
  clock: Clock;
  /** Ends a walk. */
  signal: AbortSignal;
}

export class PayloadsSize {
  readonly #options: PayloadsSizeOptions;
  #bytes = 0;
  #startedAt: number | undefined;
  #walking: Promise<void> | undefined;

  constructor(options: PayloadsSizeOptions) {
    this.#options = options;
  }

  /** As of the last complete walk; 0 before. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Begins a walk unless one runs or the last one began less than a minute ago. */
  refresh(): void {
    const now = this.#options.clock.now();
    const startedAt = this.#startedAt ?? Number.NEGATIVE_INFINITY;
    if (this.#walking || (now >= startedAt && now - startedAt < WALK_EVERY_MS)) return;
    this.#startedAt = now;
    this.#walking = this.#walk().finally(() => {
      this.#walking = undefined;
    });
  }

  /** Resolves when no walk runs. */
  async settle(): Promise<void> {
    await this.#walking;
  }

  async #walk(): Promise<void> {
    try {
      const bytes = await sumFiles(this.#options);
      if (bytes !== undefined) this.#bytes = bytes;
    } catch (error) {
      // The folder comes with the first payload. Without another answer, the last size stays.
      if (isMissing(error)) this.#bytes = 0;
    }
  }
}

/** Undefined if it was aborted. */
async function sumFiles({ folder, signal }: PayloadsSizeOptions): Promise<number | undefined> {
  let sum = 0;
  for await (const entry of await opendir(folder)) {
    if (signal.aborted) return undefined;
    if (entry.isFile()) sum += await readSize(`${folder}/${entry.name}`);
  }
  return sum;
}

/** 0 if the file has been removed meanwhile. */
async function readSize(path: string): Promise<number> {
  try {
    return (await lstat(path)).size;
  } catch (error) {
    if (isMissing(error)) return 0;
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

const TABLES = [
  { table: 'job_input', kind: 'input' },
  { table: 'job_output', kind: 'output' },
] as const;

export interface FilePart {
  table: (typeof TABLES)[number]['table'];
  payload: StagedPayload;
  /** Key of the row. */
  at: number;
  /** Of the part, in the file. */
  offset: number;
  bytes: number;
}

/** Parts of payloads that jobs have. */
export function listFileParts(database: DatabaseSync): FilePart[] {
  return TABLES.flatMap(({ kind, table }) => {
    const rows = database
      .prepare(
        `select endpoint_id, job_id, at, file_bytes from ${table}
          where file_bytes is not null and ${isUsed(kind)}`,
      )
      .all();
    return rows.map((row) => {
      const at = number(row, 'at');
      const { offset, origin } = splitAt(at);
      const key = { endpointId: text(row, 'endpoint_id'), id: text(row, 'job_id') };
      return {
        table,
        payload: { ...key, kind, origin },
        at,
        offset,
        bytes: number(row, 'file_bytes'),
      };
    });
  });
}

/** Says which files are missing or too short. A platform may run: a payload that it removes meanwhile does not count. */
export function findLostParts(
  database: DatabaseSync,
  files: Pick<PayloadFolder, 'locate'>,
): string[] {
  const isLost = ({ bytes, offset, payload }: FilePart) => {
    const size = statSync(files.locate(payload), { throwIfNoEntry: false })?.size ?? 0;
    return size < offset + bytes;
  };
  const pathOf = ({ payload }: FilePart) => files.locate(payload);
  const lost = new Set(listFileParts(database).filter(isLost).map(pathOf));
  if (lost.size === 0) return [];
  // A file is removed after its job: a job that is still there had its file when it was not found.
  const still = new Map(listFileParts(database).map((part) => [pathOf(part), part.payload]));
  return [...still]
    .filter(([path]) => lost.has(path))
    .map(
      ([path, { endpointId, id, kind }]) =>
        `the file ${path} with the ${kind} of job ${id} of endpoint ${endpointId} is missing or too short`,
    );
}
