// The interfaces of a resource's service: five verbs, each for one user or for the holder of a key.

import type { Rights } from './keys/rights.ts';
import type { PageBounds } from './list-page.ts';

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
  showTo: (caller: Rights, item: Item) => Item = (_caller, item) => item,
): CallerResources<Creation, Update, Item> {
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
