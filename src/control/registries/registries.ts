// Manages registry logins: the records of users, whose secrets are stored sealed and shown to nobody, and
// those that the operator's catalog file declares.
import type { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { EngineError, type RegistryLogin } from '../../engine/engine.ts';
import type { Store, Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { storedShape } from '../../wire/resources/field-schemas.ts';
import { REGISTRY_FIELDS } from '../../wire/resources/fields.ts';
import {
  type RegistryCreation,
  type RegistryRecord,
  type RegistryUpdate,
  registryRecord,
} from '../../wire/resources/registry.ts';
import { templateRecord } from '../../wire/resources/template.ts';
import type { Catalog } from '../endpoints/catalog.ts';
import type { Quotas } from '../limits/quotas.ts';
import { describeUses, type PodUse } from '../pods/pod-state.ts';
import { StoredResources } from '../stored-resources.ts';
import type { NamedRecords, ResourcePage, UserListing, UserResources } from '../user-resources.ts';
import { type SecretSealer, sealedSecret, UnopenedSecretError } from './sealed-secret.ts';

/** As it is stored; a declared one has no secret here. */
const storedRegistry = registryRecord.extend({
  ...storedShape(REGISTRY_FIELDS),
  secret: sealedSecret.nullable(),
});
type StoredRegistry = z.infer<typeof storedRegistry>;

export interface RegistriesOptions {
  store: Store;
  clock: Clock;
  sealer: SecretSealer;
  catalog: Pick<Catalog, 'declaredRegistries'>;
  /** Pods of all users that still exist, those that are being created included. Default: none. */
  listPods?: (() => readonly PodUse[]) | undefined;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
}

type RegistryRecords = StoredResources<RegistryCreation, RegistryUpdate, StoredRegistry>;

const usingTemplate = templateRecord.pick({ name: true, registry: true });

const NO_KEY = 'the platform has no key that encrypts secrets; start it with --secrets-key-file';

export class Registries
  implements UserResources<RegistryCreation, RegistryUpdate, RegistryRecord>, NamedRecords
{
  readonly #records: RegistryRecords;
  readonly #sealer: SecretSealer;

  private constructor(records: RegistryRecords, sealer: SecretSealer) {
    this.#records = records;
    this.#sealer = sealer;
  }

  static async open(options: RegistriesOptions): Promise<Registries> {
    return new Registries(await openRecords(options), options.sealer);
  }

  /** Reads them again: another process may have changed them. */
  reload(): Promise<void> {
    return this.#records.reload();
  }

  resolve(userId: string, idOrName: string): string {
    return this.#records.resolve(userId, idOrName);
  }

  countOf(userId: string): number {
    return this.#records.countOf(userId);
  }

  list(listing: UserListing): ResourcePage<RegistryRecord> {
    const { next, records } = this.#records.list(listing);
    return { records: records.map(show), next };
  }

  get(userId: string, id: string): RegistryRecord {
    return show(this.#records.get(userId, id));
  }

  async create(userId: string, creation: RegistryCreation): Promise<RegistryRecord> {
    return show(await this.#records.create(userId, creation));
  }

  async update(userId: string, id: string, update: RegistryUpdate): Promise<RegistryRecord> {
    return show(await this.#records.update(userId, id, update));
  }

  remove(userId: string, id: string): Promise<void> {
    return this.#records.remove(userId, id);
  }

  /** False also for one that is being removed. */
  has(userId: string, id: string): boolean {
    return this.#records.findUsable(userId, id) !== undefined;
  }

  /** Undefined if it does not exist here. @throws EngineError `unavailable` if its secret cannot be opened */
  login(userId: string, id: string): RegistryLogin | undefined {
    const found = this.#records.find(userId, id);
    if (!found?.secret) return undefined;
    const { server, username } = found;
    try {
      return { server, username, password: openSecret(this.#sealer, found, userId) };
    } catch (error) {
      if (!(error instanceof UnopenedSecretError)) throw error;
      const detail = `the secret of the registry ${id} cannot be opened: ${error.message}`;
      throw new EngineError('unavailable', detail);
    }
  }

  /** Warns of secrets whose key is missing. */
  warnOfMissingKeys(log: Log): void {
    const missing = this.#records
      .all()
      .flatMap(({ secret }) => (secret && !this.#sealer.has(secret.keyId) ? [secret.keyId] : []));
    if (missing.length === 0) return;
    const keys = [...new Set(missing)];
    log.warn({ keys, registries: missing.length }, 'registry secrets key is missing');
  }

  /** Seals again what an earlier key has sealed; leaves what cannot be opened. */
  async reseal(): Promise<void> {
    const sealer = this.#sealer;
    await this.#records.rewrite((registry, userId) => {
      const { secret } = registry;
      if (!secret || secret.keyId === sealer.keyId || !sealer.has(secret.keyId)) return registry;
      try {
        return sealSecret(sealer, registry, userId, openSecret(sealer, registry, userId));
      } catch (error) {
        if (error instanceof UnopenedSecretError) return registry;
        throw error;
      }
    });
  }
}

function openRecords(options: RegistriesOptions): Promise<RegistryRecords> {
  const { catalog, listPods = () => [], sealer } = options;
  return StoredResources.open<RegistryCreation, RegistryUpdate, StoredRegistry>({
    ...options,
    name: 'registries',
    prefix: 'reg',
    record: storedRegistry,
    declared: (userId) =>
      catalog.declaredRegistries(userId).map((each) => ({ ...each, secret: null })),
    rules: {
      compose({ createdAt, id }, { name, secret, server, username }, userId) {
        const registry = { id, name, server, username, declared: false, createdAt };
        return sealSecret(sealer, registry, userId, secret);
      },
      change: (before, update, userId) => changeRegistry({ before, update, userId, sealer }),
      admit(_userId, { secret, username }) {
        const isSealed = secret !== undefined || username !== undefined;
        if (isSealed && sealer.keyId === undefined) throw new ProblemError('conflict', NO_KEY);
      },
      admitRemoval(userId, id) {
        const users = listPods().filter((pod) => pod.userId === userId && pod.spec.registry === id);
        if (users.length > 0) {
          throw new ProblemError('conflict', describeUses('registry', id, users));
        }
      },
      judgeRemoval(tx, id, userId) {
        const templates = listTemplates(tx, userId, id);
        if (templates.length > 0) throw new ProblemError('conflict', describeUsers(id, templates));
      },
    },
  });
}

interface RegistryChange {
  before: StoredRegistry;
  update: RegistryUpdate;
  userId: string;
  sealer: SecretSealer;
}

/** A new user name belongs to the secret too, so the secret is sealed again. @throws ProblemError `conflict` */
function changeRegistry({ before, sealer, update, userId }: RegistryChange): StoredRegistry {
  const { secret, ...fields } = update;
  const after = { ...before, ...fields };
  if (secret !== undefined) return sealSecret(sealer, after, userId, secret);
  if (after.username === before.username || !before.secret) return after;
  try {
    return sealSecret(sealer, after, userId, openSecret(sealer, before, userId));
  } catch (error) {
    if (!(error instanceof UnopenedSecretError)) throw error;
    const detail = `the secret cannot be opened: ${error.message}; send the secret with the username`;
    throw new ProblemError('conflict', detail);
  }
}

function sealSecret(
  sealer: SecretSealer,
  registry: RegistryRecord,
  userId: string,
  secret: string,
): StoredRegistry {
  return { ...registry, secret: sealer.seal(secret, ownerOf(registry, userId)) };
}

/** @throws UnopenedSecretError */
function openSecret(sealer: SecretSealer, registry: StoredRegistry, userId: string): string {
  const { secret } = registry;
  if (!secret) throw new UnopenedSecretError('the database has no secret');
  return sealer.open(secret, ownerOf(registry, userId));
}

/**
 * The secret is only for this registry of this owner, its server and its user name: a changed row neither sends it to
 * another host nor gives it to another user.
 */
function ownerOf({ id, server, username }: RegistryRecord, userId: string): string[] {
  return ['registry', userId, id, server, username];
}

function show({ secret: _secret, ...record }: StoredRegistry): RegistryRecord {
  return record;
}

/** Names and IDs. */
function listTemplates(tx: Transaction, userId: string, registryId: string): string[] {
  const listing = { kind: 'template', userId, limit: Number.MAX_SAFE_INTEGER };
  const stored = tx.resources(listing);
  return stored.flatMap(({ body, id }) => {
    const { name, registry } = usingTemplate.parse(JSON.parse(body));
    return registry === registryId ? [`${name} (${id})`] : [];
  });
}

/** Templates that a refusal lists. */
const MAX_LISTED = 10;

function describeUsers(registryId: string, templates: readonly string[]): string {
  const listed = templates.slice(0, MAX_LISTED).join(', ');
  const more = templates.length > MAX_LISTED ? ` and ${templates.length - MAX_LISTED} more` : '';
  const [subject, verb] = templates.length === 1 ? ['template', 'uses'] : ['templates', 'use'];
  return `the ${subject} ${listed}${more} ${verb} the registry ${registryId}; set registry of each to null, or delete them, first`;
}
