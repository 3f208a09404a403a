// Reads the package's own package.json. It works from src/ and from dist/, because both are beside
// it.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The package's root folder. */
export const packageRoot = fileURLToPath(new URL('../../', import.meta.url));

/** The file that starts the command on any Node. */
export const launcherPath = fileURLToPath(new URL('../../bin/millrace.js', import.meta.url));

interface PackageInfo {
  version: string;
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
}

export function readPackageInfo(): PackageInfo {
  const file = new URL('../../package.json', import.meta.url);
  // The package ships this file, so its shape is known.
  return JSON.parse(readFileSync(file, 'utf8')) as PackageInfo;
}

export function packageVersion(): string {
  return readPackageInfo().version;
}
