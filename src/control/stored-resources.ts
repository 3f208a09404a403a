// Manages resources that are stored as JSON and kept in memory: the five verbs for one user, with
// quota, record size and pages. The `rules` of a resource add further checks.
import type { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import { createUuidV7 } from '../base/id.ts';
import { ENDING, type Store, type StoredResource, type Transaction } from '../store/store.ts';
import { ProblemError } from '../wire/problem.ts';
import { isDnsLabel, spellName } from '../wire/routes/route.ts';
import { RESOURCES } from '../wire/routes/routes.ts';
import {
  type CountedQuota,
  DEFAULT_QUOTAS,
  type Quotas,
  ResourceCount,
  requireRecordSize,
} from './limits/quotas.ts';
import {
  cutNewest,
  type NamedRecords,
  NameIndex,
  Positions,
  type ResourcePage,
  type UserListing,
  type UserResources,
} from './user-resources.ts';

/** The parts of a new resource that its creation does not give. */
interface MadeResource {
  id: string;
  createdAt: string;
}

interface ResourceRules<Creation, Update, Item> {
  /** Returns the record of a new resource. */
  compose: (made: MadeResource, creation: Creation, userId: string) => Item;
  /** Returns the record after a change. Default: omitted members keep their value. */
  change?: (before: Item, update: Update, userId: string) => Item;
  /** Replaces names in a request by IDs, before `admit`. Default: it has none. @throws ProblemError `conflict` */
  resolveNames?: <Given extends Creation | Update>(userId: string, given: Given) => Given;
  /** @throws ProblemError if the user may not create or change it so */
  admit?: (userId: string, given: Creation | Update) => void;
  /** Whether a record counts for the quota of its user. Default: each does. */
  isCounted?: (item: Item) => boolean;
  /** In the commit of a change. @throws ProblemError if something depends on the record before */
  judgeChange?: (tx: Transaction, after: Item) => void;
  /** When a removal begins; nothing may begin to use the record from then on. @throws ProblemError */
  admitRemoval?: (userId: string, id: string) => void;
  /** In the commit of a removal. @throws ProblemError if something depends on the record */
  judgeRemoval?: (tx: Transaction, id: string, userId: string) => void;
  /** When a change is on disk. */
  noteChanged?: (userId: string, change: { before: Item; after: Item }) => void;
  /** When a removal is on disk. */
  noteRemoved?: () => void;
  /** In the commit of each creation, change and removal. Returns what to do when it is on disk. */
  follow?: (tx: Transaction, change: FollowedChange<Item>) => () => void;
}

export interface FollowedChange<Item> {
  userId: string;
  id: string;
  /** Undefined: it is removed. */
  after: Item | undefined;
}

export interface StoredResourcesOptions<Creation, Update, Item> {
  store: Store;
  clock: Clock;
  /** Name in RESOURCES and of the quota. */
  name: CountedQuota;
  /** Prefix of IDs: `tpl` in `tpl_01912f4e-…`. */
  prefix: string;
  record: z.ZodType<Item>;
  /** Converts between a record and the JSON that is stored of it. Default: they are the same. */
  stored?: {
    read: (body: unknown, userId: string) => unknown;
    write: (item: Item, userId: string) => object;
  };
  rules: ResourceRules<Creation, Update, Item>;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
  /** Records that the operator's configuration gives the user: shown after all others, and fixed. */
  declared?: ((userId: string) => readonly Item[]) | undefined;
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
  readonly #entries = new Map<string, ResourceEntry<Item>>();
  readonly #names: NameIndex;
  readonly #quotas: Quotas;
  readonly #count: ResourceCount;
  /** Being removed. */
  readonly #leaving = new Set<string>();

  private constructor(options: StoredResourcesOptions<Creation, Update, Item>) {
    const { name, quotas = DEFAULT_QUOTAS } = options;
    this.#options = options;
    this.#kind = RESOURCES[name].singular;
    this.#names = new NameIndex(spellName(RESOURCES[name].plural));
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
    this.#entries.clear();
    this.#names.clear();
    for (const each of stored) this.#keep(this.#read(each));
    this.#positions = new Positions(stored.at(-1)?.position ?? 0);
  }

  /** Undefined if it does not exist or belongs to another user. */
  find(userId: string, id: string): Item | undefined {
    const entry = this.#entries.get(id);
    if (entry?.userId === userId) return entry.item;
    return this.#listDeclared(userId).find(({ item }) => item.id === id)?.item;
  }

  /** Like `find`; undefined also while it is being removed. */
  findUsable(userId: string, id: string): Item | undefined {
    return this.#leaving.has(id) ? undefined : this.find(userId, id);
  }

  resolve(userId: string, idOrName: string): string {
    const declared = this.#options.declared?.(userId) ?? [];
    if (declared.some(({ id }) => id === idOrName)) return idOrName;
    const named = declared.filter(({ name }) => name === idOrName && isDnsLabel(idOrName));
    const ids = [...this.#names.list(userId, idOrName), ...named.map(({ id }) => id)];
    return this.#names.choose(idOrName, ids);
  }

  get(userId: string, id: string): Item {
    return this.find(userId, id) ?? this.#raiseUnknown(id);
  }

  /** Of all users, oldest first. */
  all(): Item[] {
    return [...this.#entries.values()].map(({ item }) => item);
  }

  /** User of a record; undefined: it does not exist. */
  ownerOf(id: string): string | undefined {
    return this.#entries.get(id)?.userId;
  }

  /** Of all users, each with its user. */
  entries(): { userId: string; item: Item }[] {
    return [...this.#entries.values()];
  }

  countOf(userId: string): number {
    const { isCounted = () => true } = this.#options.rules;
    return this.#listOwn(userId).filter(({ item }) => isCounted(item)).length;
  }

  list({ userId, ...page }: UserListing): ResourcePage<Item> {
    return cutNewest({
      ...page,
      all: [...this.#listDeclared(userId), ...this.#listOwn(userId)],
      positionOf: ({ position }) => position,
      show: ({ item }) => item,
    });
  }

  /** Newest first, of all users, without those of the operator's configuration. */
  listAll(page: Omit<UserListing, 'userId'>): ResourcePage<{ userId: string; item: Item }> {
    return cutNewest({
      ...page,
      all: [...this.#entries.values()],
      positionOf: ({ position }) => position,
      show: (entry) => entry,
    });
  }

  async create(userId: string, given: Creation): Promise<Item> {
    const { clock, prefix, rules, store } = this.#options;
    const creation = rules.resolveNames?.(userId, given) ?? given;
    rules.admit?.(userId, creation);
    const now = clock.now();
    const made = { id: `${prefix}_${createUuidV7(now)}`, createdAt: new Date(now).toISOString() };
    const item = rules.compose(made, creation, userId);
    this.#checkName(userId, item);
    const entry = { userId, position: this.#positions.next(now), item };
    const stored = this.#toStored(entry);
    const { isCounted = () => true } = rules;
    const release = isCounted(item) ? this.#count.reserve(userId) : () => {};
    try {
      const noteStored = await store.write((tx) => {
        tx.putResource(stored);
        return follow(rules, tx, { userId, id: item.id, after: item });
      });
      this.#keep(entry);
      noteStored();
    } finally {
      release();
    }
    return item;
  }

  async update(userId: string, id: string, given: Update): Promise<Item> {
    this.#requireOwn(userId, id);
    const { rules, store } = this.#options;
    const { change = merge, judgeChange } = rules;
    const update = rules.resolveNames?.(userId, given) ?? given;
    rules.admit?.(userId, update);
    const key = { kind: this.#kind, id };
    const read = (stored: StoredResource | undefined) =>
      stored ? this.#read(stored) : this.#raiseUnknown(id);
    const toStored = (entry: ResourceEntry<Item>) => this.#toStored(entry);
    const checkName = (before: Item, after: Item) => {
      if (after.name !== before.name) this.#checkName(userId, after);
    };
    const { before, changed, noteStored } = await store.write((tx) => {
      const before = read(tx.resource(key));
      const after = { ...before, item: change(before.item, update, userId) };
      checkName(before.item, after.item);
      if (judgeChange) judgeChange(tx, after.item);
      tx.putResource(toStored(after));
      const followed = follow(rules, tx, { userId, id, after: after.item });
      return { before: before.item, changed: after, noteStored: followed };
    });
    this.#keep(changed);
    noteStored();
    rules.noteChanged?.(userId, { before, after: changed.item });
    return changed.item;
  }

  /**
   * Changes a record within an operation of another resource; `change` returns the same object for no change. Call the
   * returned function when the operation is on disk. @throws ProblemError `not_found`
   */
  changeIn(tx: Transaction, id: string, change: (before: Item) => Item): () => void {
    const stored = tx.resource({ kind: this.#kind, id }) ?? this.#raiseUnknown(id);
    const before = this.#read(stored);
    const after = { ...before, item: change(before.item) };
    if (after.item === before.item) return () => {};
    tx.putResource(this.#toStored(after));
    return () => this.#keep(after);
  }

  async remove(userId: string, id: string): Promise<void> {
    this.#requireOwn(userId, id);
    const key = { kind: this.#kind, id };
    const { rules } = this.#options;
    const { admitRemoval, judgeRemoval, noteRemoved } = rules;
    admitRemoval?.(userId, id);
    this.#leaving.add(id);
    let noteStored = () => {};
    try {
      noteStored = await this.#options.store.write((tx) => {
        if (judgeRemoval) judgeRemoval(tx, id, userId);
        tx.removeResource(key);
        return follow(rules, tx, { userId, id, after: undefined });
      }, ENDING);
    } finally {
      this.#leaving.delete(id);
    }
    this.#entries.delete(id);
    this.#names.remove(id);
    noteStored();
    noteRemoved?.();
  }

  /** Changes records of all users; `decide` returns the same object for no change. */
  async rewrite(decide: (item: Item, userId: string) => Item): Promise<void> {
    const read = (stored: StoredResource) => this.#read(stored);
    const toStored = (entry: ResourceEntry<Item>) => this.#toStored(entry);
    for (const { item, userId } of [...this.#entries.values()]) {
      if (decide(item, userId) === item) continue;
      const key = { kind: this.#kind, id: item.id };
      const changed = await this.#options.store.write((tx) => {
        const stored = tx.resource(key);
        if (!stored) return undefined;
        const before = read(stored);
        const after = { ...before, item: decide(before.item, before.userId) };
        tx.putResource(toStored(after));
        return after;
      });
      if (changed) this.#keep(changed);
    }
  }

  /** @throws ProblemError `not_found`, `conflict` for a declared one */
  #requireOwn(userId: string, id: string): void {
    this.get(userId, id);
    if (this.#entries.get(id)?.userId === userId) return;
    const noun = spellName(this.#kind);
    const detail = `the operator's catalog file declares the ${noun} ${id}; only the operator can change it, in that file`;
    throw new ProblemError('conflict', detail);
  }

  /** The ID of a declared record stands for that record only. @throws ProblemError `conflict` */
  #checkName(userId: string, { name }: Item): void {
    const declared = this.#options.declared?.(userId) ?? [];
    if (!declared.some(({ id }) => id === name)) return;
    const detail = `the operator's catalog file declares a ${spellName(this.#kind)} with the ID ${name}; choose another name`;
    throw new ProblemError('conflict', detail);
  }

  #keep(entry: ResourceEntry<Item>): void {
    const { item, userId } = entry;
    this.#entries.set(item.id, entry);
    if (item.name !== undefined) this.#names.put(item.id, { userId, name: item.name });
  }

  /** With positions below all others. */
  #listDeclared(userId: string): ResourceEntry<Item>[] {
    const declared = this.#options.declared?.(userId) ?? [];
    return declared.map((item, index) => ({ userId, position: index + 1, item }));
  }

  /** Oldest first. */
  #listOwn(userId: string): ResourceEntry<Item>[] {
    return [...this.#entries.values()].filter((each) => each.userId === userId);
  }

  #read({ body, position, userId }: StoredResource): ResourceEntry<Item> {
    const { record, stored } = this.#options;
    const json: unknown = JSON.parse(body);
    return { userId, position, item: record.parse(stored ? stored.read(json, userId) : json) };
  }

  /** @throws ProblemError `quota_exceeded` */
  #toStored({ item, position, userId }: ResourceEntry<Item>): StoredResource {
    const { stored } = this.#options;
    const json = JSON.stringify(item);
    requireRecordSize(this.#quotas, json);
    const body = stored ? JSON.stringify(stored.write(item, userId)) : json;
    return { kind: this.#kind, id: item.id, userId, parent: '', position, body };
  }

  /** @throws ProblemError `not_found` */
  #raiseUnknown(id: string): never {
    throw new ProblemError('not_found', `${spellName(this.#kind)} ${id} not found`);
  }
}

function merge<Item, Update>(before: Item, update: Update): Item {
  return { ...before, ...update };
}

function follow<Creation, Update, Item>(
  rules: ResourceRules<Creation, Update, Item>,
  tx: Transaction,
  change: FollowedChange<Item>,
): () => void {
  return rules.follow ? rules.follow(tx, change) : () => {};
}
