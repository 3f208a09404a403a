// Measures network volumes: each costs from its creation to its deletion, by its size and the price in force. A meter is
// a row beside its volume, which changes in the commit that creates, grows or deletes the volume.
import { z } from 'zod';
import type { Log } from '../../base/log.ts';
import { Loop } from '../../base/loop.ts';
import { logLevelOf, type Store, type Transaction } from '../../store/store.ts';
import {
  type StoredNetworkVolume,
  storedNetworkVolume,
} from '../../wire/resources/network-volume.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import {
  type Bill,
  beginSight,
  catchUp,
  close,
  findSkip,
  type Interval,
  type LastSight,
  type Measured,
  type MeterClock,
  type MeterState,
  meterState,
  proceed,
  type Rate,
} from '../pods/pod-meter.ts';
import type { FollowedChange } from '../stored-resources.ts';
import type { BilledResource } from './bill-rows.ts';

const KIND = 'volumeMeter';
/** A month, hours. */
const MONTH_HOURS = 730;
const OBSERVED_MS = 10_000;
/** How often a volume is billed, ms. Its meter holds the unbilled rest, so a crash loses nothing. */
const DUE_MS = 3_600_000;
/** A meter names what it bills: a volume is one run from its creation to its deletion. */
const RUN = 'volume';
const NO_RATE: Rate = { price: 0, gpus: 0 };
/** Meters that one commit writes. */
const WRITTEN_AT_ONCE = 50;

export interface VolumeMetersOptions {
  store: Store;
  clock: MeterClock;
  log: Log;
  /** USD for one GB and month. */
  priceOf: (dataCenterId: string) => number;
  bill: Bill;
}

/** The volumes of all users. */
type ListVolumes = () => readonly { userId: string; item: StoredNetworkVolume }[];

const storedMeter = z.object({ name: z.string(), meter: meterState });

interface Kept {
  resource: BilledResource;
  meter: MeterState;
  last: LastSight;
}

/** A volume as a commit finds it. */
interface Look {
  id: string;
  userId: string;
  /** Undefined: it is deleted. */
  volume: StoredNetworkVolume | undefined;
  /** When it was deleted. Default: it was not. */
  endedAt?: number | undefined;
  last: LastSight;
}

/** What a commit has stored of a volume. */
interface Stored {
  id: string;
  /** The mark of this commit. */
  coming?: Coming;
  /** Undefined: the volume is gone. */
  kept: Kept | undefined;
  billed?: { resource: BilledResource; intervals: readonly Interval[] };
}

/** The meter as a commit leaves it that may be on disk already: the time before is on the bill, or will be at once. */
interface Coming {
  until: number;
}

interface OpenInterval {
  resource: BilledResource;
  interval: Interval;
}

export class VolumeMeters {
  readonly #options: VolumeMetersOptions;
  readonly #kept = new Map<string, Kept>();
  /** Of the last commit of each volume, until it is in memory. */
  readonly #coming = new Map<string, Coming>();
  #closing: AbortController | undefined;

  constructor(options: VolumeMetersOptions) {
    this.#options = options;
  }

  /** Reads all of them again: another process may have changed them. */
  async load(): Promise<void> {
    const last = beginSight(this.#options.clock);
    const listing = { kind: KIND, limit: Number.MAX_SAFE_INTEGER };
    const rows = await this.#options.store.read((tx) => tx.resources(listing));
    this.#kept.clear();
    this.#coming.clear();
    for (const { body, id, userId } of rows) {
      const { meter, name } = storedMeter.parse(JSON.parse(body));
      this.#kept.set(id, { resource: { kind: 'volume', id, userId, name }, meter, last });
    }
  }

  /** Measures all volumes again and again, while this process manages pods. */
  start(listVolumes: ListVolumes): void {
    const { clock, log } = this.#options;
    const closing = new AbortController();
    this.#closing?.abort();
    this.#closing = closing;
    const loop = new Loop({
      clock,
      closing: closing.signal,
      pass: async () => {
        await this.observe(listVolumes());
        return clock.now() + OBSERVED_MS;
      },
      onError: (err) => log[logLevelOf(err)]({ err }, 'measuring network volumes failed, retrying'),
    });
    void loop.run();
  }

  stop(): void {
    this.#closing?.abort();
  }

  /** Undefined: none is known. */
  nameOf(id: string): string | undefined {
    return this.#kept.get(id)?.resource.name ?? undefined;
  }

  /** The time that no row has yet. What ends in a commit that is not in memory yet is left out. */
  open(): OpenInterval[] {
    return [...this.#kept].flatMap(([id, { last, meter, resource }]) => {
      const { gpus, hours, price, until } = meter;
      const from = Math.max(until, this.#coming.get(id)?.until ?? until);
      if (price === 0 || last.at <= from) return [];
      const rate = { price, gpus, ...(hours !== undefined && { hours }) };
      return [{ resource, interval: { from, to: last.at, ...rate } }];
    });
  }

  /** Records a change of a volume in the same commit. @returns what to do when the commit is on disk */
  follow(tx: Transaction, change: FollowedChange<StoredNetworkVolume>): () => void {
    const { after, id, userId } = change;
    const last = beginSight(this.#options.clock);
    const endedAt = after ? undefined : last.at;
    const stored = this.#measure(tx, { id, userId, volume: after, endedAt, last });
    return () => this.#note(stored);
  }

  /** Bills what is due, at the prices in force until now; prices may have changed. */
  async observe(volumes: ReturnType<ListVolumes>): Promise<void> {
    const last = beginSight(this.#options.clock);
    const known = new Set(volumes.map(({ item }) => item.id));
    const isOver = (id: string) => !known.has(id);
    const changed = [
      ...volumes.filter(({ item }) => this.#needsMeasuring(item, last)).map(({ item }) => item.id),
      ...[...this.#kept.keys()].filter(isOver),
      // Their commits may have failed: then their time is still open.
      ...this.#coming.keys(),
    ];
    const measure = (tx: Transaction, ids: readonly string[]) => this.#measureAll(tx, ids, last);
    const all = [...new Set(changed)];
    for (let at = 0; at < all.length; at += WRITTEN_AT_ONCE) {
      const ids = all.slice(at, at + WRITTEN_AT_ONCE);
      for (const each of await this.#options.store.write((tx) => measure(tx, ids)))
        this.#note(each);
    }
    for (const kept of this.#kept.values()) {
      if (kept.last.monotonic <= last.monotonic) kept.last = last;
    }
  }

  #measureAll(tx: Transaction, ids: readonly string[], last: LastSight): Stored[] {
    return tx.each(ids, (id) => {
      // It may have been changed or deleted meanwhile.
      const row = tx.resource({ kind: RESOURCES.networkVolumes.singular, id });
      if (!row) return { id, kept: undefined };
      const volume = storedNetworkVolume.parse(JSON.parse(row.body));
      return this.#measure(tx, { id, userId: row.userId, volume, last });
    });
  }

  #measure(tx: Transaction, { endedAt, id, last, userId, volume }: Look): Stored {
    const row = tx.resource({ kind: KIND, id });
    const before = row && storedMeter.parse(JSON.parse(row.body));
    const { intervals, meter } = this.#judge(id, { meter: before?.meter, volume, endedAt, last });
    const name = volume?.name ?? before?.name ?? id;
    const resource: BilledResource = { kind: 'volume', id, userId, name };
    // Volumes that cost nothing are not on the bill.
    const billed = intervals.filter(({ price }) => price > 0);
    const coming = { until: meter.until };
    this.#coming.set(id, coming);
    this.#options.bill.add(tx, resource, billed);
    if (!volume) {
      tx.removeResource({ kind: KIND, id });
      return { id, coming, kept: undefined, billed: { resource, intervals: billed } };
    }
    const body = JSON.stringify({ name, meter });
    tx.putResource({ kind: KIND, id, userId, parent: '', position: 0, body });
    const kept = { resource, meter, last };
    return { id, coming, kept, billed: { resource, intervals: billed } };
  }

  #needsMeasuring(volume: StoredNetworkVolume, last: LastSight): boolean {
    const meter = this.#kept.get(volume.id)?.meter;
    return this.#judge(volume.id, { meter, volume, last }).meter !== meter;
  }

  #judge(id: string, { endedAt, last, meter: known, volume }: Judged): Measured {
    const { at } = last;
    const rate = volume ? this.#rateOf(volume) : NO_RATE;
    const meter = known
      ? catchUp(known, at)
      : { until: findStart(volume, at), run: RUN, ended: null, ...rate };
    const sight = { at, rate, skippedMs: findSkip(this.#kept.get(id)?.last, last) };
    if (!volume) return close(meter, { ...sight, lastAt: undefined }, endedAt);
    if (meter.price === 0 && rate.price === 0) return { meter, intervals: [] };
    return proceed(meter, { ...sight, isDue: at - meter.until >= DUE_MS });
  }

  #rateOf({ dataCenterId, size }: StoredNetworkVolume): Rate {
    const micros = Math.round(this.#options.priceOf(dataCenterId) * 1_000_000);
    return { price: micros * (size ?? 0), hours: MONTH_HOURS, gpus: 0 };
  }

  #note({ billed, coming, id, kept }: Stored): void {
    if (!coming || this.#coming.get(id) === coming) this.#coming.delete(id);
    if (billed) this.#options.bill.added?.(billed.resource, billed.intervals);
    const known = this.#kept.get(id);
    if (!kept) this.#kept.delete(id);
    // We may learn of an earlier commit later.
    else if (!known || known.last.monotonic <= kept.last.monotonic) this.#kept.set(id, kept);
  }
}

interface Judged extends Pick<Look, 'endedAt' | 'last' | 'volume'> {
  /** Undefined: it has none yet. */
  meter: MeterState | undefined;
}

/** A volume exists a little before the commit that creates it and its meter. */
function findStart(volume: StoredNetworkVolume | undefined, at: number): number {
  return Math.min(at, Date.parse(volume?.createdAt ?? '') || at);
}
