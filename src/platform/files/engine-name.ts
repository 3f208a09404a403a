// The platform's name on a shared engine, stored with its data: it finds its own containers by this
// name.
import { randomBytes } from 'node:crypto';
import { keepName } from './kept-name.ts';

/** @throws PlatformOptionError if the file does not contain a name */
export function readEngineName(dataFolder: string): string {
  return keepName({
    dataFolder,
    file: 'engine-name',
    pattern: /^[a-z0-9]{4,32}$/,
    create: () => randomBytes(6).toString('hex'),
    requirement:
      "this platform's name on its engine, 4 to 32 lowercase letters and digits; " +
      'with another name the platform does not find its containers',
  });
}
