// The interfaces of a resource's service: five verbs, each for one user or for the holder of a key, and the names that stand
// in for IDs. Lists are split into pages by number of records and by size as JSON.

import { ProblemError } from '../wire/problem.ts';
import { isDnsLabel } from '../wire/routes/route.ts';
import type { Rights } from './keys/rights.ts';

export interface UserListing extends PageBounds {
  userId: string;
  /** Only those with a smaller position. */
  before: number | undefined;
}

export interface ResourcePage<Item> {
  records: Item[];
  /** Position of the next page, if one exists. */
  next: number | undefined;
}

/** For the holder of a key, whose rights decide what the answers have, and for whom the caller acts. */
export interface CallerResources<Creation, Update, Item extends { id: string } = { id: string }> {
  /** Newest first. `userId` undefined: of the caller. @throws ProblemError `forbidden` */
  list(
    caller: Rights,
    listing: Omit<UserListing, 'userId'> & { userId: string | undefined },
  ): Promise<ResourcePage<Item>>;
  /** @throws ProblemError `invalid`, `quota_exceeded`, `forbidden` */
  create(caller: Rights, creation: Creation): Promise<Item>;
  /** @throws ProblemError `not_found` */
  get(caller: Rights, id: string): Promise<Item>;
  /** @throws ProblemError `not_found`, `forbidden`, `invalid` */
  update(caller: Rights, id: string, update: Update): Promise<Item>;
  /** @throws ProblemError `not_found`, `forbidden` */
  remove(caller: Rights, id: string): Promise<void>;
}

/** For these methods, a resource of another user does not exist. */
export interface UserResources<Creation, Update, Item extends { id: string } = { id: string }> {
  /** Newest first. */
  list(listing: UserListing): ResourcePage<Item> | Promise<ResourcePage<Item>>;
  /** @throws ProblemError `invalid`, `quota_exceeded`, `conflict` */
  create(userId: string, creation: Creation): Promise<Item>;
  /** @throws ProblemError `not_found` */
  get(userId: string, id: string): Item | Promise<Item>;
  /** @throws ProblemError `not_found`, `invalid`, `quota_exceeded`, `conflict` */
  update(userId: string, id: string, update: Update): Promise<Item>;
  /** @throws ProblemError `not_found`, `conflict` */
  remove(userId: string, id: string): Promise<void>;
}

/** Adapts resources of which a key changes nothing but what `showTo` leaves out. Default: nothing. */
export function forCallers<Creation, Update, Item extends { id: string }>(
  resources: UserResources<Creation, Update, Item>,
  showTo: (caller: Rights, item: Item) => { id: string } = (_caller, item) => item,
): CallerResources<Creation, Update, { id: string }> {
  return {
    async list(caller, page) {
      const { next, records } = await resources.list({ ...page, userId: caller.userId });
      return { records: records.map((item) => showTo(caller, item)), next };
    },
    create: async (caller, creation) =>
      showTo(caller, await resources.create(caller.userId, creation)),
    get: async (caller, id) => showTo(caller, await resources.get(caller.userId, id)),
    update: async (caller, id, update) =>
      showTo(caller, await resources.update(caller.userId, id, update)),
    remove: (caller, id) => resources.remove(caller.userId, id),
  };
}

/** Bytes of JSON in one page. */
export const LIST_BYTES = 4_194_304;

export interface PageBounds {
  /** Most records in one page. */
  limit: number;
  /** Most bytes of JSON in one page; a page has at least one record. Default: LIST_BYTES. */
  maxBytes?: number | undefined;
}

/** Adds records to one page until it is full. */
export class PageCutter {
  readonly #limit: number;
  #left: number;
  #count = 0;

  constructor({ limit, maxBytes = LIST_BYTES }: PageBounds) {
    this.#limit = limit;
    this.#left = maxBytes;
  }

  /** Returns false if the record no longer fits into the page. */
  take(record: unknown): boolean {
    if (this.#count >= this.#limit) return false;
    // Includes the comma after it.
    const bytes = Buffer.byteLength(JSON.stringify(record)) + 1;
    if (this.#count > 0 && bytes > this.#left) return false;
    this.#left -= bytes;
    this.#count++;
    return true;
  }
}

interface PageSource<T, R> extends PageBounds {
  /** All records from the page's start on, in the order of the list. */
  wanted: readonly T[];
  positionOf: (item: T) => number;
  show: (item: T) => R;
}

interface NewestSource<T, R> extends Omit<PageSource<T, R>, 'wanted'> {
  /** All records of the list, oldest first. */
  all: readonly T[];
  /** The page contains only records with smaller positions. Default: it starts with the newest. */
  before?: number | undefined;
}

/** Like `cutPage`, for a list whose newest record comes first. */
export function cutNewest<T, R>({ all, before, ...source }: NewestSource<T, R>) {
  const { positionOf } = source;
  const older = before === undefined ? all : all.filter((item) => positionOf(item) < before);
  return cutPage({ ...source, wanted: older.toReversed() });
}

/** `next` is the position of the next page, if there is one. */
export function cutPage<T, R>(
  source: PageSource<T, R>,
): {
  records: R[];
  next: number | undefined;
} {
  const { positionOf, show, wanted, ...bounds } = source;
  const cutter = new PageCutter(bounds);
  const records: R[] = [];
  let next: number | undefined;
  for (const item of wanted) {
    const record = show(item);
    if (!cutter.take(record)) return { records, next };
    records.push(record);
    next = positionOf(item);
  }
  return { records, next: undefined };
}

/** Positions per millisecond before they run ahead of the clock. */
const PER_MS = 1_000;

/** A later record has a greater position. */
export class Positions {
  #last: number;

  /** `last`: the greatest earlier position, 0 without any. */
  constructor(last: number) {
    this.#last = last;
  }

  /** Grows even if the clock is set back. */
  next(now: number): number {
    this.#last = Math.max(this.#last + 1, now * PER_MS);
    return this.#last;
  }
}

/** IDs that a refusal lists. */
const MAX_LISTED = 10;

interface NamedRecord {
  userId: string;
  name: string;
}

/** Resolves the names of one kind of record; see `NameIndex`. */
export interface NamedRecords {
  /**
   * Returns the ID of the user's only record with this name. An ID, and a name that no record of the user
   * has, is returned unchanged. @throws ProblemError `conflict` if several records have the name
   */
  resolve(userId: string, idOrName: string): string;
}

/** Records of other users are invisible: a name finds only those of the user who asks. */
export class NameIndex implements NamedRecords {
  readonly #plural: string;
  readonly #records = new Map<string, NamedRecord>();
  /** By user, then by name: IDs, the oldest entry first. */
  readonly #ids = new Map<string, Map<string, Set<string>>>();

  /** `plural`: of the kind, for messages: `endpoints`. */
  constructor(plural: string) {
    this.#plural = plural;
  }

  /** Adds the record, or follows a change of its name. */
  put(id: string, { name, userId }: NamedRecord): void {
    const known = this.#records.get(id);
    if (known?.name === name && known.userId === userId) return;
    this.remove(id);
    if (!isDnsLabel(name)) return;
    this.#records.set(id, { name, userId });
    const own = this.#ids.get(userId) ?? new Map<string, Set<string>>();
    this.#ids.set(userId, own.set(name, (own.get(name) ?? new Set()).add(id)));
  }

  remove(id: string): void {
    const known = this.#records.get(id);
    if (!known) return;
    this.#records.delete(id);
    const own = this.#ids.get(known.userId);
    const ids = own?.get(known.name);
    ids?.delete(id);
    if (ids?.size === 0) own?.delete(known.name);
    if (own?.size === 0) this.#ids.delete(known.userId);
  }

  clear(): void {
    this.#records.clear();
    this.#ids.clear();
  }

  /** IDs of the user's records with this name. */
  list(userId: string, name: string): string[] {
    return [...(this.#ids.get(userId)?.get(name) ?? [])];
  }

  resolve(userId: string, idOrName: string): string {
    return this.choose(idOrName, this.list(userId, idOrName));
  }

  /** The only one of `ids`, or `name` without any. @throws ProblemError `conflict` */
  choose(name: string, ids: readonly string[]): string {
    const [only = name, second] = ids;
    if (second === undefined) return only;
    const listed = ids.slice(0, MAX_LISTED).join(', ');
    const more = ids.length > MAX_LISTED ? ` and ${ids.length - MAX_LISTED} more` : '';
    throw new ProblemError(
      'conflict',
      `${ids.length} ${this.#plural} have the name ${name}; use the ID of one: ${listed}${more}`,
    );
  }
}
