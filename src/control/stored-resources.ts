// Manages resources that are stored as JSON and kept in memory: the five verbs for one user, with
// quota, record size and pages. The `rules` of a resource add further checks.
import type { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import { createUuidV7 } from '../base/id.ts';
import {
  ENDING,
  type Step,
  type Store,
  type StoredResource,
  type Transaction,
} from '../store/store.ts';
import { ProblemError } from '../wire/problem.ts';
import { RESOURCES } from '../wire/routes.ts';
import {
  type CountedQuota,
  DEFAULT_QUOTAS,
  type Quotas,
  ResourceCount,
  requireRecordSize,
} from './limits/quotas.ts';
import { cutNewest } from './list-page.ts';
import { Positions } from './list-positions.ts';
import { type NamedRecords, NameIndex } from './name-index.ts';
import type { ResourcePage, UserListing, UserResources } from './user-resources.ts';

export interface ResourceRules<Creation, Update, Item> {
  /** Returns the record of a new resource. */
  compose: (made: { id: string; createdAt: string }, creation: Creation) => Item;
  /** Returns the record after a change. Default: omitted members keep their value. */
  change?: (before: Item, update: Update) => Item;
  /** @throws ProblemError if the user may not create or change it so */
  admit?: (userId: string, given: Creation | Update) => void;
  /** In the commit of a change. @throws ProblemError if something depends on the record before */
  judgeChange?: (tx: Transaction, after: Item) => Step<void>;
  /** In the commit of a removal. @throws ProblemError if something depends on the record */
  judgeRemoval?: (tx: Transaction, id: string) => Step<void>;
}

export interface StoredResourcesOptions<Creation, Update, Item> {
  store: Store;
  clock: Clock;
  /** Name in RESOURCES and of the quota. */
  name: CountedQuota;
  /** Prefix of IDs: `tpl` in `tpl_01912f4e-…`. */
  prefix: string;
  record: z.ZodType<Item>;
  rules: ResourceRules<Creation, Update, Item>;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
}

interface ResourceEntry<Item> {
  userId: string;
  position: number;
  item: Item;
}

export class StoredResources<Creation, Update, Item extends { id: string; name?: string }>
  implements UserResources<Creation, Update, Item>, NamedRecords
{
  readonly #options: StoredResourcesOptions<Creation, Update, Item>;
  readonly #kind: string;
  #positions = new Positions(0);
  /** By ID, oldest first. */
  readonly #kept = new Map<string, ResourceEntry<Item>>();
  readonly #names: NameIndex;
  readonly #quotas: Quotas;
  readonly #count: ResourceCount;

  private constructor(options: StoredResourcesOptions<Creation, Update, Item>) {
    const { name, quotas = DEFAULT_QUOTAS } = options;
    this.#options = options;
    this.#kind = RESOURCES[name].singular;
    this.#names = new NameIndex(RESOURCES[name].plural);
    this.#quotas = quotas;
    const countOf = (userId: string) => this.countOf(userId);
    this.#count = new ResourceCount({ quota: name, limit: quotas[name], countOf });
  }

  static async open<Creation, Update, Item extends { id: string; name?: string }>(
    options: StoredResourcesOptions<Creation, Update, Item>,
  ): Promise<StoredResources<Creation, Update, Item>> {
    const resources = new StoredResources(options);
    await resources.reload();
    return resources;
  }

  /** Reads them again: another process may have changed them. */
  async reload(): Promise<void> {
    const listing = { kind: this.#kind, limit: Number.MAX_SAFE_INTEGER };
    const stored = (await this.#options.store.read((tx) => tx.resources(listing))).reverse();
    this.#kept.clear();
    this.#names.clear();
    for (const each of stored) this.#keep(this.#read(each));
    this.#positions = new Positions(stored.at(-1)?.position ?? 0);
  }

  /** Undefined if it does not exist or belongs to another user. */
  find(userId: string, id: string): Item | undefined {
    const kept = this.#kept.get(id);
    return kept?.userId === userId ? kept.item : undefined;
  }

  resolve(userId: string, idOrName: string): string {
    return this.#names.resolve(userId, idOrName);
  }

  get(userId: string, id: string): Item {
    return this.find(userId, id) ?? this.#raiseUnknown(id);
  }

  countOf(userId: string): number {
    return this.#listOwn(userId).length;
  }

  list({ userId, ...page }: UserListing): ResourcePage<Item> {
    return cutNewest({
      ...page,
      all: this.#listOwn(userId),
      positionOf: ({ position }) => position,
      show: ({ item }) => item,
    });
  }

  async create(userId: string, creation: Creation): Promise<Item> {
    const { clock, prefix, rules, store } = this.#options;
    rules.admit?.(userId, creation);
    const now = clock.now();
    const made = { id: `${prefix}_${createUuidV7(now)}`, createdAt: new Date(now).toISOString() };
    const item = rules.compose(made, creation);
    const kept = { userId, position: this.#positions.next(now), item };
    const stored = this.#toStored(kept);
    const release = this.#count.reserve(userId);
    try {
      await store.write((tx) => tx.putResource(stored));
      this.#keep(kept);
    } finally {
      release();
    }
    return item;
  }

  async update(userId: string, id: string, update: Update): Promise<Item> {
    this.get(userId, id);
    const { rules, store } = this.#options;
    const { change = merge, judgeChange } = rules;
    rules.admit?.(userId, update);
    const key = { kind: this.#kind, id };
    const read = (stored: StoredResource | undefined) =>
      stored ? this.#read(stored) : this.#raiseUnknown(id);
    const toStored = (kept: ResourceEntry<Item>) => this.#toStored(kept);
    const changed = await store.write(function* (tx) {
      const before = read(yield* tx.resource(key));
      const after = { ...before, item: change(before.item, update) };
      if (judgeChange) yield* judgeChange(tx, after.item);
      yield* tx.putResource(toStored(after));
      return after;
    });
    this.#keep(changed);
    return changed.item;
  }

  async remove(userId: string, id: string): Promise<void> {
    this.get(userId, id);
    const key = { kind: this.#kind, id };
    const { judgeRemoval } = this.#options.rules;
    await this.#options.store.write(function* (tx) {
      if (judgeRemoval) yield* judgeRemoval(tx, id);
      yield* tx.removeResource(key);
    }, ENDING);
    this.#kept.delete(id);
    this.#names.remove(id);
  }

  #keep(entry: ResourceEntry<Item>): void {
    const { item, userId } = entry;
    this.#kept.set(item.id, entry);
    if (item.name !== undefined) this.#names.put(item.id, { userId, name: item.name });
  }

  /** Oldest first. */
  #listOwn(userId: string): ResourceEntry<Item>[] {
    return [...this.#kept.values()].filter((each) => each.userId === userId);
  }

  #read({ body, position, userId }: StoredResource): ResourceEntry<Item> {
    return { userId, position, item: this.#options.record.parse(JSON.parse(body)) };
  }

  /** @throws ProblemError `quota_exceeded` */
  #toStored({ item, position, userId }: ResourceEntry<Item>): StoredResource {
    const body = JSON.stringify(item);
    requireRecordSize(this.#quotas, body);
    return { kind: this.#kind, id: item.id, userId, parent: '', position, body };
  }

  /** @throws ProblemError `not_found` */
  #raiseUnknown(id: string): never {
    throw new ProblemError('not_found', `${this.#kind} ${id} not found`);
  }
}

function merge<Item, Update>(before: Item, update: Update): Item {
  return { ...before, ...update };
}
