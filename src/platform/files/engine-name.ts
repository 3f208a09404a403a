// The platform's name on a shared engine, stored with its data: it finds its own containers by this
// name.
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PlatformOptionError } from '../option-error.ts';

const NAME = /^[a-z0-9]{4,32}$/;

/** @throws PlatformOptionError if the file does not contain a name */
export function readEngineName(dataFolder: string): string {
  const path = join(dataFolder, 'engine-name');
  try {
    // If two processes create the file, the first wins.
    writeFileSync(path, `${randomBytes(6).toString('hex')}\n`, { flag: 'wx' });
  } catch (error) {
    const isThere = error instanceof Error && 'code' in error && error.code === 'EEXIST';
    if (!isThere) throw error;
  }
  const name = readFileSync(path, 'utf8').trim();
  if (NAME.test(name)) return name;
  throw new PlatformOptionError(
    'unusable',
    'dataFolder',
    `${path}: must contain this platform's name on its engine, 4 to 32 lowercase letters and ` +
      'digits; with another name the platform does not find its containers',
  );
}
