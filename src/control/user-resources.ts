// What the services of resources have in common: five verbs, each for one user.
import type { PageBounds } from './list-page.ts';

export interface UserListing extends PageBounds {
  userId: string;
  /** Only those with a smaller position. */
  before: number | undefined;
}

export interface ResourcePage<Item> {
  records: Item[];
  /** Position from which the next page goes on, if there is one. */
  next: number | undefined;
}

/** A resource of another user is not there. */
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
