// Manages the versions of endpoints' handlers: uploads, lists, downloads, removes and deploys them. rollout.ts
// decides how a deployment goes on.
import { createHash } from 'node:crypto';
import { availableParallelism } from 'node:os';
import type { ArchiveSummary } from '../../archive/inspect-in-thread.ts';
import { ChangeNumbers } from '../../base/change-numbers.ts';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { yieldToLoop } from '../../base/slices.ts';
import { ENDING, type Store, type Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { EndpointDeployment, EndpointRecord } from '../../wire/resources/endpoint.ts';
import { type VersionRecord, versionRecord } from '../../wire/resources/version.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import { DEFAULT_QUOTAS, type Quotas } from '../limits/quotas.ts';
import { cutPage, type PageBounds } from '../user-resources.ts';
import { beginRollout } from './rollout.ts';
import { nameOf, VersionArchives } from './version-archives.ts';

const KIND = 'version';
/** Bytes that are hashed in one iteration of the event loop. */
const HASHED_BYTES = 1_048_576;
/** Uploads that are checked and written, or wait for that: of one user, and of all. */
const MAX_USER_UPLOADS = 4;
const MAX_UPLOADS = 16;
const BUSY_RETRY_MS = 2_000;
const BYTES_PER_MB = 1_048_576;

export interface VersionsOptions {
  store: Store;
  clock: Clock;
  log: Log;
  endpoints: Pick<Endpoints, 'changeDeployment' | 'get' | 'find'>;
  /** Checks an archive and looks for a file in it. @throws ProblemError `invalid` */
  inspect: (archive: Uint8Array, entry: string) => Promise<ArchiveSummary>;
  /** @throws ProblemError if the user may not run code here */
  admit: (userId: string) => void;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
}

/** Uploads of all users that are checked at the same time, each in a thread. */
export const MAX_CHECKS = Math.min(4, Math.max(2, availableParallelism() - 1));

interface VersionUpload {
  userId: string;
  keyId: string | null;
  endpointId: string;
  archive: Uint8Array;
  entry: string;
  sha256: string | undefined;
  message: string | undefined;
}

interface CheckedUpload {
  hash: string;
  files: number;
  unpackedBytes: number;
}

interface VersionListing extends PageBounds {
  endpointId: string;
  before: number | undefined;
}

export interface VersionRequest {
  userId: string;
  endpointId: string;
  version: number;
}

export class Versions {
  /** By endpoint: counts the changes of its versions. */
  readonly changes = new ChangeNumbers();
  readonly #options: VersionsOptions;
  readonly #archives: VersionArchives;
  readonly #quotas: Quotas;
  /** Users of the uploads under way. */
  readonly #uploading: string[] = [];
  /** The last check of each user with uploads under way. */
  readonly #lastChecks = new Map<string, Promise<unknown>>();
  /** Checks that run, and those that wait: one of each user at most, so that their order is fair. */
  #checks = 0;
  readonly #waitingChecks: (() => void)[] = [];
  #lastUpload: Promise<unknown> = Promise.resolve();

  constructor(options: VersionsOptions) {
    this.#options = options;
    this.#quotas = options.quotas ?? DEFAULT_QUOTAS;
    this.#archives = new VersionArchives(options);
  }

  /** Removes what interrupted uploads and deleted endpoints have left. Never rejects. */
  sweep(): Promise<void> {
    return this.#archives.sweep();
  }

  /**
   * Stores a version; it does not run before it is deployed.
   * @throws ProblemError `not_found`, `conflict`, `invalid`, `quota_exceeded`, `unavailable`
   */
  async upload(upload: VersionUpload): Promise<VersionRecord> {
    const { endpointId, userId } = upload;
    this.#options.admit(userId);
    this.#requireQueue(userId, endpointId);
    const own = this.#uploading.filter((each) => each === userId).length;
    if (own >= MAX_USER_UPLOADS || this.#uploading.length >= MAX_UPLOADS) {
      const detail = 'The platform is busy with other uploads of versions; send this one again.';
      throw new ProblemError('unavailable', detail, { retryAfterMs: BUSY_RETRY_MS });
    }
    this.#uploading.push(userId);
    try {
      const checked = await this.#checkOneByOne(upload);
      // One at a time: each writes up to 50 parts.
      const stored = this.#lastUpload.then(() => this.#store(upload, checked));
      this.#lastUpload = stored.catch(() => {});
      return await stored;
    } finally {
      this.#uploading.splice(this.#uploading.indexOf(userId), 1);
      if (!this.#uploading.includes(userId)) this.#lastChecks.delete(userId);
    }
  }

  /** Checks one upload of a user at a time, so that users do not wait for each other. */
  async #checkOneByOne(upload: VersionUpload): Promise<CheckedUpload> {
    const { userId } = upload;
    const before = this.#lastChecks.get(userId) ?? Promise.resolve();
    const checked = before.then(() => this.#checkBesideFew(upload));
    this.#lastChecks.set(
      userId,
      checked.catch(() => {}),
    );
    return checked;
  }

  async #checkBesideFew(upload: VersionUpload): Promise<CheckedUpload> {
    if (this.#checks < MAX_CHECKS) this.#checks += 1;
    else await new Promise<void>((resolve) => this.#waitingChecks.push(resolve));
    try {
      return await this.#check(upload);
    } finally {
      const next = this.#waitingChecks.shift();
      if (next) next();
      else this.#checks -= 1;
    }
  }

  /** Of all archives of the user. */
  async bytesOf(userId: string): Promise<number> {
    const listing = { kind: KIND, userId, limit: Number.MAX_SAFE_INTEGER };
    const own = await this.#options.store.read((tx) => tx.resources(listing));
    return own.reduce((sum, { body }) => sum + readVersion(body).bytes, 0);
  }

  /** Newest first. @throws ProblemError `not_found` */
  async list(userId: string, { before, endpointId, ...bounds }: VersionListing) {
    this.#options.endpoints.get(userId, endpointId);
    const listing = { kind: KIND, parent: endpointId, before, limit: bounds.limit + 1 };
    const wanted = await this.#options.store.read((tx) => tx.resources(listing));
    return cutPage({
      ...bounds,
      wanted,
      positionOf: ({ position }) => position,
      show: ({ body }) => readVersion(body),
    });
  }

  /** @throws ProblemError `not_found` */
  async get(request: VersionRequest): Promise<VersionRecord> {
    this.#options.endpoints.get(request.userId, request.endpointId);
    return this.#options.store.read((tx) => this.#require(tx, request));
  }

  /** The archive in parts. @throws ProblemError `not_found` */
  async read({ bytes, endpointId, version }: VersionRecord): Promise<Uint8Array[]> {
    const parts = await this.#archives.read({ endpointId, version }, bytes);
    if (parts) return parts;
    throw unknownVersion({ endpointId, version });
  }

  /** @throws ProblemError `not_found`, `conflict` for a version that runs or is being deployed */
  async remove(request: VersionRequest): Promise<void> {
    const { endpointId, userId, version } = request;
    this.#options.endpoints.get(userId, endpointId);
    const requireVersion = (tx: Transaction) => this.#require(tx, request);
    await this.#options.store.write((tx) => {
      requireVersion(tx);
      const endpoint = tx.endpoint(endpointId);
      if (endpoint?.deployment && listUsed(endpoint.deployment).has(version)) {
        const detail = `version ${version} of endpoint ${endpointId} runs, is being deployed, or ran before`;
        throw new ProblemError('conflict', detail);
      }
      tx.removeResource({ kind: KIND, id: nameOf(request) });
    }, ENDING);
    this.changes.note(endpointId);
    await this.#archives.remove(request);
  }

  /**
   * Begins a rollout; a later one replaces it. `timeoutMs`: time of the check worker to connect.
   * @throws ProblemError `not_found`, `conflict`
   */
  async deploy(request: VersionRequest, timeoutMs: number): Promise<EndpointRecord> {
    const { admit, clock, endpoints, log } = this.#options;
    const { endpointId, userId, version } = request;
    admit(userId);
    this.#requireQueue(userId, endpointId);
    const requireVersion = (tx: Transaction) => this.#require(tx, request);
    const begin = (deployment: EndpointDeployment) => {
      if (deployment.workersMax === 0) {
        const detail = `endpoint ${endpointId} has workersMax 0, so no worker can load the version; set it to at least 1`;
        throw new ProblemError('conflict', detail);
      }
      return beginRollout(deployment, { version, timeoutMs, now: clock.now() });
    };
    await endpoints.changeDeployment(endpointId, begin, requireVersion);
    log.info({ endpoint: endpointId, version }, 'deployment started');
    return endpoints.get(userId, endpointId);
  }

  /** Unpacks up to 250 MB. @throws ProblemError `invalid` */
  async #check({ archive, entry, sha256 }: VersionUpload): Promise<CheckedUpload> {
    const hash = await hashInSlices(archive);
    if (sha256 !== undefined && sha256 !== hash) {
      const error = `sha256: is ${sha256}, but the body has ${hash}`;
      throw new ProblemError('invalid', error, { errors: [error] });
    }
    const { files, hasEntry, unpackedBytes } = await this.#options.inspect(archive, entry);
    if (!hasEntry) {
      const error = `entry: ${JSON.stringify(entry)} is not in the archive`;
      throw new ProblemError('invalid', error, { errors: [error] });
    }
    return { hash, files, unpackedBytes };
  }

  async #store(
    { archive, endpointId, entry, keyId, message, userId }: VersionUpload,
    { files, hash, unpackedBytes }: CheckedUpload,
  ): Promise<VersionRecord> {
    const { clock, endpoints, log } = this.#options;
    await this.#requireSpace(userId, archive.length);
    // A number of its own, also if the upload fails: no number ever stands for two archives.
    const { lastVersion = 0 } = await endpoints.changeDeployment(endpointId, (before) => ({
      ...before,
      lastVersion: (before.lastVersion ?? 0) + 1,
    }));
    const key = { endpointId, version: lastVersion };
    const record: VersionRecord = {
      endpointId,
      version: lastVersion,
      entry,
      message: message ?? null,
      sha256: hash,
      bytes: archive.length,
      unpackedBytes,
      files,
      createdAt: new Date(clock.now()).toISOString(),
      createdBy: keyId,
    };
    const old = await this.#archives.write(key, archive, () => this.#add(userId, record));
    for (const version of old) await this.#archives.remove({ endpointId, version });
    log.info({ ...key, bytes: archive.length, files }, 'version uploaded');
    return record;
  }

  /** @returns the older versions that it replaces */
  async #add(userId: string, record: VersionRecord): Promise<number[]> {
    const { endpointId, version } = record;
    const kept = this.#quotas.versions;
    const old = await this.#options.store.write((tx) => {
      const endpoint = tx.endpoint(endpointId);
      if (!endpoint?.deployment || endpoint.deleted) throw unknownEndpoint(endpointId);
      const own = { kind: KIND, parent: endpointId };
      const id = nameOf({ endpointId, version });
      const body = JSON.stringify(record);
      const older = tx.resources({ ...own, limit: Number.MAX_SAFE_INTEGER });
      tx.putResource({ ...own, id, userId, position: version, body });
      const used = listUsed(endpoint.deployment);
      const unused = older.filter(({ position }) => !used.has(position));
      // The new one and those in use count too.
      const surplus = Math.max(0, older.length + 1 - kept);
      const removed = unused.slice(Math.max(0, unused.length - surplus));
      for (const { id: oldId } of removed) tx.removeResource({ kind: KIND, id: oldId });
      return removed.map(({ position }) => position);
    });
    this.changes.note(endpointId);
    return old;
  }

  #require(
    tx: Pick<Transaction, 'resource'>,
    { endpointId, version }: Omit<VersionRequest, 'userId'>,
  ): VersionRecord {
    const stored = tx.resource({ kind: KIND, id: nameOf({ endpointId, version }) });
    if (!stored) throw unknownVersion({ endpointId, version });
    return readVersion(stored.body);
  }

  /** @throws ProblemError `not_found`, `conflict` */
  #requireQueue(userId: string, endpointId: string): void {
    this.#options.endpoints.get(userId, endpointId);
    const deployment = this.#options.endpoints.find(endpointId)?.deployment;
    if (!deployment) {
      const detail = `endpoint ${endpointId} was declared by its id and has no workers of its own; create an endpoint`;
      throw new ProblemError('conflict', detail);
    }
    if (deployment.type === 'QUEUE') return;
    const detail = `endpoint ${endpointId} is load-balancing; versions are for handlers of endpoints with a queue`;
    throw new ProblemError('conflict', detail);
  }

  /** Uploads are stored one at a time, so none of them counts twice. @throws ProblemError `quota_exceeded` */
  async #requireSpace(userId: string, bytes: number): Promise<void> {
    const used = await this.bytesOf(userId);
    const { versionBytes } = this.#quotas;
    if (used + bytes <= versionBytes) return;
    const [limit, held, more] = [versionBytes, used, bytes].map(showMegabytes);
    const detail = `The quota versionMb allows ${limit} MB of versions; the user has ${held} MB and sends ${more} MB. Delete old versions, or ask the operator for a larger quota.`;
    throw new ProblemError('quota_exceeded', detail);
  }
}

function showMegabytes(bytes: number): string {
  return String(Math.round((bytes / BYTES_PER_MB) * 10) / 10);
}

/** The running version, the one before, and the one that is being deployed. */
function listUsed({ rollout, version }: EndpointDeployment): Set<number> {
  const used = [version, rollout?.from ?? undefined, rollout?.version];
  return new Set(used.filter((each) => each !== undefined));
}

async function hashInSlices(bytes: Uint8Array): Promise<string> {
  const hash = createHash('sha256');
  for (let at = 0; at < bytes.length; at += HASHED_BYTES) {
    if (at > 0) await yieldToLoop();
    hash.update(bytes.subarray(at, at + HASHED_BYTES));
  }
  return hash.digest('hex');
}

function readVersion(body: string): VersionRecord {
  return versionRecord.parse(JSON.parse(body));
}

function unknownVersion({ endpointId, version }: Omit<VersionRequest, 'userId'>): ProblemError {
  return new ProblemError('not_found', `version ${version} of endpoint ${endpointId} not found`);
}

function unknownEndpoint(id: string): ProblemError {
  return new ProblemError('not_found', `endpoint ${id} not found`);
}
