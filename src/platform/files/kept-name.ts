// A name that is created with the data folder and kept in a file there.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PlatformOptionError } from '../option-error.ts';
import { createFile, hasCode } from './durable-files.ts';

export interface KeptName {
  dataFolder: string;
  /** Name of the file. */
  file: string;
  pattern: RegExp;
  create: () => string;
  /** What the file must contain, and why. */
  requirement: string;
}

/** @throws PlatformOptionError if the file does not contain a name */
export function keepName({ create, dataFolder, file, pattern, requirement }: KeptName): string {
  const path = join(dataFolder, file);
  try {
    // If two processes create the file, the first wins.
    createFile(path, `${create()}\n`);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
  const name = readFileSync(path, 'utf8').trim();
  if (pattern.test(name)) return name;
  throw new PlatformOptionError('unusable', 'dataFolder', `${path}: must contain ${requirement}`);
}
