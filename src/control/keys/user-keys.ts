// The keys API for users: they see and revoke their own keys and cannot grant more than they have.
// The operator manages everybody's keys.
import type { Clock } from '../../base/clock.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { IssuedKeyRecord, KeyCreation, KeyRecord } from '../../wire/resources/key.ts';
import { DEFAULT_QUOTAS, type Quotas, requireBelow } from '../limits/quotas.ts';
import {
  cutNewest,
  type NamedRecords,
  type PageBounds,
  type ResourcePage,
} from '../user-resources.ts';
import type { HeldKey, KeyGrant, Keys, KeysCheck } from './keys.ts';
import {
  checkGrant,
  countKeys,
  isLastWayIn,
  isOperator,
  maySee,
  type Rights,
  readGrant,
  requireGivable,
  requireRevocable,
} from './rights.ts';

/** The platform names keys of worker pods so. */
const RESERVED = 'pod pod_';

interface KeyListing extends PageBounds {
  /** Owner of the listed keys. Default: the caller. */
  userId: string | undefined;
  /** Only keys with a smaller position. */
  before: number | undefined;
}

export interface UserKeysOptions {
  keys: Keys;
  clock: Clock;
  /** To which scopes may be bound, by ID or name. */
  endpoints: NamedRecords;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Pick<Quotas, 'keys'> | undefined;
}

/** A caller who may not see a key gets the same answer as for a missing one. */
export class UserKeys {
  readonly #options: UserKeysOptions;

  constructor(options: UserKeysOptions) {
    this.#options = options;
  }

  /** @throws ProblemError `invalid`, `forbidden`, `conflict`, `quota_exceeded` */
  async issue(caller: Rights, creation: KeyCreation): Promise<IssuedKeyRecord> {
    const { name, userId = caller.userId } = creation;
    requireUser(caller, userId);
    if (name.startsWith(RESERVED)) {
      throw new ProblemError('invalid', `name: "${RESERVED}…" is reserved for keys of worker pods`);
    }
    const scopes = creation.scopes.map((scope) => this.#nameEndpoint(userId, scope));
    const expiresAt = this.#readEnd(caller, creation);
    const grant: KeyGrant = { name, scopes, userId, ...(expiresAt !== null && { expiresAt }) };
    const checked = checkGrant(grant);
    requireGivable(caller, { scopes: new Set(checked.scopes), expiresAt });
    const { holder, key } = await this.#options.keys.issue(checked, this.#limit());
    return { ...this.find(caller, holder.keyId), key };
  }

  /** Newest first. @throws ProblemError `forbidden` */
  list(caller: Rights, { userId = caller.userId, ...page }: KeyListing): ResourcePage<KeyRecord> {
    requireUser(caller, userId);
    const all = this.#options.keys.ofUser(userId);
    const positionOf = ({ position }: HeldKey) => position;
    return cutNewest({ ...page, all, positionOf, show: describeKey });
  }

  /** @throws ProblemError `not_found` */
  find(caller: Rights, id: string): KeyRecord {
    return describeKey(this.#require(caller, id));
  }

  /**
   * Creates a key with the same rights and expiry; the old key stays valid for `graceSeconds`.
   * During that time both count against the quota.
   * @throws ProblemError `not_found`, `forbidden` for rights that the caller cannot grant,
   * `conflict`, `quota_exceeded`
   */
  async rotate(caller: Rights, id: string, graceSeconds: number): Promise<IssuedKeyRecord> {
    const old = this.#require(caller, id).holder;
    requireGivable(caller, old);
    const check = graceSeconds > 0 ? this.#limit() : undefined;
    const { holder, key } = await this.#options.keys.rotate(id, graceSeconds * 1_000, check);
    return { ...this.find(caller, holder.keyId), key };
  }

  /**
   * @throws ProblemError `not_found`, `forbidden` for a key with more rights than the caller's,
   * `conflict` for the last operator's key
   */
  async revoke(caller: Rights, id: string): Promise<void> {
    requireRevocable(caller, this.#require(caller, id).holder);
    const now = this.#options.clock.now();
    await this.#options.keys.remove(id, (own) => {
      const key = own.find(({ keyId }) => keyId === id);
      // All operators have the same user.
      if (!key || !isLastWayIn(key, own, now)) return;
      const other = 'no other admin key of the operator is good for as long';
      throw new ProblemError('conflict', `key ${id} cannot be revoked: ${other}`);
    });
  }

  /** A scope may be bound to an endpoint by its name; stored is its ID. @throws ProblemError `conflict` */
  #nameEndpoint(userId: string, text: string): string {
    const grant = readGrant(text);
    if (grant?.endpoint === undefined) return text;
    return `${grant.scope}:${this.#options.endpoints.resolve(userId, grant.endpoint)}`;
  }

  #limit(): KeysCheck {
    const { clock, quotas = DEFAULT_QUOTAS } = this.#options;
    return (own) => requireBelow('keys', quotas.keys, countKeys(own, clock.now()));
  }

  /** Default: the expiry of the caller's own key. */
  #readEnd({ expiresAt: own }: Rights, { expiresAt: given }: KeyCreation): number | null {
    if (given === undefined) return own;
    if (given === null) return null;
    const expiresAt = Date.parse(given);
    if (expiresAt > this.#options.clock.now()) return expiresAt;
    const errors = ['expiresAt: must be in the future'];
    throw new ProblemError('invalid', 'the key would have expired already', { errors });
  }

  #require(caller: Rights, id: string): HeldKey {
    const found = this.#options.keys.find(id);
    if (found && maySee(caller, found.holder.userId)) return found;
    throw new ProblemError('not_found', `key ${id} not found`);
  }
}

/** @throws ProblemError `forbidden` */
function requireUser(caller: Rights, userId: string): void {
  if (userId === caller.userId || isOperator(caller)) return;
  throw new ProblemError(
    'forbidden',
    'only the operator manages keys of other users; use an admin key of the operator',
  );
}

function describeKey({ createdAt, holder }: HeldKey): KeyRecord {
  const { expiresAt, keyId, name, scopes, userId } = holder;
  return {
    id: keyId,
    name,
    userId,
    scopes: [...scopes],
    createdAt: new Date(createdAt).toISOString(),
    expiresAt: expiresAt === null ? null : new Date(expiresAt).toISOString(),
  };
}
