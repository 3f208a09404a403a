// The history of jobs: each end of a job adds a line, in the same commit. The lines of an endpoint become files, which leave the
// platform for a folder or a bucket. A line is in exactly one file: its commit names the file before it is written, and a
// platform that goes on after a kill, here or on another node, writes the same lines to the same name.
import { createGzip } from 'node:zlib';
import { backoffMs } from '../../base/backoff.ts';
import { createUuidV7 } from '../../base/id.ts';
import { AT_ONCE, Loop, NEVER } from '../../base/loop.ts';
import {
  ENDING,
  logLevelOf,
  type Reader,
  type StoredJob,
  type StoredResource,
  type Transaction,
} from '../../store/store.ts';
import type { QueueParts } from '../queue-parts.ts';
import { findFileDueAt, nameFile, type WaitingLines } from './history-files.ts';
import { composeLine } from './history-line.ts';

const LINES = 'history';
const FILE = 'history_file';
/** Lines of one read, and of one commit that removes them. */
const LINES_AT_ONCE = 64;
/** A file has no more lines, so that its removal ends. */
const MAX_FILE_LINES = 100_000;
/** A failing target gets this long for one file, ms. */
const PUT_MS = 120_000;
const LOG_EVERY_MS = 60_000;

/** A file that is written or whose lines are being removed; its lines have positions down to `last`. */
interface PlannedFile {
  name: string;
  last: number;
  isWritten: boolean;
}

/** Counts since the start of this process, and the lines that wait. */
export interface HistoryCounts {
  waiting: number;
  written: number;
  dropped: number;
}

interface EndpointLines extends WaitingLines {
  userId: string;
  /** Its next file is begun. */
  isPlanned: boolean;
  /** Failures in a row: those with fewer take their turn first. */
  failures: number;
}

/** Lines of an earlier run that are yet to be counted: those with positions between. */
interface Uncounted {
  before: number | undefined;
  downTo: number;
}

export interface NewLine {
  endpointId: string;
  userId: string;
  at: number;
  bytes: number;
  isDropped: boolean;
}

type HistoryOptions = Pick<
  QueueParts,
  'clock' | 'closing' | 'history' | 'log' | 'positions' | 'random' | 'settings' | 'store'
>;

export class History {
  readonly #options: HistoryOptions;
  readonly #loop: Loop;
  readonly #lines = new Map<string, EndpointLines>();
  readonly #bytesOfUsers = new Map<string, number>();
  readonly #counts = new Map<string, HistoryCounts>();
  readonly #aborting = new AbortController();
  #running: Promise<void> = Promise.resolve();
  /** Undefined: all lines of an earlier run are counted. */
  #uncounted: Uncounted | undefined;
  #failures = 0;
  #retryAt = 0;
  #loggedDropAt = Number.NEGATIVE_INFINITY;

  constructor(options: HistoryOptions) {
    this.#options = options;
    const { clock, closing, log } = options;
    this.#loop = new Loop({
      clock,
      closing,
      pass: () => this.#pass(),
      onError: (error) => log[logLevelOf(error)]({ err: error }, 'history failed, retrying'),
    });
  }

  /** Whether ended jobs may have a line at all. */
  get isOn(): boolean {
    return this.#options.history !== undefined;
  }

  /** By endpoint. */
  get counts(): ReadonlyMap<string, HistoryCounts> {
    return this.#counts;
  }

  /** Continues the files of an earlier run. */
  async start(): Promise<void> {
    const { history, positions, store } = this.#options;
    if (!history) return;
    this.#uncounted = { before: undefined, downTo: -positions.next() };
    const planned = await store.read((tx) =>
      tx.resources({ kind: FILE, limit: Number.MAX_SAFE_INTEGER }),
    );
    for (const { id, userId } of planned) this.#linesOf({ id, userId }).isPlanned = true;
    this.#running = this.#loop.run();
  }

  /** Part of the operation that ends the jobs, or removes them: adds their lines. */
  keep(tx: Transaction, jobs: readonly StoredJob[], now: number): NewLine[] {
    const { positions, settings } = this.#options;
    const { backlogBytes, payloadBytes, policy: ofPlatform } = settings.history;
    const wanted = jobs.flatMap((job) => {
      const endpoint = tx.endpoint(job.endpointId);
      const policy = endpoint?.settings.history ?? ofPlatform;
      return endpoint && policy !== 'OFF' ? [{ job, endpoint, policy }] : [];
    });
    const lines = tx.each(wanted, ({ endpoint, job, policy }) => {
      const recordId = createUuidV7(now);
      const line = composeLine(tx, job, { recordId, endpoint, now, policy, payloadBytes });
      return { recordId, endpoint, line };
    });
    return lines.map(({ endpoint: { id: endpointId, userId }, line, recordId }) => {
      const bytes = Buffer.byteLength(line) + 1;
      const waiting = this.#bytesOfUsers.get(userId) ?? 0;
      const isDropped = waiting + bytes > backlogBytes;
      if (!isDropped) {
        const position = -positions.next();
        tx.putResource({
          ...{ kind: LINES, id: recordId, userId, parent: endpointId },
          ...{ position, body: line },
        });
      }
      return { endpointId, userId, at: now, bytes, isDropped };
    });
  }

  /** The lines are on disk now. */
  arrived(lines: readonly NewLine[]): void {
    const { settings } = this.#options;
    for (const { at, bytes, endpointId, isDropped, userId } of lines) {
      if (isDropped) this.#noteDrop(endpointId, userId, at);
      else {
        const own = this.#add({ id: endpointId, userId }, at, bytes);
        this.#loop.wake(Math.max(findFileDueAt(own, settings.history), this.#retryAt));
      }
    }
  }

  /** The endpoint was deleted; its lines still become files. */
  forgetEndpoint(endpointId: string): void {
    if (!this.#lines.has(endpointId)) this.#counts.delete(endpointId);
  }

  /** Call this after `closing` has aborted. What is written then is written again by the next run. */
  async close(): Promise<void> {
    this.#aborting.abort();
    await this.#running;
    await this.#options.history?.close();
  }

  async #pass(): Promise<number> {
    const { clock, history, log, random, settings } = this.#options;
    if (!history) return NEVER;
    if (this.#uncounted) {
      await this.#countSome(this.#uncounted);
      return AT_ONCE;
    }
    const now = clock.now();
    const [due] = this.#retryAt > now ? [] : this.#listDue(now);
    if (!due) return this.#nextAt();
    const [endpointId, lines] = due;
    try {
      await this.#writeFile(endpointId);
      this.#failures = 0;
    } catch (error) {
      if (this.#aborting.signal.aborted) return NEVER;
      lines.failures++;
      this.#failures++;
      this.#retryAt = now + backoffMs(this.#failures, { ...settings.history.retry, random });
      const about = { endpoint: endpointId, retryAt: this.#retryAt };
      log.warn({ err: error, ...about }, 'writing a file of history failed, retrying');
    }
    return AT_ONCE;
  }

  /** A file that was begun is due at once. */
  #dueAt(lines: EndpointLines): number {
    return lines.isPlanned ? AT_ONCE : findFileDueAt(lines, this.#options.settings.history);
  }

  /** Those that have failed come last, so that one cannot hold up the others. */
  #listDue(now: number): [string, EndpointLines][] {
    const due = [...this.#lines].filter(([, lines]) => this.#dueAt(lines) <= now);
    return due.sort(([, a], [, b]) => a.failures - b.failures || a.since - b.since);
  }

  #nextAt(): number {
    let first = NEVER;
    for (const lines of this.#lines.values()) first = Math.min(first, this.#dueAt(lines));
    return Math.max(first, this.#retryAt);
  }

  /** Plans, writes and removes, each in a commit of its own; goes on where an earlier run has stopped. */
  async #writeFile(endpointId: string): Promise<void> {
    const { history, log, store } = this.#options;
    const found = await store.read((tx) => readPlan(tx, endpointId));
    if (!found?.isWritten) {
      const file = await this.#compress(endpointId, found);
      if (!file) return this.#forgetLines(endpointId);
      const { content, plan } = file;
      if (!found) await this.#putPlan(endpointId, plan);
      this.#linesOf({ id: endpointId, userId: '' }).isPlanned = true;
      const timeout = AbortSignal.timeout(PUT_MS);
      await history?.put(plan.name, content, AbortSignal.any([this.#aborting.signal, timeout]));
      await this.#putPlan(endpointId, { ...plan, isWritten: true });
      log.info({ endpoint: endpointId, file: plan.name, bytes: content.length }, 'history written');
    }
    await this.#removeLines(endpointId);
    const left = this.#lines.get(endpointId);
    if (!left || left.records <= 0) return this.#forgetLines(endpointId);
    left.isPlanned = false;
    left.failures = 0;
  }

  async #forgetLines(endpointId: string): Promise<void> {
    const isGone = await this.#options.store.read((tx) => tx.endpoint(endpointId) === undefined);
    const lines = this.#lines.get(endpointId);
    if (lines && lines.records > 0) return;
    this.#lines.delete(endpointId);
    if (isGone) this.#counts.delete(endpointId);
  }

  /** The next lines as a file: all those of the plan, or as many as a file may have. Undefined: none wait. */
  async #compress(
    endpointId: string,
    planned: PlannedFile | undefined,
  ): Promise<{ content: Buffer; plan: PlannedFile } | undefined> {
    const { settings, store } = this.#options;
    const { fileBytes } = settings.history;
    const gzip = createGzip();
    const parts: Buffer[] = [];
    gzip.on('data', (part: Buffer) => parts.push(part));
    const ended = new Promise<void>((resolve, reject) =>
      gzip.on('end', resolve).on('error', reject),
    );
    let plan = planned;
    let bytes = 0;
    let records = 0;
    for (let before: number | undefined; ; ) {
      const page = await store.read((tx) => readLines(tx, endpointId, before));
      for (const { body, id, position } of page) {
        if (planned && position < planned.last) break;
        if (!planned && (bytes >= fileBytes || records >= MAX_FILE_LINES)) break;
        before = position;
        plan ??= { name: nameFile(endpointId, timeOf(position), id), last: 0, isWritten: false };
        if (!planned) plan.last = position;
        const line = Buffer.from(`${body}\n`);
        bytes += line.length;
        records++;
        if (!gzip.write(line)) await new Promise((resolve) => gzip.once('drain', resolve));
      }
      if (page.length < LINES_AT_ONCE || before !== page.at(-1)?.position) break;
    }
    gzip.end();
    await ended;
    return plan && records > 0 ? { content: Buffer.concat(parts), plan } : undefined;
  }

  async #putPlan(endpointId: string, plan: PlannedFile): Promise<void> {
    const userId = this.#lines.get(endpointId)?.userId ?? '';
    const row = { kind: FILE, id: endpointId, userId, parent: '', position: 0 };
    await this.#options.store.write(
      (tx) => tx.putResource({ ...row, body: JSON.stringify(plan) }),
      ENDING,
    );
  }

  /** The plan goes with the last of its lines. */
  async #removeLines(endpointId: string): Promise<void> {
    for (let isLast = false; !isLast; ) {
      const removed = await this.#options.store.write((tx) => {
        const plan = readPlan(tx, endpointId);
        const lines = plan ? readLines(tx, endpointId) : [];
        const written = lines.filter(({ position }) => plan && position >= plan.last);
        for (const { id } of written) tx.removeResource({ kind: LINES, id });
        if (written.length < LINES_AT_ONCE) tx.removeResource({ kind: FILE, id: endpointId });
        return written;
      }, ENDING);
      isLast = removed.length < LINES_AT_ONCE;
      for (const { body, userId } of removed) {
        this.#add({ id: endpointId, userId }, NEVER, -(Buffer.byteLength(body) + 1));
      }
      // None of those that are left is older.
      const last = removed.at(-1);
      if (last) this.#linesOf({ id: endpointId, userId: '' }).since = timeOf(last.position);
    }
  }

  async #countSome({ before, downTo }: Uncounted): Promise<void> {
    const { store } = this.#options;
    const page = await store.read((tx) =>
      tx.resources({ kind: LINES, before, limit: LINES_AT_ONCE }),
    );
    const earlier = page.filter(({ position }) => position > downTo);
    for (const { body, parent, position, userId } of earlier) {
      this.#add({ id: parent, userId }, timeOf(position), Buffer.byteLength(body) + 1);
    }
    const isLast = earlier.length < LINES_AT_ONCE;
    this.#uncounted = isLast ? undefined : { before: earlier.at(-1)?.position, downTo };
  }

  #linesOf({ id, userId }: { id: string; userId: string }): EndpointLines {
    const known = this.#lines.get(id);
    if (known) return known;
    const lines = { userId, records: 0, bytes: 0, since: NEVER, isPlanned: false, failures: 0 };
    this.#lines.set(id, lines);
    return lines;
  }

  /** Adds a line, or removes one of which `bytes` is negative. */
  #add(endpoint: { id: string; userId: string }, at: number, bytes: number): EndpointLines {
    const records = Math.sign(bytes);
    const lines = this.#linesOf(endpoint);
    lines.records += records;
    lines.bytes += bytes;
    lines.since = Math.min(lines.since, at);
    const counts = this.#countsOf(endpoint.id);
    counts.waiting = lines.records;
    if (bytes < 0) counts.written++;
    const ofUser = (this.#bytesOfUsers.get(endpoint.userId) ?? 0) + bytes;
    if (ofUser > 0) this.#bytesOfUsers.set(endpoint.userId, ofUser);
    else this.#bytesOfUsers.delete(endpoint.userId);
    return lines;
  }

  #countsOf(endpointId: string): HistoryCounts {
    const known = this.#counts.get(endpointId);
    if (known) return known;
    const counts = { waiting: 0, written: 0, dropped: 0 };
    this.#counts.set(endpointId, counts);
    return counts;
  }

  #noteDrop(endpointId: string, userId: string, now: number): void {
    const counts = this.#countsOf(endpointId);
    counts.dropped++;
    if (now < this.#loggedDropAt + LOG_EVERY_MS) return;
    this.#loggedDropAt = now;
    const about = { endpoint: endpointId, user: userId, dropped: counts.dropped };
    this.#options.log.error(about, 'history dropped: too many lines wait for their file');
  }
}

function readPlan(tx: Reader, endpointId: string): PlannedFile | undefined {
  const row = tx.resource({ kind: FILE, id: endpointId });
  return row && JSON.parse(row.body);
}

/** The oldest first: their positions are negative. */
function readLines(tx: Reader, endpointId: string, before?: number): StoredResource[] {
  return tx.resources({ kind: LINES, parent: endpointId, before, limit: LINES_AT_ONCE });
}

/** Positions are Unix µs, negated. */
function timeOf(position: number): number {
  return Math.floor(-position / 1_000);
}
