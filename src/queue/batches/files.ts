// The files of endpoints: lines of input that callers upload, and results of batches. An upload is checked line by line
// and written part by part, so memory has one part and one line of it.
import { hash } from 'node:crypto';
import { createUuidV7 } from '../../base/id.ts';
import { AT_ONCE, Loop } from '../../base/loop.ts';
import { yieldToLoop } from '../../base/slices.ts';
import {
  ENDING,
  type FileKey,
  logLevelOf,
  type Reader,
  type Transaction,
} from '../../store/store.ts';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import { ProblemError } from '../../wire/problem.ts';
import { readQueue } from '../admission.ts';
import { readEndpoint } from '../endpoint-removal.ts';
import type { QueueParts } from '../queue-parts.ts';
import { dropBatches } from './batch-ends.ts';
import { type BatchForm, findForm } from './batch-form.ts';
import {
  FILE_KINDS,
  FILE_PREFIX,
  hasFile,
  listBatches,
  listFiles,
  listRemains,
  PART_BYTES,
  putFile,
  readFile,
  removeEndedBatch,
  removeFile,
  type StoredFile,
} from './batch-record.ts';
import { type FileLine, isBlank, LineSplitter } from './file-lines.ts';

/** Parts that one commit deletes. */
const DELETED_AT_ONCE = 8;
/** Rows of which one pass looks whether they have expired. */
const SWEPT_AT_ONCE = 128;
/** Time between two searches for what has expired, ms. */
const SWEEP_MS = 3_600_000;
/** Of the hash of a name: 120 bits. */
const NAME_CHARACTERS = 20;
/** Lines that are checked before other requests run. */
const LINES_AT_ONCE = 64;

export interface NewFile {
  endpointId: string;
  name: string;
  /** Name of its form. */
  form: string;
  /** How long it is kept, ms. Called when the bytes have arrived. */
  readRetention?: (() => number | undefined) | undefined;
  /** It may be empty, and lines may be added. */
  isDraft?: boolean;
}

type FilesOptions = Pick<
  QueueParts,
  'batchForms' | 'clock' | 'closing' | 'log' | 'payloads' | 'positions' | 'store'
>;

export class Files {
  readonly #options: FilesOptions;
  /** IDs of uploads that have not ended. */
  readonly #underWay = new Set<string>();
  readonly #loop: Loop;
  #hasRemains = false;
  #sweptUntil: { at: number; before: number | undefined } = { at: 0, before: undefined };
  #running: Promise<void> | undefined;

  constructor(options: FilesOptions) {
    const { clock, closing, log } = options;
    this.#options = options;
    this.#loop = new Loop({
      clock,
      closing,
      pass: () => this.#clean(),
      onError: (error) => log[logLevelOf(error)]({ err: error }, 'removing files failed, retrying'),
    });
  }

  /** Removes what interrupted uploads have left. Without files there is no timer. */
  async start(): Promise<void> {
    const hasAny = await this.#options.store.read((tx) => {
      const uploads = listRemains(tx, 'upload', { limit: 1 });
      return [
        ...uploads,
        ...listRemains(tx, 'removed', { limit: 1 }),
        ...listFiles(tx, { limit: 1 }),
      ];
    });
    if (hasAny.length > 0) this.#wake();
  }

  /** Call this after `closing` has aborted. */
  async close(): Promise<void> {
    await this.#running;
  }

  /** Parts of files are to be removed, or files will expire. */
  #wake(): void {
    this.#hasRemains = true;
    this.#running ??= this.#loop.run();
    this.#loop.wake();
  }

  /**
   * Resolves when the file is on disk. Reads the source to its end even if a line is bad, so that the caller gets the
   * answer. @throws ProblemError that names the bad lines, `quota_exceeded`, `payload_too_large`
   */
  async upload(given: NewFile, source: AsyncIterable<Buffer>): Promise<StoredFile> {
    const { batchForms, clock, positions, store } = this.#options;
    const form = findForm(batchForms, given.form);
    const createdAt = clock.now();
    const id = `${FILE_PREFIX}${createUuidV7(createdAt)}`;
    const head = { endpointId: given.endpointId, id, position: positions.next() };
    this.#underWay.add(id);
    try {
      const userId = await store.write((tx) => {
        const { userId } = readQueue(tx, given.endpointId);
        judgeQuota(tx, userId, 0, clock.now());
        putFile(tx, 'upload', { ...head, userId });
        return userId;
      });
      const { isDraft = false } = given;
      const target = { key: head, kind: 'upload', form, owner: userId, isDraft } as const;
      const writing = new Upload(this.#options, target);
      const written = await writing.run(source);
      const { readRetention = () => undefined } = given;
      const retentionMs = readRetention() ?? BATCH_LIMITS.retentionMs.default;
      const file: StoredFile = {
        ...{ ...head, userId, name: given.name, form: given.form, purpose: 'batch' },
        ...{ ...written, createdAt, expiresAt: createdAt + retentionMs },
        ...(isDraft && { isDraft }),
      };
      await store.write((tx) => {
        readQueue(tx, given.endpointId);
        if (!hasFile(tx, 'upload', head)) raiseNoFile(head);
        judgeQuota(tx, userId, file.bytes, clock.now());
        tx.removeResource({ kind: FILE_KINDS.upload, id });
        putFile(tx, 'whole', file);
      });
      return file;
    } finally {
      this.#underWay.delete(id);
      // A row of an upload that has failed is removed with its parts.
      this.#wake();
    }
  }

  /**
   * Adds lines to a draft. `write`: gets the number of lines that it has. @throws ProblemError `conflict` if it is no draft,
   * or another request adds lines now
   */
  async append(key: FileKey, write: (lines: number) => AsyncIterable<Buffer>): Promise<StoredFile> {
    const { batchForms, clock, store } = this.#options;
    const before = await this.read(key);
    if (!before.isDraft) throw new ProblemError('conflict', `${key.id} is no draft any more`);
    if (this.#underWay.has(key.id)) {
      throw new ProblemError('conflict', `another request adds lines to ${key.id} now`);
    }
    this.#underWay.add(key.id);
    try {
      const form = findForm(batchForms, before.form);
      const writing = new Upload(this.#options, {
        ...{ key, kind: 'whole', form, owner: before.userId, isDraft: true },
      });
      await writing.resume(before);
      const after = { ...before, ...(await writing.run(write(before.lines))) };
      await store.write((tx) => {
        const now = readFile(tx, key, clock.now());
        if (!now?.isDraft) throw new ProblemError('conflict', `${key.id} is no draft any more`);
        judgeQuota(tx, before.userId, after.bytes - before.bytes, clock.now());
        putFile(tx, 'whole', after);
      });
      return after;
    } finally {
      this.#underWay.delete(key.id);
    }
  }

  async read(key: FileKey): Promise<StoredFile> {
    const { clock, store } = this.#options;
    const now = clock.now();
    return (await store.read((tx) => readFile(tx, key, now))) ?? raiseNoFile(key);
  }

  /** Newest first. */
  async list(listing: {
    endpointId: string;
    before: number | undefined;
    limit: number;
  }): Promise<{ files: StoredFile[]; next: number | undefined }> {
    const { clock, store } = this.#options;
    const now = clock.now();
    const found = await store.read((tx) => {
      readEndpoint(tx, listing.endpointId);
      return listFiles(tx, { ...listing, limit: listing.limit + 1 });
    });
    const page = found.slice(0, listing.limit);
    const next = found.length > page.length ? page.at(-1)?.position : undefined;
    return { files: page.filter(({ expiresAt }) => expiresAt > now), next };
  }

  /** @throws ProblemError `not_found`, `conflict` while a batch reads the file */
  async delete(key: FileKey): Promise<void> {
    const { clock, store } = this.#options;
    const now = clock.now();
    await store.write((tx) => {
      const file = readFile(tx, key, now) ?? raiseNoFile(key);
      const reader = findReader(tx, file);
      if (reader !== undefined) {
        const detail = `file ${key.id} is the input of batch ${reader}, which has not ended; cancel the batch first`;
        throw new ProblemError('conflict', detail);
      }
      removeFile(tx, 'whole', file);
    }, ENDING);
    this.#wake();
  }

  /** Undefined if the file has been removed meanwhile. */
  part(key: FileKey, index: number): Promise<Uint8Array | undefined> {
    return this.#options.store.read((tx) => tx.filePart(key, index));
  }

  /** Part of the removal of an endpoint: its files and batches. @returns whether nothing is left */
  async dropSome(endpointId: string): Promise<boolean> {
    return this.#options.store.write((tx) => {
      const limit = DELETED_AT_ONCE;
      if (!dropBatches(tx, endpointId)) return false;
      const [removed] = listRemains(tx, 'removed', { endpointId, limit: 1 });
      const whole = listFiles(tx, { endpointId, limit });
      const uploads = listRemains(tx, 'upload', { endpointId, limit });
      if (removed) {
        dropParts(tx, removed);
        return false;
      }
      for (const file of whole) removeFile(tx, 'whole', file);
      for (const file of uploads) removeFile(tx, 'upload', file);
      return whole.length + uploads.length === 0;
    }, ENDING);
  }

  async #clean(): Promise<number> {
    if (this.#hasRemains) {
      this.#hasRemains = false;
      if (await this.#cleanSome()) {
        this.#hasRemains = true;
        return AT_ONCE;
      }
    }
    return this.#sweepExpired();
  }

  /** @returns whether more may be left */
  async #cleanSome(): Promise<boolean> {
    const { store } = this.#options;
    const underWay = this.#underWay;
    const limit = underWay.size + 1;
    return store.write((tx) => {
      const [removed] = listRemains(tx, 'removed', { limit: 1 });
      const left = listRemains(tx, 'upload', { limit }).find(({ id }) => !underWay.has(id));
      if (left) removeFile(tx, 'upload', left);
      if (removed) dropParts(tx, removed);
      return Boolean(left ?? removed);
    }, ENDING);
  }

  /** @returns when it goes on */
  async #sweepExpired(): Promise<number> {
    const { clock, store } = this.#options;
    const now = clock.now();
    const { at, before } = this.#sweptUntil;
    if (now < at) return at;
    const { files, last } = await store.write((tx) => {
      const listing = { before, limit: SWEPT_AT_ONCE };
      const files = listFiles(tx, listing);
      const batches = listBatches(tx, listing, ['ended']);
      // The input of an open batch stays.
      const readers = tx.each(files, (file) => file.expiresAt <= now && findReader(tx, file));
      for (const [index, file] of files.entries()) {
        if (readers[index] === undefined) removeFile(tx, 'whole', file);
      }
      for (const batch of batches) {
        if ((batch.endedAt ?? now) + batch.retentionMs <= now) removeEndedBatch(tx, batch);
      }
      const ends = [files, batches].filter((each) => each.length === SWEPT_AT_ONCE);
      return { files, last: Math.max(...ends.map((each) => each.at(-1)?.position ?? 0), 0) };
    }, ENDING);
    if (files.some(({ expiresAt }) => expiresAt <= now)) this.#hasRemains = true;
    const hasMore = last > 0;
    this.#sweptUntil = hasMore
      ? { at: now, before: last }
      : { at: now + SWEEP_MS, before: undefined };
    return hasMore || this.#hasRemains ? AT_ONCE : this.#sweptUntil.at;
  }
}

/** ID of an open batch that reads the file. */
function findReader(tx: Reader, { endpointId, id, purpose }: StoredFile): string | undefined {
  if (purpose !== 'batch') return undefined;
  const limit = BATCH_LIMITS.openBatchesOfUser;
  const open = listBatches(tx, { endpointId, limit }, ['open']);
  return open.find(({ fileId }) => fileId === id)?.id;
}

function dropParts(tx: Transaction, file: FileKey): void {
  const parts = tx.fileParts(file);
  tx.removeFileParts(file, DELETED_AT_ONCE);
  if (parts <= DELETED_AT_ONCE) tx.removeResource({ kind: FILE_KINDS.removed, id: file.id });
}

/** @throws ProblemError `quota_exceeded` */
function judgeQuota(tx: Reader, userId: string, bytes: number, now: number): void {
  const { fileBytesOfUser, filesOfUser } = BATCH_LIMITS;
  const files = listFiles(tx, { userId, limit: filesOfUser }).filter(
    ({ expiresAt }) => expiresAt > now,
  );
  if (files.length >= filesOfUser) {
    const detail = `the user has ${files.length} files and may have ${filesOfUser}; delete some`;
    throw new ProblemError('quota_exceeded', detail);
  }
  const stored = files.reduce((sum, file) => sum + file.bytes, 0);
  if (stored + bytes <= fileBytesOfUser) return;
  const detail = `the files of the user have ${stored} bytes, and may have ${fileBytesOfUser}; delete some`;
  throw new ProblemError('quota_exceeded', detail);
}

export function raiseNoFile({ id }: FileKey): never {
  throw new ProblemError('not_found', `file ${id} not found or expired`);
}

interface UploadTarget {
  key: FileKey;
  /** Of its record. */
  kind: 'upload' | 'whole';
  form: BatchForm;
  owner: string;
  isDraft: boolean;
}

type Written = Pick<StoredFile, 'bytes' | 'lines' | 'parts' | 'target'>;

/** One upload: cuts it into parts, and checks its lines. */
class Upload {
  readonly #options: Pick<FilesOptions, 'payloads' | 'store'>;
  readonly #target: UploadTarget;
  readonly #lines = new LineSplitter();
  /** Hashes of the names, so that long ones take no more memory. */
  readonly #names = new Set<string>();
  readonly #errors: string[] = [];
  #part = Buffer.allocUnsafeSlow(PART_BYTES);
  #partBytes = 0;
  #parts = 0;
  #bytes = 0;
  #jobs = 0;
  #common: string | undefined;

  constructor(options: Pick<FilesOptions, 'payloads' | 'store'>, target: UploadTarget) {
    this.#options = options;
    this.#target = target;
  }

  /** Goes on behind the lines of the file. What an interrupted attempt has left behind them is replaced. */
  async resume({ bytes, endpointId, id, lines }: StoredFile): Promise<void> {
    const index = Math.floor(bytes / PART_BYTES);
    const rest = bytes % PART_BYTES;
    const last = await this.#options.store.read((tx) => tx.filePart({ endpointId, id }, index));
    this.#part.set((last ?? new Uint8Array()).subarray(0, rest));
    this.#partBytes = rest;
    this.#parts = index;
    this.#bytes = bytes;
    this.#jobs = lines;
  }

  async run(source: AsyncIterable<Buffer>): Promise<Written> {
    for await (const bytes of source) await this.#take(bytes);
    const last = this.#lines.end();
    if (last) await this.#check(last);
    if (this.#jobs === 0 && !this.#target.isDraft) this.#refuse('the file has no lines');
    if (this.#errors.length > 0) throw this.#describe();
    if (this.#partBytes > 0) await this.#flush();
    const target = this.#common ?? '';
    return { bytes: this.#bytes, lines: this.#jobs, parts: this.#parts, target };
  }

  async #take(bytes: Buffer): Promise<void> {
    this.#bytes += bytes.length;
    if (this.#bytes > BATCH_LIMITS.fileBytes) {
      const detail = `The file has more than ${BATCH_LIMITS.fileBytes} bytes, the limit.`;
      throw new ProblemError('payload_too_large', detail);
    }
    if (this.#errors.length >= BATCH_LIMITS.describedLines) return;
    for (const line of this.#lines.split(bytes)) await this.#check(line);
    // Nothing of a file with a bad line is kept.
    if (this.#errors.length === 0) await this.#write(bytes);
  }

  async #write(bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      const piece = bytes.subarray(at, at + PART_BYTES - this.#partBytes);
      this.#part.set(piece, this.#partBytes);
      this.#partBytes += piece.length;
      at += piece.length;
      if (this.#partBytes === PART_BYTES) await this.#flush();
    }
  }

  async #flush(): Promise<void> {
    const { payloads, store } = this.#options;
    const { key, kind } = this.#target;
    const part = this.#part.subarray(0, this.#partBytes);
    const index = this.#parts;
    const owner = { endpointId: key.endpointId, kind: 'input' } as const;
    const write = (tx: Transaction) => {
      // Nobody would remove the parts of a file whose record went with its endpoint.
      if (!hasFile(tx, kind, key)) raiseNoFile(key);
      tx.putFilePart(key, index, part);
    };
    await payloads.runAlone(owner, () => store.write(write));
    this.#parts += 1;
    this.#partBytes = 0;
  }

  async #check(line: FileLine): Promise<void> {
    if (this.#errors.length >= BATCH_LIMITS.describedLines) return;
    const { number } = line;
    const { lineBytes, lines } = BATCH_LIMITS;
    if (isBlank(line)) {
      if (number <= 2 * lines) return;
      this.#refuse(`line ${number}: the file has more than ${2 * lines} lines with the blank ones`);
      return;
    }
    this.#jobs += 1;
    if (this.#jobs > lines) {
      this.#refuse(`line ${number}: the file has more than ${lines} lines, the limit`);
      return;
    }
    if (line.isTooLong) {
      this.#refuse(`line ${number}: has more than ${lineBytes} bytes, the limit`);
      return;
    }
    if (this.#jobs % LINES_AT_ONCE === 0) await yieldToLoop();
    try {
      const { form, owner } = this.#target;
      const { customId, target } = await form.readLine(line.bytes, owner);
      this.#judge(number, customId, target);
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      for (const text of error.errors ?? [error.message]) this.#refuse(`line ${number}: ${text}`);
    }
  }

  #judge(number: number, customId: string, target: string): void {
    const { names } = this.#target.form;
    this.#common ??= target;
    if (target !== this.#common) {
      this.#refuse(
        `line ${number}: ${names.target}: is ${target}, and that of the first line is ${this.#common}; all lines must have the same`,
      );
    }
    const name = hash('sha256', customId, 'base64url').slice(0, NAME_CHARACTERS);
    if (this.#names.has(name)) {
      const text = JSON.stringify(customId);
      this.#refuse(`line ${number}: ${names.customId}: ${text} names another line`);
    }
    this.#names.add(name);
  }

  #refuse(text: string): void {
    if (this.#errors.length < BATCH_LIMITS.describedLines) this.#errors.push(text);
  }

  #describe(): ProblemError {
    const errors = this.#errors;
    return new ProblemError('invalid', `The file is invalid: ${errors[0]}`, { errors });
  }
}
