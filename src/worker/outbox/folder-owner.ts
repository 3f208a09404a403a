// Who uses a worker's folder. A file in it says which endpoint, pod and process it belongs to; a lock lets one
// process at a time use it. Why not a lock file: docs/decisions/0007-the-outbox.md.
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { readForeignFile } from './journal.ts';

const IDENTITY_FILE = 'worker.json';
/** Larger than any valid identity. */
const MAX_IDENTITY_BYTES = 65_536;

interface FolderIdentity {
  incarnation: number;
  endpointId: string;
  /** The worker's pod. Undefined without a pod. */
  podId?: string | undefined;
}

/** Reads the identity in this folder; undefined if it is not a worker's folder. */
export function readIdentity(folder: string): FolderIdentity | undefined {
  try {
    return parseIdentity(readFileSync(join(folder, IDENTITY_FILE), 'utf8'));
  } catch {
    return undefined;
  }
}

/** Like `readIdentity`, for a folder that another user owns. */
export async function readForeignIdentity(folder: string): Promise<FolderIdentity | undefined> {
  try {
    const bytes = await readForeignFile(join(folder, IDENTITY_FILE), MAX_IDENTITY_BYTES);
    return parseIdentity(bytes.toString());
  } catch {
    return undefined;
  }
}

export function writeIdentity(folder: string, identity: FolderIdentity): void {
  const path = join(folder, IDENTITY_FILE);
  writeFileSync(`${path}.new`, `${JSON.stringify(identity)}\n`, { flush: true });
  renameSync(`${path}.new`, path);
}

function parseIdentity(text: string): FolderIdentity | undefined {
  const { endpointId, incarnation, podId } = JSON.parse(text);
  if (!Number.isSafeInteger(incarnation) || typeof endpointId !== 'string') return undefined;
  return { incarnation, endpointId, ...(typeof podId === 'string' && { podId }) };
}

const SUFFIX = '.lock';
/** A stopped or busy process is alive, but may not answer in this time. */
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
 * Claim of a process to the folder.
 * - `holds`: it has the folder and keeps it.
 * - `wants`: it asks the others for the folder.
 * - `borrows`: it is a guest, which has the folder, or asks for it, until another process wants it.
 */
const CLAIMS = ['holds', 'wants', 'borrows'] as const;
type LockClaim = (typeof CLAIMS)[number];

export interface LockOptions {
  /**
   * Makes this process a guest. Called, also repeatedly, when another process wants the folder: it
   * waits until you release the lock.
   */
  onWanted?: () => void;
}

/**
 * Each process listens on a socket of its own in the folder. Then it connects to every other socket there, and each
 * process answers with its claim:
 * - A process that holds the folder keeps it. A process that does not answer in time counts as one.
 * - A guest gives way to any process that wants the folder, and takes only a folder without claims.
 * - Of two processes that want the folder, the one whose socket has the smaller name gets it.
 * - A refused connection means that the process is dead, however it died: its socket is removed.
 *
 * Every process publishes its socket before it asks, so at least one of two processes sees the other.
 * @throws FolderInUseError, and any error of the file system
 */
export async function lockFolder(
  folder: string,
  { onWanted }: LockOptions = {},
): Promise<FolderLock> {
  const name = `${process.pid}-${randomBytes(6).toString('hex')}${SUFFIX}`;
  const isGuest = onWanted !== undefined;
  let claim: LockClaim = isGuest ? 'borrows' : 'wants';
  const server = createServer((socket) => {
    socket.on('error', () => {});
    // A process that wants the folder sends bytes; a guest that asks sends nothing.
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
 * Asks all other processes for their claims. Returns whether one of them gives way: ask again soon.
 * @throws FolderInUseError if one of them comes first
 */
async function mustWait({ folder, isGuest, name }: Claimant): Promise<boolean> {
  let givesWay = false;
  for (const other of readdirSync(folder)) {
    if (other === name || !other.endsWith(SUFFIX)) continue;
    const claim = await askClaim({ folder, name: other, isGuest });
    // Names are never reused, so no other process can have this name.
    if (claim === undefined) rmSync(join(folder, other), { force: true });
    else if (claim === 'leaves') givesWay = true;
    else if (!isGuest && (claim === 'borrows' || (claim === 'wants' && name < other))) {
      givesWay = true;
    } else throw new FolderInUseError(`another process (pid ${parsePid(other)}) uses it`);
  }
  return givesWay;
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

/**
 * `leaves`: the process closed the connection without an answer, because it releases its lock or
 * gives up. Undefined if the process is dead.
 */
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
 * Calls `act` with an address of the socket: its path or, if that is too long for an address, a
 * path through a descriptor of the folder in /proc.
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
