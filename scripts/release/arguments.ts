// The command line of the release script.
import { parseArgs } from 'node:util';

export interface ReleaseOptions {
  /** Checks and packs; makes no tag, and lets the repository be as it is. */
  isDryRun: boolean;
  /** The registry is not asked for its signatures. */
  isOffline: boolean;
  /** node_modules is as npm ci makes it. */
  isInstalled: boolean;
  /** Commit whose tests have passed elsewhere; undefined: run them here. */
  tested: string | undefined;
  /** Folder of the results. */
  out: string;
}

export const USAGE = `Usage: npm run release -- [options]

Checks the repository, runs the tests, packs millrace and millrace-client, and tags the commit. Publishes nothing.

  --dry-run        make no tag; warn of a wrong branch, of changed files and of a missing changelog section
  --offline        do not verify the signatures of the registry; the result says so
  --tested COMMIT  the tests of this commit have passed in CI: do not run them again; must be the current commit
  --installed      with --dry-run: node_modules is as npm ci made it; do not install again
  --out DIR        folder of the results; default: release
`;

/** @throws Error that says what is wrong */
export function parseReleaseArguments(args: readonly string[]): ReleaseOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      'dry-run': { type: 'boolean', default: false },
      installed: { type: 'boolean', default: false },
      offline: { type: 'boolean', default: false },
      tested: { type: 'string' },
      out: { type: 'string', default: 'release' },
    },
  });
  const { 'dry-run': isDryRun, installed: isInstalled, offline: isOffline, out, tested } = values;
  if (isInstalled && !isDryRun) throw new Error('--installed needs --dry-run');
  if (tested !== undefined && !/^[0-9a-f]{7,40}$/.test(tested)) {
    throw new Error(`--tested: must be the hash of a commit, got ${JSON.stringify(tested)}`);
  }
  return { isDryRun, isInstalled, isOffline, tested, out };
}
