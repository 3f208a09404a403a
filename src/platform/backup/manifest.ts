// The manifest of a backup: lists its files with sizes and hashes. It is written last, so a folder without it is no
// complete backup.
import { createHash } from 'node:crypto';
import { createReadStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { describeIssues } from '../../wire/problem.ts';
import { describeError } from '../option-error.ts';

export const MANIFEST = 'backup.json';

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

export type BackupManifest = z.infer<typeof backupManifest>;
export type BackupFile = BackupManifest['files'][number];

/** A backup or a restore that cannot be made; the message names the path and what to do. */
export class BackupError extends Error {
  override readonly name = 'BackupError';
}

/** @throws BackupError */
export function readManifest(folder: string): BackupManifest {
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

export async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
