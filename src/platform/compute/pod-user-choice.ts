// Chooses the user that pods on the process engine run as. The operator may set one. Otherwise, if
// the platform is root, it is `nobody`, unless that user cannot reach everything that pods need.
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Log } from '../../base/log.ts';
import { launcherPath } from '../../base/package-info.ts';
import { findUnreadable, type PodUser, providePodFolder } from '../../engine/process/pod-user.ts';
import { PlatformOptionError } from '../option-error.ts';

/** The file that has this code; the package may have bundled it. */
const OWN_CODE = import.meta.filename;
const NOBODY = 65_534;
const MAX_ID = 2 ** 32 - 2;
const REMEDY =
  'make it readable (chmod o+rX on it and its folders), or run pods as root with `compute.podUser` root';

/** Folder of Node's compile cache, which workers share. */
export function locateCode(dataFolder: string): string {
  return join(dataFolder, 'code');
}

interface PodUserChoice {
  given: string | undefined;
  engine: string;
  dataFolder: string;
  /** By option name: files that the pods' user must not be able to read. */
  secretFiles: Readonly<Record<string, string | undefined>>;
  log: Log;
}

/** Undefined: pods run as the platform's own user. @throws PlatformOptionError */
export async function choosePodUser(choice: PodUserChoice): Promise<PodUser | undefined> {
  const { engine, given, log } = choice;
  if (engine !== 'process') return undefined;
  if (process.geteuid?.() !== 0) return refuseUnlessRoot(given);
  const user = given === undefined ? findNobody() : findUser(given);
  if (user.uid === 0) return undefined;
  const [path] = await findUnreachable(choice.dataFolder, user);
  if (path !== undefined) {
    const problem = `${path} cannot be read by ${user.name}, the user that pods would run as`;
    if (given !== undefined) throw refuse(`${problem}: ${REMEDY}`);
    log.warn({ path, user: user.name }, `pods run as root: ${problem}`);
    return undefined;
  }
  await checkSecrets(choice, user);
  log.info({ user: user.name, uid: user.uid, gid: user.gid }, `pods run as ${user.name}`);
  return user;
}

/**
 * Lets the pods' user pass through the folder, but not list it or read anything except its own
 * files.
 */
export async function shareDataFolder(dataFolder: string, user: PodUser): Promise<void> {
  // From here on the platform's new files are private.
  process.umask(0o077);
  for (const entry of readdirSync(dataFolder, { withFileTypes: true })) {
    if (entry.isFile()) chmodSync(join(dataFolder, entry.name), 0o600);
  }
  chmodSync(dataFolder, 0o711);
  await providePodFolder(locateCode(dataFolder), user);
}

function refuseUnlessRoot(given: string | undefined): undefined {
  if (given === undefined) return undefined;
  const own = process.geteuid?.();
  if (findUser(given).uid === own) return undefined;
  throw refuse(`only root can run pods as another user, and this platform runs as UID ${own}`);
}

/** A folder that others cannot enter hides everything inside it. */
async function findUnreachable(dataFolder: string, user: PodUser): Promise<string[]> {
  const parent = dirname(dataFolder);
  // Missing folders are created here; otherwise they would be created closed.
  mkdirSync(parent, { recursive: true });
  return findUnreadable([process.execPath, launcherPath, OWN_CODE, parent], user);
}

async function checkSecrets({ secretFiles }: PodUserChoice, user: PodUser): Promise<void> {
  for (const [option, path] of Object.entries(secretFiles)) {
    if (path === undefined || !existsSync(path)) continue;
    if ((await findUnreadable([resolve(path)], user)).length > 0) continue;
    throw new PlatformOptionError(
      'invalid',
      option,
      `${path} can be read by ${user.name}, the user that pods run as; run chmod 600 ${path}`,
    );
  }
}

function findNobody(): PodUser {
  return readUser('nobody') ?? { uid: NOBODY, gid: NOBODY, name: 'nobody' };
}

function findUser(given: string): PodUser {
  const [, uid, gid = uid] = /^(\d+)(?::(\d+))?$/.exec(given) ?? [];
  if (uid === undefined || gid === undefined) {
    const user = /^[A-Za-z_][A-Za-z0-9_.-]*\$?$/.test(given) ? readUser(given) : undefined;
    if (user) return user;
    throw refuse(`no user ${given} exists; give a name or UID[:GID]`);
  }
  if (Number(uid) > MAX_ID || Number(gid) > MAX_ID) {
    throw refuse(`${given}: a UID or GID is at most ${MAX_ID}`);
  }
  return { uid: Number(uid), gid: Number(gid), name: `UID ${uid}` };
}

/** Looks the user up in /etc/passwd, and with the system's own tools if it is stored elsewhere. */
function readUser(name: string): PodUser | undefined {
  const local = existsSync('/etc/passwd') ? readFileSync('/etc/passwd', 'utf8') : '';
  const line = local.split('\n').find((each) => each.startsWith(`${name}:`));
  const [, , localUid, localGid] = line?.split(':') ?? [];
  if (localUid && localGid) return { uid: Number(localUid), gid: Number(localGid), name };
  const { status, stdout } = spawnSync('id', ['--', name], { encoding: 'utf8' });
  const [, uid, gid] = (status === 0 && /^uid=(\d+)\S* gid=(\d+)/.exec(stdout)) || [];
  return uid === undefined || gid === undefined
    ? undefined
    : { uid: Number(uid), gid: Number(gid), name };
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', 'compute.podUser', problem);
}
