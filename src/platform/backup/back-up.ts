// Backs up the data folder of a platform that may run: a consistent copy of the database, and the small files beside it.
import {
  chmodSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { packageVersion } from '../../base/package-info.ts';
import { backUpStore, describeStore } from '../../store/disk/store-files.ts';
import { syncPath } from '../files/durable-files.ts';
import { describeError } from '../option-error.ts';
import {
  BackupError,
  type BackupFile,
  type BackupManifest,
  hashFile,
  MANIFEST,
} from './manifest.ts';

export const DATABASE = 'millrace.db';
const OWNER_ONLY_FOLDER = 0o700;
const OWNER_ONLY = 0o600;
/** Secrets, keys and names have some KB. Larger files are not the platform's. */
const MAX_FILE_BYTES = 1_048_576;
/** The copy of the database replaces `millrace.db`, its log and its payloads; the other files belong to a running process. */
const NEVER_COPIED = /^(millrace\.db(-wal|-shm|\.reserve|\.payloads)?|lock\.(db(-journal)?|pid))$/;

export interface BackupOptions {
  dataFolder: string;
  /** New folder to write. */
  target: string;
  /** False for a platform on Postgres: only the files are copied. */
  hasDatabase: boolean;
  now: Date;
}

export interface Backup {
  manifest: BackupManifest;
  /** Names in the data folder that are not in the backup, apart from locks and the reserve. */
  leftOut: string[];
  /** Problems of files of large payloads that were lost before: the backup lacks them, too. */
  lost: string[];
}

/**
 * Writes the folder, readable by its owner only. If this fails, the folder is removed. @throws BackupError, or the error
 * of SQLite
 */
export async function backUp(options: BackupOptions): Promise<Backup> {
  const { dataFolder, hasDatabase, target } = options;
  checkSource(dataFolder, hasDatabase);
  try {
    mkdirSync(target, { mode: OWNER_ONLY_FOLDER });
  } catch (error) {
    const exists = error instanceof Error && 'code' in error && error.code === 'EEXIST';
    const reason = exists ? 'exists already; name a new folder' : describeError(error);
    throw new BackupError(`${target}: ${reason}`);
  }
  try {
    return await fill(options);
  } catch (error) {
    rmSync(target, { recursive: true, force: true });
    throw error;
  }
}

async function fill({ dataFolder, hasDatabase, now, target }: BackupOptions): Promise<Backup> {
  const { copied, leftOut } = sortNames(dataFolder);
  const names = hasDatabase ? [DATABASE, ...copied] : copied;
  const lost = hasDatabase ? backUpStore(join(dataFolder, DATABASE), join(target, DATABASE)) : [];
  for (const name of copied) {
    const path = join(target, name);
    copyFileSync(join(dataFolder, name), path);
    chmodSync(path, OWNER_ONLY);
    syncPath(path);
  }
  const files: BackupFile[] = [];
  for (const name of names) {
    const path = join(target, name);
    files.push({ name, bytes: statSync(path).size, sha256: await hashFile(path) });
  }
  const manifest: BackupManifest = {
    format: 1,
    version: packageVersion(),
    createdAt: now.toISOString(),
    schemaVersion: hasDatabase ? describeStore(join(target, DATABASE)).schemaVersion : null,
    files,
  };
  const path = join(target, MANIFEST);
  writeFileSync(path, `${JSON.stringify(manifest, null, 2)}\n`, { flag: 'wx', mode: OWNER_ONLY });
  syncPath(path);
  syncPath(target);
  return { manifest, leftOut, lost };
}

function checkSource(dataFolder: string, hasDatabase: boolean): void {
  const path = join(dataFolder, DATABASE);
  const size = statSync(path, { throwIfNoEntry: false })?.size;
  if (!hasDatabase) {
    if (statSync(dataFolder, { throwIfNoEntry: false })?.isDirectory()) return;
    throw new BackupError(
      `--data: ${dataFolder} does not exist; name the data folder of a platform`,
    );
  }
  if (size === undefined) {
    throw new BackupError(
      `--data: ${path} does not exist; name the data folder of a platform. If its database is in Postgres, ` +
        'back that up with pg_dump, and the data folder with --without-database',
    );
  }
  if (size === 0) throw new BackupError(`--data: ${path} is empty; restore a backup`);
}

/** A link is left out: what it names may be large, or a device. */
function sortNames(dataFolder: string) {
  const names = readdirSync(dataFolder).filter((name) => !NEVER_COPIED.test(name));
  const isCopied = (name: string) => {
    const stats = lstatSync(join(dataFolder, name), { throwIfNoEntry: false });
    return stats?.isFile() && stats.size <= MAX_FILE_BYTES && name !== MANIFEST;
  };
  const copied = names.filter(isCopied).sort();
  return { copied, leftOut: names.filter((name) => !copied.includes(name)).sort() };
}
