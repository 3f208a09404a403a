// Restores a backup into the data folder of a platform that does not run.
import { chmodSync, copyFileSync, existsSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { locatePayloads } from '../../store/disk/payload-files.ts';
import { MIGRATIONS } from '../../store/sqlite/schema.ts';
import { lockDataFolder } from '../files/data-lock.ts';
import { syncPath } from '../files/durable-files.ts';
import { DATABASE } from './back-up.ts';
import { BackupError, type BackupManifest, hashFile, readManifest } from './manifest.ts';

const OWNER_ONLY = 0o600;

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
