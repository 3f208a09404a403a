// Says whether this machine can limit what a folder may hold, before the folder exists.
import { execFileSync } from 'node:child_process';
import { accessSync, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { findMount, findQuotaFault } from './mount-table.ts';
import { MOUNTS, SEARCH_PATH } from './quota-programs.ts';

const PROGRAMS = ['chattr', 'lsattr', 'setquota', 'repquota'];
/** Limit of the report, ms. */
const REPORT_LIMIT_MS = 5_000;
const MAX_OUTPUT_BYTES = 16_777_216;

/** `path`: absolute; folders above it may be missing too. Never throws. */
export function canLimitFolder(path: string, mounts = MOUNTS): boolean {
  if (process.getuid?.() !== 0) return false;
  try {
    const mount = findMount(readFileSync(mounts, 'utf8'), resolveExisting(path));
    if (!mount || findQuotaFault(mount) !== undefined) return false;
    if (!PROGRAMS.every(isInstalled)) return false;
    // The mount's options do not tell whether this process may use quotas; in a container it may not.
    execFileSync('repquota', ['-P', '-n', '-O', 'csv', mount.mountPoint], {
      ...{ cwd: '/', env: { PATH: SEARCH_PATH, LC_ALL: 'C' }, stdio: 'ignore' },
      ...{ timeout: REPORT_LIMIT_MS, maxBuffer: MAX_OUTPUT_BYTES },
    });
    return true;
  } catch {
    return false;
  }
}

function resolveExisting(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : resolveExisting(parent);
  }
}

function isInstalled(program: string): boolean {
  return SEARCH_PATH.split(':').some((folder) => {
    try {
      accessSync(join(folder, program));
      return true;
    } catch {
      return false;
    }
  });
}
