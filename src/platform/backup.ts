// Backs up the data folder of a platform that may run, and restores it into the folder of one that does not: a consistent
// copy of the database, and the small files beside it.
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  createReadStream,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { packageVersion } from '../base/package-info.ts';
import { locatePayloads } from '../store/disk/payload-files.ts';
import { backUpStore, describeStore } from '../store/disk/store-files.ts';
import { MIGRATIONS } from '../store/sqlite/schema.ts';
import { describeIssues } from '../wire/problem.ts';
import { lockDataFolder } from './files/data-folder.ts';
import { syncPath } from './files/durable-files.ts';
import { describeError } from './option-error.ts';

const DATABASE = 'millrace.db';
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

export interface RestoreOptions {
  /** Folder that `backUp` has written. */
  backup: string;
  /** Created if it is missing. It must have no database and none of the other files of the backup. */
  dataFolder: string;
}

/**
 * Checks every file of the backup, then copies the files; the database comes last and at once, so that no platform
 * starts on half a restore. If this fails, it has only lock files more than before.
 * @throws BackupError, or PlatformOptionError if a platform uses the data folder
 */
export async function restore({ backup, dataFolder }: RestoreOptions): Promise<BackupManifest> {
  const manifest = readManifest(backup);
  checkSchema(manifest, backup);
  for (const { bytes, name, sha256 } of manifest.files) {
    const path = join(backup, name);
    const size = statSync(path, { throwIfNoEntry: false })?.size;
    if (size === undefined) throw new BackupError(`${path} is missing; use another backup`);
    if (size !== bytes || (await hashFile(path)) !== sha256) {
      throw new BackupError(`${path} has changed since the backup was made; use another backup`);
    }
  }
  const lock = lockDataFolder(dataFolder);
  try {
    copyFiles(manifest, { backup, dataFolder });
  } finally {
    lock.release();
  }
  return manifest;
}

function checkSchema({ schemaVersion, version }: BackupManifest, backup: string): void {
  const known = MIGRATIONS.length;
  if (schemaVersion === null || schemaVersion <= known) return;
  throw new BackupError(
    `${backup} has schema version ${schemaVersion}; this version of millrace knows versions up to ${known}. ` +
      `Restore with millrace ${version}, which made the backup, or a newer one`,
  );
}

function copyFiles(manifest: BackupManifest, { backup, dataFolder }: RestoreOptions): void {
  const names = manifest.files.map(({ name }) => name);
  // A log without its database is data, too: SQLite would apply it to the restored database.
  // Nothing would ever remove the files of another database's payloads.
  const besides = [`${DATABASE}-wal`, locatePayloads(DATABASE)];
  const taken = [...names, ...(names.includes(DATABASE) ? besides : [])];
  for (const name of taken) {
    const path = join(dataFolder, name);
    if (!existsSync(path)) continue;
    throw new BackupError(`${path} exists already; move it away, or restore to a new folder`);
  }
  const created: string[] = [];
  try {
    for (const name of names) {
      const path = join(dataFolder, `${name}.restoring`);
      created.push(path);
      copyFileSync(join(backup, name), path);
      chmodSync(path, OWNER_ONLY);
      syncPath(path);
    }
    for (const name of names.toSorted((a, b) => Number(a === DATABASE) - Number(b === DATABASE))) {
      const path = join(dataFolder, name);
      renameSync(`${path}.restoring`, path);
      created.push(path);
    }
    syncPath(dataFolder);
  } catch (error) {
    for (const path of created) rmSync(path, { force: true });
    throw error;
  }
}

// The manifest lists the files of a backup with sizes and hashes. It is written last, so a folder without it is no complete
// backup.

const MANIFEST = 'backup.json';

/** Name of a file directly in the folder. */
const fileName = z
  .string()
  .regex(/^[^/\\\0]+$/)
  .refine((name) => name !== '.' && name !== '..' && name !== MANIFEST);

const backupManifest = z.object({
  /** Changes when an older restore could not read the folder. */
  format: z.literal(1),
  /** Version of Millrace that made the backup. */
  version: z.string(),
  createdAt: z.iso.datetime(),
  /** Schema of the SQLite database; null if the backup has none. */
  schemaVersion: z.int().min(1).nullable(),
  files: z.array(
    z.object({
      name: fileName,
      bytes: z.int().min(0),
      sha256: z.string().regex(/^[0-9a-f]{64}$/),
    }),
  ),
});

type BackupManifest = z.infer<typeof backupManifest>;
type BackupFile = BackupManifest['files'][number];

/** A backup or a restore that cannot be made; the message names the path and what to do. */
export class BackupError extends Error {
  override readonly name = 'BackupError';
}

/** @throws BackupError */
function readManifest(folder: string): BackupManifest {
  const path = join(folder, MANIFEST);
  const parsed = backupManifest.safeParse(readJson(path, folder));
  if (parsed.success) return parsed.data;
  throw new BackupError(
    `${path} cannot be read: ${describeIssues(parsed.error, MANIFEST).join(', ')}; restore with the version of millrace that made the backup, or a newer one`,
  );
}

function readJson(path: string, folder: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    if (!isMissing) throw new BackupError(`${path} cannot be read: ${describeError(error)}`);
    throw new BackupError(
      `${folder} is no complete backup: it has no ${MANIFEST}; name a folder that \`millrace backup\` has written`,
    );
  }
}

async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
