// Files of large payloads, beside the database: one file a payload, written and read in the thread pool. SQLite would
// write such a payload twice, to its log and to its file, and its event loop would wait for each page.
import { createHash } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { type FileHandle, mkdir, open, rm } from 'node:fs/promises';
import {
  type PayloadFile,
  PayloadFileError,
  type PayloadFiles,
  type StagedPayload,
} from '../store.ts';

const OWNER_ONLY = 0o600;
const OWNER_ONLY_FOLDER = 0o700;

/** Reads parts of payloads at once. */
export type PartFiles = Pick<PayloadFolder, 'readPart'>;

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

  async create(payload: StagedPayload): Promise<PayloadFile> {
    const path = this.locate(payload);
    const file = await this.#attempt(path, undefined, () => this.#open(path));
    return {
      append: (part) => this.#attempt(path, file, () => writeAll(file, part)),
      finish: () =>
        this.#attempt(path, file, async () => {
          await file.datasync();
          await file.close();
          await this.#syncFolder();
        }),
    };
  }

  /** A file of this name may remain from a payload whose rows were deleted right before a power failure. */
  async #open(path: string): Promise<FileHandle> {
    try {
      return await open(path, 'w', OWNER_ONLY);
    } catch (error) {
      if (!isMissing(error)) throw error;
      await mkdir(this.#folder, { mode: OWNER_ONLY_FOLDER, recursive: true });
      return open(path, 'w', OWNER_ONLY);
    }
  }

  /** After a failure the file is removed, so that its space is free again. */
  async #attempt<T>(path: string, file: FileHandle | undefined, act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (error) {
      this.#onFailure(error);
      await file?.close().catch(() => {});
      await rm(path, { force: true }).catch(() => {});
      throw new PayloadFileError(path, error);
    }
  }

  async read(payload: StagedPayload, bytes: number): Promise<Uint8Array | undefined> {
    try {
      const file = await open(this.locate(payload), 'r');
      try {
        const content = Buffer.allocUnsafeSlow(bytes);
        const { bytesRead } = await file.read(content, 0, bytes, 0);
        return bytesRead === bytes ? content : undefined;
      } finally {
        await file.close();
      }
    } catch (error) {
      if (isMissing(error)) return undefined;
      this.#onFailure(error);
      throw new PayloadFileError(this.locate(payload), error);
    }
  }

  reportLost(payload: StagedPayload): PayloadFileError {
    const cause = Object.assign(new Error('it is missing or too short'), { code: 'ENOENT' });
    this.#onFailure(cause);
    return new PayloadFileError(this.locate(payload), cause);
  }

  /** Undefined if the file lacks the part. @throws the system's error */
  readPart(payload: StagedPayload, at: number, bytes: number): Uint8Array | undefined {
    let file: number;
    try {
      file = openSync(this.locate(payload), 'r');
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
    try {
      const part = Buffer.allocUnsafeSlow(bytes);
      return readSync(file, part, 0, bytes, at) === bytes ? part : undefined;
    } finally {
      closeSync(file);
    }
  }

  async remove(payloads: readonly StagedPayload[]): Promise<void> {
    if (payloads.length === 0) return;
    try {
      for (const payload of payloads) await rm(this.locate(payload), { force: true });
      await this.#syncFolder();
    } catch (error) {
      this.#onFailure(error);
      throw new PayloadFileError(this.#folder, error);
    }
  }

  /** Puts the names of its files on disk. */
  async #syncFolder(): Promise<void> {
    const folder = await open(this.#folder, 'r').catch((error: unknown) => {
      if (isMissing(error)) return undefined;
      throw error;
    });
    try {
      await folder?.sync();
    } finally {
      await folder?.close();
    }
  }
}

async function writeAll(file: FileHandle, part: Uint8Array): Promise<void> {
  for (let at = 0; at < part.length; ) at += (await file.write(part, at)).bytesWritten;
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
