// Delivers the records of ended jobs to their webhooks, until the receiver accepts them or the platform
// gives up. At least once: a platform that dies between the response and the commit sends again.
import { sleep } from '../../base/clock.ts';
import { createUuidV7 } from '../../base/id.ts';
import { Loop, RETRY_MS } from '../../base/loop.ts';
import {
  ENDING,
  type JobNote,
  logLevelOf,
  OWNER,
  type ReceiverKey,
  type RecordPiece,
  type Store,
  type StoredDelivery,
  type StoredJob,
  type Transaction,
} from '../../store/store.ts';
import type { QueueParts } from '../queue-parts.ts';
import { addNote } from '../timeline.ts';
import {
  type AfterAttempt,
  decideAfterAttempt,
  isTooOld,
  nameReceiver,
  Receivers,
  type SendAttempt,
  type SendResult,
} from './webhooks.ts';

type DeliveriesOptions = Pick<
  QueueParts,
  | 'clock'
  | 'closing'
  | 'log'
  | 'random'
  | 'ranMs'
  | 'settings'
  | 'signals'
  | 'store'
  | 'tracing'
  | 'webhooks'
>;

/** An ended job, its record and its webhook's URL. */
interface Ending {
  job: StoredJob;
  url: string;
  record: readonly RecordPiece[];
}

/** Counts since the start of this process. */
export type DeliveryCounts = Partial<Record<SendResult | 'given_up', number>>;

export class Deliveries {
  readonly #options: DeliveriesOptions;
  readonly #loop: Loop;
  readonly #receivers: Receivers;
  /** Running attempts by the delivery's name. */
  readonly #underWay = new Map<string, Promise<void>>();
  readonly #aborting = new AbortController();
  readonly #counts = new Map<string, DeliveryCounts>();
  #running: Promise<void> = Promise.resolve();

  constructor(options: DeliveriesOptions) {
    this.#options = options;
    this.#receivers = new Receivers(options.settings.webhooks);
    const { clock, closing, log } = options;
    this.#loop = new Loop({
      clock,
      closing,
      pass: () => this.#serveReady(),
      onError: (error) =>
        log[logLevelOf(error)]({ err: error }, 'reading due webhooks failed, retrying'),
    });
  }

  /** The endpoint was deleted. */
  forgetEndpoint(endpointId: string): void {
    this.#counts.delete(endpointId);
    // Running attempts count when they end, so delete the counts again then.
    const isOwn = (name: string) => name.startsWith(`${endpointId}/`);
    const own = [...this.#underWay].filter(([name]) => isOwn(name)).map(([, attempt]) => attempt);
    if (own.length > 0) void Promise.all(own).then(() => this.#counts.delete(endpointId));
  }

  /** By endpoint. */
  get counts(): ReadonlyMap<string, DeliveryCounts> {
    return this.#counts;
  }

  /** Continues the deliveries of an earlier run. */
  async start(): Promise<void> {
    const { store, webhooks } = this.#options;
    if (!webhooks) return;
    for (const { nextAt, ...key } of await store.read((tx) => tx.receivers())) {
      this.#receivers.note(key, nextAt);
    }
    this.#running = this.#loop.run();
  }

  /** Part of the operation that ends the job: stores the record to deliver. */
  keep(tx: Transaction, { job, record, url }: Ending): StoredDelivery {
    const now = this.#options.clock.now();
    const endpoint = tx.endpoint(job.endpointId);
    const delivery = {
      endpointId: job.endpointId,
      userId: endpoint?.userId ?? OWNER,
      id: createUuidV7(now),
      jobId: job.id,
      url,
      receiver: nameReceiver(url),
      createdAt: now,
      platformRanMs: this.#options.ranMs(),
      bytes: measure(tx, record),
      attempts: 0,
      nextAt: now,
    };
    tx.insertDelivery(delivery, record);
    return delivery;
  }

  /** The delivery is on disk now. */
  arrived(delivery: StoredDelivery): void {
    if (!this.#options.webhooks) return;
    this.#receivers.note(delivery, delivery.nextAt);
    this.#loop.wake();
  }

  /** Call this after `closing` has aborted: waits briefly for running attempts. */
  async close(): Promise<void> {
    const { clock, settings, webhooks } = this.#options;
    const cancel = clock.after(settings.webhooks.closeMs, () => this.#aborting.abort());
    await this.#running;
    await Promise.all(this.#underWay.values());
    cancel();
    await webhooks?.close();
  }

  /** Returns when the next attempt is due, Unix ms. */
  async #serveReady(): Promise<number> {
    const { clock, closing } = this.#options;
    for (const key of this.#receivers.listReady(clock.now())) {
      // Earlier receivers in this pass may have used up the concurrent attempts.
      if (!closing.aborted && this.#receivers.capacityFor(key) > 0) await this.#serve(key);
    }
    return this.#receivers.nextAt();
  }

  /** Starts as many attempts as the receiver may get now. */
  async #serve(receiver: ReceiverKey): Promise<void> {
    const { clock, ranMs, settings, store } = this.#options;
    const now = clock.now();
    const isOld = (delivery: StoredDelivery) => isTooOld(delivery, ranMs(), settings.webhooks);
    const limit = this.#receivers.capacityFor(receiver) + this.#receivers.underWay(receiver);
    this.#receivers.beginRead(receiver);
    try {
      const { due, nextAt } = await store.read((tx) => {
        const due = tx.dueDeliveries({ ...receiver, now, limit });
        return { due, nextAt: tx.nextDeliveryAt(receiver, now) };
      });
      if (nextAt !== undefined) this.#receivers.note(receiver, nextAt);
      // No await from here to `#begin`: an attempt could end meanwhile and make `due` outdated.
      const waiting = due.filter((delivery) => !this.#underWay.has(nameOf(delivery)));
      const fresh = waiting.filter((delivery) => !isOld(delivery));
      const old = waiting.filter(isOld);
      for (const delivery of fresh) {
        if (this.#hasCapacity(delivery)) this.#begin(delivery);
        else this.#receivers.note(receiver, now);
      }
      // There may be more deliveries than were read.
      if (due.length === limit) this.#receivers.note(receiver, now);
      for (const delivery of old) {
        await this.#giveUp(delivery, TOO_OLD);
      }
    } catch (error) {
      // The loop waits before its next pass.
      this.#receivers.note(receiver, now);
      throw error;
    } finally {
      this.#receivers.endRead(receiver);
    }
  }

  #hasCapacity(delivery: StoredDelivery): boolean {
    return !this.#options.closing.aborted && this.#receivers.capacityFor(delivery) > 0;
  }

  #begin(delivery: StoredDelivery): void {
    const name = nameOf(delivery);
    const end = this.#receivers.begin(delivery);
    const attempt = this.#attempt(delivery).then((isSuccess) => {
      this.#underWay.delete(name);
      end(isSuccess);
      this.#loop.wake();
    });
    this.#underWay.set(name, attempt);
  }

  /** Never rejects. @returns whether the receiver accepted the record; undefined if aborted */
  async #attempt(delivery: StoredDelivery): Promise<boolean | undefined> {
    const { clock, log, random, ranMs, settings, store, tracing, webhooks } = this.#options;
    try {
      if (!webhooks) return undefined;
      const trace = tracing && (await tracing.beginWebhook(delivery, store));
      const made = await webhooks.send(
        trace ? { ...delivery, trace: trace.context } : delivery,
        () => readRecord(store, delivery),
        this.#aborting.signal,
      );
      if (!made) return undefined;
      trace?.end(made);
      const after = decideAfterAttempt(delivery, made, {
        now: clock.now(),
        ranMs: ranMs(),
        random,
        settings: settings.webhooks,
      });
      this.#note(delivery, made, after);
      await this.#settle(delivery, after, noteAttempt(delivery, made, after, clock.now()));
      return after.kind === 'delivered';
    } catch (error) {
      if (error instanceof LostRecordError) {
        this.#noteGivenUp(delivery, error.message);
        const after = { kind: 'given_up', reason: error.message } as const;
        await this.#settle(delivery, after, noteEnd(delivery, error.message, clock.now()));
        return undefined;
      }
      log.error({ err: error, ...describe(delivery) }, 'webhook attempt failed, retrying');
      this.#receivers.note(delivery, clock.now() + RETRY_MS);
      return undefined;
    }
  }

  /** Retries until the result is on disk; without it the delivery would be sent again. */
  async #settle(delivery: StoredDelivery, after: AfterAttempt, note: JobNote): Promise<void> {
    const { clock, closing, log } = this.#options;
    for (;;) {
      try {
        if (after.kind === 'postponed') {
          await this.#write(delivery, note, (tx) => tx.postponeDelivery(after.delivery));
          this.#receivers.note(delivery, after.delivery.nextAt);
        } else {
          await this.#remove(delivery, note);
        }
        return;
      } catch (error) {
        log[logLevelOf(error)](
          { err: error, ...describe(delivery) },
          'storing a webhook result failed',
        );
        if (closing.aborted) return;
        await sleep(clock, RETRY_MS, closing);
      }
    }
  }

  async #giveUp(delivery: StoredDelivery, reason: string): Promise<void> {
    await this.#remove(delivery, noteEnd(delivery, reason, this.#options.clock.now()));
    this.#noteGivenUp(delivery, reason);
  }

  async #remove(delivery: StoredDelivery, note: JobNote): Promise<void> {
    await this.#write(delivery, note, (tx) => tx.removeDelivery(delivery));
    this.#options.signals.payloadUnused();
  }

  /** Changes the delivery, and adds the note to its job, if that is still there, in the same commit. */
  async #write(
    { endpointId, jobId }: StoredDelivery,
    note: JobNote,
    change: (tx: Transaction) => void,
  ): Promise<void> {
    const key = { endpointId, id: jobId };
    await this.#options.store.write((tx) => {
      change(tx);
      const job = tx.job(key);
      if (job) tx.saveJob(job, { ...job, notes: addNote(job.notes, note) }, 0);
    }, ENDING);
    this.#options.signals.jobNoted(key);
  }

  #note(delivery: StoredDelivery, { detail, result }: SendAttempt, after: AfterAttempt): void {
    const { log } = this.#options;
    this.#count(delivery, result);
    const about = { ...describe(delivery), attempt: delivery.attempts + 1, result };
    if (after.kind === 'delivered') log.debug(about, 'webhook delivered');
    else if (after.kind === 'given_up') this.#noteGivenUp(delivery, after.reason);
    else {
      const { nextAt } = after.delivery;
      log.info({ ...about, detail, nextAt }, 'webhook delivery failed, retrying');
    }
  }

  #noteGivenUp(delivery: StoredDelivery, reason: string): void {
    this.#count(delivery, 'given_up');
    this.#options.log.warn({ ...describe(delivery), reason }, 'webhook given up');
  }

  #count({ endpointId }: StoredDelivery, what: keyof DeliveryCounts): void {
    const counts = this.#counts.get(endpointId) ?? {};
    this.#counts.set(endpointId, { ...counts, [what]: (counts[what] ?? 0) + 1 });
  }
}

function measure(tx: Transaction, record: readonly RecordPiece[]): number {
  let bytes = 0;
  for (const piece of record) {
    bytes += piece instanceof Uint8Array ? piece.length : tx.outputBytes(piece.outputOf);
  }
  return bytes;
}

class LostRecordError extends Error {
  override readonly name = 'LostRecordError';
}

/** Reads the record in parts, so that a large record needs little memory. */
async function* readRecord(store: Store, delivery: StoredDelivery): AsyncGenerator<Uint8Array> {
  let left = delivery.bytes;
  for (let at = 0; left > 0; at++) {
    const part = await store.read((tx) => tx.deliveryPart(delivery, at));
    if (!part) throw new LostRecordError('the record is no longer stored');
    left -= part.length;
    yield part;
  }
}

const TOO_OLD = 'the job ended too long ago';

function nameOf({ endpointId, id }: StoredDelivery): string {
  return `${endpointId}/${id}`;
}

/** Fields for logs; without the URL's path and query, which may contain secrets. */
function describe({ endpointId, id, jobId, receiver }: StoredDelivery) {
  return { endpoint: endpointId, job: jobId, delivery: id, receiver };
}

function noteAttempt(
  { attempts }: StoredDelivery,
  made: SendAttempt,
  after: AfterAttempt,
  at: number,
): JobNote {
  const attempt = attempts + 1;
  switch (after.kind) {
    case 'delivered':
      return { at, event: 'webhook_delivered', attempt };
    case 'given_up':
      return { at, event: 'webhook_given_up', attempt, message: sayResult(made) };
    case 'postponed': {
      const { nextAt } = after.delivery;
      return { at, event: 'webhook_failed', attempt, message: sayResult(made), nextAt };
    }
  }
}

/** The delivery ends without a further attempt. */
function noteEnd({ attempts: attempt }: StoredDelivery, message: string, at: number): JobNote {
  return { at, event: 'webhook_given_up', attempt, message };
}

/** For the job's clients: without the addresses of hosts, which only the log names. */
function sayResult({ detail, result }: SendAttempt): string {
  if (result === 'refused') return 'the platform may not call the address of the webhook';
  if (result === 'unreachable') return 'no connection to the receiver';
  return detail;
}
