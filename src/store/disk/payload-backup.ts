// Puts the large payloads of a platform that may run into a copy of its database. A platform removes a file soon after
// its job, so links keep the files while SQLite copies the database.
import { randomUUID } from 'node:crypto';
import {
  constants,
  copyFileSync,
  linkSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { locatePayloads, PayloadFolder } from './payload-files.ts';
import { type FilePart, listFileParts } from './payload-rows.ts';

const OWNER_ONLY_FOLDER = 0o700;
const LINKS = /^backup-[\da-f-]{36}$/;
/** Links this old are those of a backup that was killed, ms. */
const STALE_MS = 86_400_000;

export interface HeldPayloads extends Pick<PayloadFolder, 'readPartSync'> {
  release(): void;
}

/** Links every file in the folder of the database's payloads. @throws the system's error */
export function holdPayloads(databasePath: string): HeldPayloads {
  const folder = locatePayloads(databasePath);
  const live = new PayloadFolder({ folder });
  if (!statSync(folder, { throwIfNoEntry: false })) {
    return { readPartSync: (...part) => live.readPartSync(...part), release: () => {} };
  }
  removeStale(folder);
  const links = join(folder, `backup-${randomUUID()}`);
  mkdirSync(links, { mode: OWNER_ONLY_FOLDER });
  const release = () => rmSync(links, { recursive: true, force: true });
  try {
    linkNew(folder, links);
    // The first pass over many files takes a while.
    linkNew(folder, links);
  } catch (error) {
    release();
    throw error;
  }
  const held = new PayloadFolder({ folder: links });
  // A file that was written after the links were made is only in the folder itself.
  const readPartSync: HeldPayloads['readPartSync'] = (...part) =>
    held.readPartSync(...part) ?? live.readPartSync(...part);
  return { readPartSync, release };
}

function linkNew(folder: string, links: string): void {
  const linked = new Set(readdirSync(links));
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (!entry.isFile() || linked.has(entry.name)) continue;
    keep(join(folder, entry.name), join(links, entry.name));
  }
}

/** Those that another user made stay. */
function removeStale(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (!entry.isDirectory() || !LINKS.test(entry.name)) continue;
    const path = join(folder, entry.name);
    try {
      if (Date.now() - statSync(path).mtimeMs > STALE_MS) rmSync(path, { recursive: true });
    } catch {
      // The backup does not need its space.
    }
  }
}

/** Does nothing if the platform has removed the file meanwhile. */
function keep(file: string, link: string): void {
  try {
    linkSync(file, link);
  } catch {
    // A file system without links, or a file of another user.
    if (!statSync(file, { throwIfNoEntry: false })) return;
    copyFileSync(file, link, constants.COPYFILE_FICLONE);
  }
}

/**
 * Replaces each part of a file that a row of the copy names by its bytes. @returns the parts whose files lack them: the rows
 * of the copy still name these files
 */
export function importPayloads(
  copy: DatabaseSync,
  files: Pick<HeldPayloads, 'readPartSync'>,
): FilePart[] {
  const missing: FilePart[] = [];
  copy.exec('pragma journal_mode = off; pragma synchronous = off; begin');
  for (const part of listFileParts(copy)) {
    const { at, payload, table } = part;
    const content = files.readPartSync(payload, part.offset, part.bytes);
    if (!content) {
      missing.push(part);
      continue;
    }
    copy
      .prepare(
        `update ${table} set bytes = ?, file_bytes = null where endpoint_id = ? and job_id = ? and at = ?`,
      )
      .run(content, payload.endpointId, payload.id, at);
  }
  copy.exec('commit');
  return missing;
}
