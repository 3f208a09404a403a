// Does what follows from the ends of linked jobs, in commits of its own. It puts the outputs of parents into the inputs of their
// children, once the last parent has ended, so their bytes never pass a client; and the ends of children into the memo of the
// job whose handler awaits them. One commit replaces the input, or the last of the memo, and lets the job start. It cancels
// children that nobody awaits any more. A record names each job to which something is to be done, so that a restart goes on.
import { AT_ONCE, Loop, NEVER } from '../../base/loop.ts';
import {
  ENDING,
  type JobKey,
  type JobParent,
  logLevelOf,
  type StoredJob,
  type Transaction,
  type UploadedPayload,
} from '../../store/store.ts';
import { LIMITS } from '../../wire/job/job.ts';
import type { ChildFailure } from '../../wire/job/memo.ts';
import { CLOSE_BRACE, OPEN_BRACE } from '../../wire/json-bytes.ts';
import { cut } from '../handover/messages.ts';
import type { OutputPart } from '../handover/peers.ts';
import { boundHistoryMessage } from '../lifecycle/attempt-end.ts';
import type { AbandonedChild } from '../lifecycle/handler-wait.ts';
import { END_TEXTS, isFilling, nameParent } from '../lifecycle/links.ts';
import { measureInput, measureOutput, readLarge, readWholeOutput } from '../payloads/outputs.ts';
import type { QueueParts } from '../queue-parts.ts';
import { addEntry, composeEntry, NO_MEMO, putEntry } from '../steps/memo.ts';
import { toKey } from './flow-record.ts';

const KIND = 'fill';
/** Inputs that are filled at a time. */
const FILLED_AT_ONCE = 16;

/** Part of the operation after which the input of the job is to be filled. */
export function requestFill(tx: Transaction, { endpointId, id, position }: StoredJob): void {
  const body = JSON.stringify({ endpointId, id });
  const name = `${endpointId}/${id}`;
  // Lists begin with the highest position: the oldest job is the next.
  tx.putResource({
    kind: KIND,
    id: name,
    userId: '',
    parent: endpointId,
    position: -position,
    body,
  });
}

/** Part of the operation that ends a job whose handler awaits children: they are to be cancelled. */
export function requestCancel(
  tx: Transaction,
  { endpointId, id, position }: StoredJob,
  children: readonly AbandonedChild[],
): void {
  const body = JSON.stringify({ endpointId, id, cancel: children });
  const name = `cancel ${endpointId}/${id}`;
  tx.putResource({
    ...{ kind: KIND, id: name, userId: '', parent: endpointId, position: -position, body },
  });
}

/** The body of a record. */
interface Request extends JobKey {
  /** Children to be cancelled. Absent: the input or the memo of the job is to be filled. */
  cancel?: readonly AbandonedChild[];
}

type FillsOptions = Pick<
  QueueParts,
  'changes' | 'clock' | 'closing' | 'log' | 'payloads' | 'peers' | 'settings' | 'signals' | 'store'
>;

interface Fill {
  job: StoredJob;
  /** Of the outputs and the input, about. */
  bytes: number;
}

interface Asked {
  /** ID of the record. */
  name: string;
  key: JobKey;
  cancel?: readonly AbandonedChild[];
  fill: Fill | undefined;
}

function putEntries(
  tx: Transaction,
  key: JobKey,
  entries: readonly { number: number; body: string }[],
): void {
  for (const { body, number } of entries) putEntry(tx, key, number, body);
}

/** The input cannot be had, or the output of a parent. */
class NoOutputError extends Error {
  override readonly name = 'NoOutputError';
}

/** The shard that has the output of a parent does not answer. */
class PeerError extends Error {
  override readonly name = 'PeerError';
}

/** Pause before such a shard is asked again, ms. */
const POSTPONED_MS = 5_000;
/** Fills that wait for such shards while others go on. */
const MAX_POSTPONED = 1_000;

export class Fills {
  readonly #options: FillsOptions;
  readonly #loop: Loop;
  /** There may be inputs to fill. */
  #isAsked = false;
  /** When fills are tried again that need an output of a shard that does not answer, by name. */
  readonly #postponed = new Map<string, number>();
  /** Undefined: no input was ever to be filled. */
  #running: Promise<void> | undefined;

  constructor(options: FillsOptions) {
    this.#options = options;
    const { clock, closing, log, signals } = options;
    this.#loop = new Loop({
      clock,
      closing,
      pass: () => this.#fillSome(),
      onError: (error) => {
        this.#isAsked = true;
        log[logLevelOf(error)]({ err: error }, 'filling inputs failed, retrying');
      },
    });
    signals.onFilling = () => this.#ask();
  }

  /** Continues what an earlier run has left. */
  async start(): Promise<void> {
    const left = await this.#options.store.read((tx) => tx.resources({ kind: KIND, limit: 1 }));
    if (left.length > 0) this.#ask();
  }

  /** Call this after `closing` has aborted. */
  async close(): Promise<void> {
    await this.#running;
  }

  #ask(): void {
    this.#isAsked = true;
    this.#loop.wake();
    this.#running ??= this.#loop.run();
  }

  async #fillSome(): Promise<number> {
    const { clock, payloads, store } = this.#options;
    const now = clock.now();
    for (const [name, until] of this.#postponed) if (until <= now) this.#resume(name);
    if (!this.#isAsked) return this.#nextRetry();
    this.#isAsked = false;
    const page = await store.read((tx) => {
      const listed = tx.resources({ kind: KIND, limit: FILLED_AT_ONCE + this.#postponed.size });
      const found = listed.filter(({ id }) => !this.#postponed.has(id)).slice(0, FILLED_AT_ONCE);
      return tx.each(found, ({ body, id }): Asked => {
        const { cancel, ...key }: Request = JSON.parse(body);
        if (cancel) return { name: id, key, cancel, fill: undefined };
        const job = tx.job(key);
        return { name: id, key, fill: job && isFilling(job) ? this.#measure(tx, job) : undefined };
      });
    });
    const isSmall = ({ fill }: (typeof page)[number]) => !fill || fill.bytes <= payloads.partBytes;
    await Promise.all(page.filter(isSmall).map((each) => this.#act(each)));
    // One after the other: each is in memory twice.
    for (const each of page) if (!isSmall(each)) await this.#act(each);
    return page.length > 0 ? this.#again() : this.#nextRetry();
  }

  #resume(name: string): void {
    this.#postponed.delete(name);
    this.#isAsked = true;
  }

  #nextRetry(): number {
    return Math.min(NEVER, ...this.#postponed.values());
  }

  #again(): number {
    this.#isAsked = true;
    return AT_ONCE;
  }

  #measure(tx: Parameters<typeof measureOutput>[0], job: StoredJob): Fill {
    const { maxOutputBytes } = this.#options.settings;
    const parents = job.links?.parents.filter(({ as, step }) => as ?? step) ?? [];
    const sizes = tx.each(parents, (key) => {
      // That of another shard may be large, but a job remembers little of it.
      if (key.shard !== undefined) return key.step ? LIMITS.stepBytes : maxOutputBytes;
      const parent = tx.job(key);
      return parent ? measureOutput(tx, parent, maxOutputBytes) : 0;
    });
    return { job, bytes: sizes.reduce((sum, bytes) => sum + bytes, measureInput(tx, job)) };
  }

  async #act({ cancel, fill, key, name }: Asked): Promise<void> {
    const { store } = this.#options;
    if (cancel) return this.#cancel({ name, key, children: cancel });
    if (!fill) {
      await store.write((tx) => tx.removeResource({ kind: KIND, id: name }), ENDING);
      return;
    }
    try {
      await (fill.job.links?.wait ? this.#remember(name, fill.job) : this.#fill(name, fill));
    } catch (error) {
      if (!(error instanceof PeerError) || this.#postponed.size >= MAX_POSTPONED) throw error;
      this.#postponed.set(name, this.#options.clock.now() + POSTPONED_MS);
    }
  }

  async #cancel({
    children,
    key: parent,
    name,
  }: {
    name: string;
    key: JobKey;
    children: readonly AbandonedChild[];
  }): Promise<void> {
    const { changes } = this.#options;
    const { own = [], elsewhere = [] } = Object.groupBy(children, ({ shard }) =>
      shard === undefined ? 'own' : 'elsewhere',
    );
    await changes.inSlice(() =>
      changes.commit((tx, step) => {
        tx.removeResource({ kind: KIND, id: name });
        for (const job of tx.each(own, (key) => tx.job(key))) {
          // One that has ended refuses it.
          if (job) step(job, { type: 'cancel' });
        }
        for (const [shard, all] of Map.groupBy(elsewhere, (child) => child.shard)) {
          const jobs = all.map(({ endpointId, id }) => ({ endpointId, id }));
          for (const part of cut(jobs))
            step.send(shard, { type: 'child_cancel', parent, jobs: part });
        }
      }),
    );
  }

  /** The ends of the children are stored before they count, in several commits if they are large. */
  async #remember(name: string, awaiting: StoredJob): Promise<void> {
    const { changes, store } = this.#options;
    const { endpointId, id, links } = awaiting;
    const key = { endpointId, id };
    const children = links?.parents.filter(({ step }) => step) ?? [];
    let memo = links?.memo ?? NO_MEMO;
    let entries: { number: number; body: string }[] = [];
    let bytes = 0;
    for (const child of children) {
      const freeBytes = LIMITS.memoBytes - memo.bytes;
      const { body, isFailed } = await this.#describeChild({ awaiting, child, freeBytes });
      entries.push({ number: memo.entries, body });
      bytes += body.length;
      memo = addEntry(memo, body, isFailed);
      if (bytes < LIMITS.stepBytes) continue;
      const some = entries;
      await store.write((tx) => putEntries(tx, key, some), ENDING);
      entries = [];
      bytes = 0;
    }
    await changes.commit((tx, step) => {
      const job = tx.job(key);
      tx.removeResource({ kind: KIND, id: name });
      // It may have been cancelled meanwhile.
      if (!job || !isFilling(job)) return;
      putEntries(tx, key, entries);
      step(job, { type: 'filled', memo });
    });
  }

  /** The entry of a child that has ended. */
  async #describeChild({
    awaiting,
    child,
    freeBytes,
  }: {
    awaiting: StoredJob;
    child: JobParent;
    freeBytes: number;
  }): Promise<{ body: string; isFailed: boolean }> {
    const { payloads, settings, store } = this.#options;
    const { endpointId, id } = child;
    const { digest = '', name = '' } = child.step ?? {};
    const head = { kind: 'child', name, endpoint: endpointId, id, digest } as const;
    const bounds = { maxBytes: settings.maxOutputBytes, maxAtOnce: payloads.partBytes };
    const { bytes, job } = await store.read((tx) => {
      const job = tx.job(child);
      return { job, bytes: job ? measureOutput(tx, job, bounds.maxBytes) : 0 };
    });
    const fail = (failure: ChildFailure) => ({
      body: composeEntry({ ...head, ...failure }),
      isFailed: true,
    });
    if (child.ended !== 'COMPLETED') {
      const { shard } = child;
      const elsewhere =
        shard === undefined ? undefined : await this.#askPart(shard, { key: toKey(child), at: 0 });
      const error = elsewhere && elsewhere.kind !== 'part' ? elsewhere.error : job?.error;
      const { code, message = END_TEXTS[child.ended ?? 'REMOVED'] } = error ?? {};
      const status = child.ended === 'SKIPPED' ? 'CANCELLED' : (child.ended ?? 'REMOVED');
      return fail({ status, ...(code && { code }), message: boundHistoryMessage(message) });
    }
    const limit = Math.min(LIMITS.stepBytes, freeBytes);
    const isTooLarge = (size: number) =>
      fail({
        status: 'COMPLETED',
        code: 'output_too_large',
        message: `the output of the child has ${size} bytes; a job remembers ${LIMITS.stepBytes} of each and ${LIMITS.memoBytes} of all. Let the child store it elsewhere and return where`,
      });
    // The chunks of a stream are larger than the array of their outputs.
    if (bytes > limit && job?.outputKind === 'value') return isTooLarge(bytes);
    try {
      const isGone = !job && child.shard === undefined;
      const value = isGone ? undefined : await this.#readOutput(awaiting, child);
      if (!value) return fail({ status: 'REMOVED', message: 'its record is gone' });
      if (value.length > limit) return isTooLarge(value.length);
      return { body: composeEntry(head, value), isFailed: false };
    } catch (error) {
      if (!(error instanceof NoOutputError)) throw error;
      return fail({ status: 'REMOVED', message: error.message });
    }
  }

  async #fill(name: string, fill: Fill): Promise<void> {
    const { changes, payloads } = this.#options;
    const { endpointId, id } = fill.job;
    const key = { endpointId, id };
    let staged: UploadedPayload | undefined;
    try {
      const bytes = await this.#compose(fill.job);
      const upload = { kind: 'input', key, bytes, options: ENDING } as const;
      if (payloads.isLarge(bytes)) staged = await payloads.upload(upload);
      await changes.commit((tx, step) => {
        const job = tx.job(key);
        tx.removeResource({ kind: KIND, id: name });
        // It may have been cancelled meanwhile.
        if (!job || !isFilling(job)) return;
        tx.replaceInput(key, staged ?? bytes);
        step(job, { type: 'filled' });
      });
    } catch (error) {
      if (!(error instanceof NoOutputError)) throw error;
      await changes.commit((tx, step) => {
        const job = tx.job(key);
        tx.removeResource({ kind: KIND, id: name });
        if (job) step(job, { type: 'not_filled', reason: error.message });
      });
    } finally {
      if (staged) payloads.release(staged);
    }
  }

  /** The input with the outputs as its last members: of members with one name, the last one counts. */
  async #compose(job: StoredJob): Promise<Uint8Array> {
    const input = await this.#readInput(job);
    const pieces: Uint8Array[] = [];
    let bytes = input.length;
    for (const parent of job.links?.parents ?? []) {
      if (parent.as === undefined) continue;
      const output = parent.ended === 'COMPLETED' ? await this.#readOutput(job, parent) : NULL;
      const member = Buffer.from(`${JSON.stringify(parent.as)}:`);
      bytes += member.length + output.length + 1;
      if (bytes > LIMITS.filledInputBytes) {
        const most = LIMITS.filledInputBytes;
        throw new NoOutputError(
          `the input with the outputs of the parents is larger than ${most} bytes, the limit; ${nameParent(job, parent)} is the first that does not fit`,
        );
      }
      pieces.push(member, output);
    }
    return addMembers(input, pieces);
  }

  async #readInput({ endpointId, id }: StoredJob): Promise<Uint8Array> {
    const { payloads, store } = this.#options;
    const key = { endpointId, id };
    const input = await store.read((tx) => tx.payloadUpTo('input', key, payloads.partBytes));
    const whole =
      typeof input === 'number'
        ? await readLarge(payloads, { kind: 'input', key, bytes: input })
        : input;
    if (whole) return whole;
    throw new NoOutputError('the input of the job cannot be read whole');
  }

  /** @throws NoOutputError */
  async #readOutput(job: StoredJob, parent: JobParent): Promise<Uint8Array> {
    const key: JobKey = { endpointId: parent.endpointId, id: parent.id };
    const output =
      parent.shard === undefined
        ? await readWholeOutput(this.#options, key)
        : await this.#readElsewhere(parent.shard, key);
    if (typeof output !== 'string') return output;
    if (output === 'none') return NULL;
    const why = output === 'gone' ? 'is gone: its record has been removed' : 'cannot be read whole';
    throw new NoOutputError(`the output of parent ${nameParent(job, parent)} ${why}`);
  }

  /** The output of a job in another shard. */
  async #readElsewhere(shard: number, key: JobKey): Promise<Uint8Array | 'gone' | 'lost' | 'none'> {
    const parts: Uint8Array[] = [];
    for (let at = 0; ; ) {
      const answer = await this.#askPart(shard, { key, at });
      if (answer.kind !== 'part') return answer.kind;
      const part = Buffer.from(answer.part, 'base64');
      parts.push(part);
      at += part.length;
      if (at >= answer.totalBytes || part.length === 0) return Buffer.concat(parts);
    }
  }

  async #askPart(shard: number, asked: { key: JobKey; at: number }): Promise<OutputPart> {
    try {
      return await this.#options.peers.at(shard).readOutput(asked);
    } catch (cause) {
      throw new PeerError(`shard ${shard} does not answer`, { cause });
    }
  }
}

const NULL = Buffer.from('null');
const COMMA = Buffer.from(',');
const END = Buffer.from('}');

/** `pieces`: names with colons, and values. */
function addMembers(object: Uint8Array, pieces: readonly Uint8Array[]): Uint8Array {
  const end = object.lastIndexOf(CLOSE_BRACE);
  const start = object.indexOf(OPEN_BRACE);
  const isEmpty =
    Buffer.from(object.subarray(start + 1, end))
      .toString('latin1')
      .trim() === '';
  const added = pieces.flatMap((piece, index) => {
    const isFirst = index === 0 && isEmpty;
    return index % 2 === 0 && !isFirst ? [COMMA, piece] : [piece];
  });
  return Buffer.concat([object.subarray(0, end), ...added, END]);
}
