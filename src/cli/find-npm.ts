// Finds the npm that belongs to the running Node.
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readVariable } from './config.ts';

/** The program and its first arguments: npm beside the running Node, else the one on the PATH. */
export function findNpm(): string[] {
  const beside = join(dirname(process.execPath), '../lib/node_modules/npm/bin/npm-cli.js');
  if (existsSync(beside)) return [process.execPath, beside];
  const folders = (readVariable('PATH') ?? '').split(':');
  const found = folders.map((folder) => join(folder, 'npm')).find((path) => existsSync(path));
  return [found ?? 'npm'];
}
