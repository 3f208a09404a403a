// Files of large payloads, beside the database: one file a payload, written and read in the thread pool. SQLite would
// write such a payload twice, to its log and to its file, and the event loop would wait for each page.
import { createHash } from 'node:crypto';
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { type FileHandle, mkdir, open, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
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
