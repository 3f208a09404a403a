// Lets one process at a time use a folder. Each candidate listens on its own socket in the folder;
// the kernel refuses connections to the socket of a dead process, however it died.
import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const SUFFIX = '.lock';
/** A stopped or busy process does not answer in time, but is alive. */
const ANSWER_LIMIT_MS = 1_000;
const RECHECK_MS = 20;
/** Longest socket address that every system accepts, bytes. */
const MAX_ADDRESS_BYTES = 100;

/** Another process uses the folder. */
export class FolderInUseError extends Error {
  override readonly name = 'FolderInUseError';
}

export interface FolderLock {
  release(): void;
}

/**
 * State of a process: it owns the folder, wants it, or borrows it as a guest until its owner wants
 * it. If several want it, one gets it.
 */
const CLAIMS = ['holds', 'wants', 'borrows'] as const;
type LockClaim = (typeof CLAIMS)[number];

export interface LockOptions {
  /**
   * Makes this process a guest, which gives way to everybody: called when the owner wants the
   * folder and waits for the release.
   */
  onWanted?: () => void;
}

/** @throws FolderInUseError, and any error of the file system */
export async function lockFolder(
  folder: string,
  { onWanted }: LockOptions = {},
): Promise<FolderLock> {
  const name = `${process.pid}-${randomBytes(6).toString('hex')}${SUFFIX}`;
  const isGuest = onWanted !== undefined;
  let claim: LockClaim = isGuest ? 'borrows' : 'wants';
  const server = createServer((socket) => {
    socket.on('error', () => {});
    // An owner sends bytes to ask for the lock; a guest sends nothing.
    socket.on('data', () => onWanted?.());
    socket.end(claim);
  });
  const release = () => {
    rmSync(join(folder, name), { force: true });
    server.close();
  };
  await listenAs(server, folder, name);
  server.unref();
  try {
    while (await mustWait({ folder, name, isGuest })) await delay(RECHECK_MS);
  } catch (error) {
    release();
    throw error;
  }
  if (!isGuest) claim = 'holds';
  return { release };
}

interface Claimant {
  folder: string;
  name: string;
  isGuest: boolean;
}

/**
 * Every process publishes its claim before it reads the claims of the others, so at least one of
 * two processes sees the other. A process that has the folder keeps it; if two want it, their names
 * decide.
 * @throws FolderInUseError
 */
async function mustWait({ folder, isGuest, name }: Claimant): Promise<boolean> {
  let isContested = false;
  for (const other of readdirSync(folder)) {
    if (other === name || !other.endsWith(SUFFIX)) continue;
    const claim = await askClaim({ folder, name: other, isGuest });
    // Names are never reused, so no other process can have this name.
    if (claim === undefined) rmSync(join(folder, other), { force: true });
    else if (claim === 'leaves') isContested = true;
    else if (!isGuest && (claim === 'borrows' || (claim === 'wants' && name < other))) {
      isContested = true;
    } else throw new FolderInUseError(`another process (pid ${parsePid(other)}) uses it`);
  }
  return isContested;
}

/**
 * The socket gets its final name only after it listens: before that, the process would appear dead.
 */
async function listenAs(server: Server, folder: string, name: string): Promise<void> {
  const temporaryName = `${name}.new`;
  await withAddress(folder, temporaryName, (path) => {
    return new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, () => {
        server.removeListener('error', reject);
        resolve();
      });
    });
  });
  renameSync(join(folder, temporaryName), join(folder, name));
}

/** `leaves`: the process hung up without an answer. Undefined if the process is dead. */
function askClaim({ folder, isGuest, name }: Claimant): Promise<LockClaim | 'leaves' | undefined> {
  return withAddress(folder, name, (path) => {
    return new Promise<LockClaim | 'leaves' | undefined>((resolve, reject) => {
      let answer = '';
      const socket = connect(path, () => {
        if (!isGuest) socket.write('mine');
      });
      socket.setTimeout(ANSWER_LIMIT_MS, () => {
        resolve('holds');
        socket.destroy();
      });
      socket.on('data', (data) => {
        answer += data.toString();
      });
      socket.on('error', (error) => {
        const code = 'code' in error ? error.code : undefined;
        if (code === 'ECONNREFUSED' || code === 'ENOENT') resolve(undefined);
        else if (code === 'ECONNRESET' || code === 'EPIPE') resolve('leaves');
        else reject(error);
      });
      socket.on('close', () => {
        resolve(CLAIMS.find((claim) => claim === answer) ?? 'leaves');
      });
    });
  });
}

/**
 * Calls with the socket's address; if the path is too long for an address, with a shorter alias of
 * it.
 */
async function withAddress<T>(
  folder: string,
  name: string,
  act: (path: string) => Promise<T>,
): Promise<T> {
  const path = join(folder, name);
  if (Buffer.byteLength(path) <= MAX_ADDRESS_BYTES) return act(path);
  const descriptor = openSync(folder, 'r');
  try {
    return await act(`/proc/self/fd/${descriptor}/${name}`);
  } finally {
    closeSync(descriptor);
  }
}

function parsePid(name: string): string {
  return name.slice(0, name.indexOf('-'));
}
