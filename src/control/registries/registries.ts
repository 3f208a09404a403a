// Manages registry logins: the records of users, whose secrets are stored sealed and shown to nobody, and
// those that the operator's catalog file declares.
import type { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { EngineError, type RegistryLogin } from '../../engine/engine.ts';
import type { Step, Store, Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  type RegistryCreation,
  type RegistryRecord,
  type RegistryUpdate,
  registryRecord,
} from '../../wire/resources/registry.ts';
import { templateRecord } from '../../wire/resources/template.ts';
import type { Catalog } from '../endpoints/catalog.ts';
import type { Quotas } from '../limits/quotas.ts';
import type { NamedRecords } from '../name-index.ts';
import { describeUses, type PodUse } from '../pods/pod-use.ts';
import { StoredResources } from '../stored-resources.ts';
import type { ResourcePage, UserListing, UserResources } from '../user-resources.ts';
import { type SecretSealer, sealedSecret, UnopenedSecretError } from './sealed-secret.ts';

/** As it is stored; a declared one has no secret here. */
const storedRegistry = registryRecord.extend({ secret: sealedSecret.nullable() });
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

type Kept = StoredResources<RegistryCreation, RegistryUpdate, StoredRegistry>;

const NO_KEY = 'the platform has no key that encrypts secrets; start it with --secrets-key-file';

export class Registries
  implements UserResources<RegistryCreation, RegistryUpdate, RegistryRecord>, NamedRecords
{
  readonly #kept: Kept;
  readonly #sealer: SecretSealer;

  private constructor(kept: Kept, sealer: SecretSealer) {
    this.#kept = kept;
    this.#sealer = sealer;
  }

  static async open(options: RegistriesOptions): Promise<Registries> {
    return new Registries(await openKept(options), options.sealer);
  }

  /** Reads them again: another process may have changed them. */
  reload(): Promise<void> {
    return this.#kept.reload();
  }

  resolve(userId: string, idOrName: string): string {
    return this.#kept.resolve(userId, idOrName);
  }

  countOf(userId: string): number {
    return this.#kept.countOf(userId);
  }

  list(listing: UserListing): ResourcePage<RegistryRecord> {
    const { next, records } = this.#kept.list(listing);
    return { records: records.map(show), next };
  }

  get(userId: string, id: string): RegistryRecord {
    return show(this.#kept.get(userId, id));
  }

  async create(userId: string, creation: RegistryCreation): Promise<RegistryRecord> {
    return show(await this.#kept.create(userId, creation));
  }

  async update(userId: string, id: string, update: RegistryUpdate): Promise<RegistryRecord> {
    return show(await this.#kept.update(userId, id, update));
  }

  remove(userId: string, id: string): Promise<void> {
    return this.#kept.remove(userId, id);
  }

  /** False also for one that is being removed. */
  has(userId: string, id: string): boolean {
    return this.#kept.findUsable(userId, id) !== undefined;
  }

  /** Undefined if it does not exist here. @throws EngineError `unavailable` if its secret cannot be opened */
  login(userId: string, id: string): RegistryLogin | undefined {
    const found = this.#kept.find(userId, id);
    if (!found?.secret) return undefined;
    const { server, username } = found;
    try {
      return { server, username, password: this.#sealer.open(found.secret, ownerOf(found)) };
    } catch (error) {
      if (!(error instanceof UnopenedSecretError)) throw error;
      const detail = `the secret of the registry ${id} cannot be opened: ${error.message}`;
      throw new EngineError('unavailable', detail);
    }
  }

  /** Warns of secrets whose key is missing. */
  warnOfMissingKeys(log: Log): void {
    const missing = this.#kept
      .all()
      .flatMap(({ secret }) => (secret && !this.#sealer.has(secret.keyId) ? [secret.keyId] : []));
    if (missing.length === 0) return;
    const keys = [...new Set(missing)];
    log.warn({ keys, registries: missing.length }, 'key of secrets of registries is missing');
  }

  /** Seals with the current key what an earlier one has sealed; leaves what cannot be opened. */
  async reseal(): Promise<void> {
    const sealer = this.#sealer;
    await this.#kept.rewrite((registry) => {
      const { secret } = registry;
      const isDone = !secret || secret.keyId === sealer.keyId || !sealer.has(secret.keyId);
      if (isDone) return registry;
      const owner = ownerOf(registry);
      try {
        return { ...registry, secret: sealer.seal(sealer.open(secret, owner), owner) };
      } catch (error) {
        if (error instanceof UnopenedSecretError) return registry;
        throw error;
      }
    });
  }
}

function openKept(options: RegistriesOptions): Promise<Kept> {
  const { catalog, listPods = () => [], sealer } = options;
  return StoredResources.open<RegistryCreation, RegistryUpdate, StoredRegistry>({
    ...options,
    ...{ name: 'registries', prefix: 'reg', record: storedRegistry },
    declared: (userId) =>
      catalog.declaredRegistries(userId).map((each) => ({ ...each, secret: null })),
    rules: {
      compose({ createdAt, id }, { name, secret, server, username }) {
        const registry = { id, name, server, username, declared: false, createdAt };
        return { ...registry, secret: sealer.seal(secret, ownerOf(registry)) };
      },
      change: (before, update) => changeRegistry(before, update, sealer),
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
      *judgeRemoval(tx, id, userId) {
        const [template] = yield* listTemplates(tx, userId, id);
        if (template === undefined) return;
        throw new ProblemError('conflict', `the template ${template} uses the registry ${id}`);
      },
    },
  });
}

/** A new user name belongs to the secret too, so the secret is sealed again. @throws ProblemError `conflict` */
function changeRegistry(
  before: StoredRegistry,
  { secret, ...update }: RegistryUpdate,
  sealer: SecretSealer,
): StoredRegistry {
  const after = { ...before, ...update };
  if (secret !== undefined) return { ...after, secret: sealer.seal(secret, ownerOf(after)) };
  if (after.username === before.username || !before.secret) return after;
  try {
    const opened = sealer.open(before.secret, ownerOf(before));
    return { ...after, secret: sealer.seal(opened, ownerOf(after)) };
  } catch (error) {
    if (!(error instanceof UnopenedSecretError)) throw error;
    const detail = `the secret cannot be opened: ${error.message}; send the secret with the username`;
    throw new ProblemError('conflict', detail);
  }
}

/** The secret is only for this server and user: a changed row does not send it elsewhere. */
function ownerOf({ id, server, username }: RegistryRecord): string[] {
  return ['registry', id, server, username];
}

function show({ secret: _secret, ...record }: StoredRegistry): RegistryRecord {
  return record;
}

function* listTemplates(tx: Transaction, userId: string, registryId: string): Step<string[]> {
  const listing = { kind: 'template', userId, limit: Number.MAX_SAFE_INTEGER };
  const stored = yield* tx.resources(listing);
  return stored.flatMap(({ body, id }) =>
    templateRecord.parse(JSON.parse(body)).registry === registryId ? [id] : [],
  );
}
