// Finds the mount of a path in Linux's list of mounts, and whether that mount enforces project quotas. Pure.

export interface Mount {
  mountPoint: string;
  /** `ext4`, `xfs`, `overlay`, … */
  type: string;
  options: readonly string[];
}

/** Options of a mount whose project quotas are enforced; xfs knows both. */
const ENFORCING = ['prjquota', 'pquota'];
const TYPES = ['ext4', 'xfs'];

/** `table`: content of /proc/self/mountinfo. `path`: absolute, without links. Undefined if no mount has it. */
export function findMount(table: string, path: string): Mount | undefined {
  let found: Mount | undefined;
  for (const line of table.split('\n')) {
    const mount = readLine(line);
    // A later mount on the same path hides the earlier one.
    const isNearer = mount && mount.mountPoint.length >= (found?.mountPoint.length ?? 0);
    if (isNearer && isWithin(path, mount.mountPoint)) found = mount;
  }
  return found;
}

/** Undefined if the mount enforces project quotas. */
export function findQuotaFault({ mountPoint, options, type }: Mount): string | undefined {
  if (!TYPES.includes(type)) {
    return `the file system ${mountPoint} is ${type}; project quotas need ext4 or xfs`;
  }
  if (options.some((option) => ENFORCING.includes(option))) return undefined;
  return `the file system ${mountPoint} (${type}) is not mounted with prjquota`;
}

/** `36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/sda rw,prjquota`: the list of tags ends with `-`. */
function readLine(line: string): Mount | undefined {
  const words = line.split(' ');
  const end = words.indexOf('-', 6);
  const [mountPoint, type, options] = [words[4], words[end + 1], words[end + 3]];
  if (end < 0 || mountPoint === undefined || type === undefined) return undefined;
  return { mountPoint: decode(mountPoint), type, options: (options ?? '').split(',') };
}

/** A blank is `\040`. */
function decode(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_all, code: string) =>
    String.fromCharCode(Number.parseInt(code, 8)),
  );
}

function isWithin(path: string, folder: string): boolean {
  return folder === '/' || path === folder || path.startsWith(`${folder}/`);
}
