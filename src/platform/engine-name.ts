// What a platform calls itself on an engine that others use too: kept with its data, because it is by
// this name that it finds its containers again, and none of anybody else's.
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PlatformOptionError } from './option-error.ts';

const NAME = /^[a-z0-9]{4,32}$/;

/** @throws PlatformOptionError if what is in the file is no name */
export function readEngineName(dataFolder: string): string {
  const path = join(dataFolder, 'engine-name');
  try {
    // Of two that make it, one does.
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
