// Manages endpoints: their owners, settings and deployments. The queue has their jobs, the fleet
// starts their workers, platform/compute/endpoint-remains.ts removes the rest of deleted ones.
import { isDeepStrictEqual } from 'node:util';
import type { z } from 'zod';
import { ChangeNumbers } from '../../base/change-numbers.ts';
import type { Clock } from '../../base/clock.ts';
import { createUuidV7 } from '../../base/id.ts';
import {
  ENDING,
  OWNER,
  type Store,
  type StoredEndpoint,
  type Transaction,
} from '../../store/store.ts';
import { describeIssues, ProblemError } from '../../wire/problem.ts';
import {
  type EndpointCreation,
  type EndpointDeployment,
  type EndpointRecord,
  type EndpointUpdate,
  endpointId,
  endpointSettings,
} from '../../wire/resources/endpoint.ts';
import { isReserved } from '../../wire/resources/fields.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import {
  DEFAULT_QUOTAS,
  type Quotas,
  ResourceCount,
  requireRecordSize,
  requireWorkersMax,
} from '../limits/quotas.ts';
import { attachLimits, type SharedLimits } from '../limits/shared-limits.ts';
import {
  cutNewest,
  type NamedRecords,
  NameIndex,
  Positions,
  type ResourcePage,
  type UserListing,
  type UserResources,
} from '../user-resources.ts';
import {
  applyUpdate,
  checkDeployment,
  type Deploying,
  describeEndpoint,
  type LiveEndpoint,
  nameOf,
  refuse,
  splitCreation,
  splitUpdate,
} from './endpoint-records.ts';

export interface EndpointsOptions {
  store: Store;
  clock: Clock;
  /** Default: endpoints can only be declared; the platform starts no workers. */
  deploying?: Deploying;
  /** Those that endpoints may name. Default: there are none. */
  sharedLimits?: SharedLimits | undefined;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
  /** Returns the shard of a new endpoint. Default: 0. */
  chooseShard?: ((endpointId: string) => number) | undefined;
  /** Whether the platform writes a history of jobs. Default false. */
  hasHistory?: boolean | undefined;
}

export interface EndpointEvent {
  id: string;
  kind: 'put' | 'deleted';
}

interface LiveEndpointEntry {
  position: number;
  endpoint: LiveEndpoint;
}

/** A deleted endpoint is invisible to everybody at once, however much is left of it. */
export class Endpoints implements UserResources<EndpointCreation, EndpointUpdate>, NamedRecords {
  /** By user: counts the changes of their endpoints. */
  readonly changes = new ChangeNumbers();
  readonly #options: EndpointsOptions;
  readonly #positions = new Positions(0);
  /** By ID, oldest first. */
  readonly #entries = new Map<string, LiveEndpointEntry>();
  readonly #names = new NameIndex(RESOURCES.endpoints.plural);
  readonly #listeners = new Set<(change: EndpointEvent) => void>();
  readonly #quotas: Quotas;
  readonly #count: ResourceCount;

  private constructor(options: EndpointsOptions) {
    this.#options = options;
    this.#quotas = options.quotas ?? DEFAULT_QUOTAS;
    const countOf = (userId: string) => this.countOf(userId);
    this.#count = new ResourceCount({ quota: 'endpoints', limit: this.#quotas.endpoints, countOf });
  }

  static async open(options: EndpointsOptions): Promise<Endpoints> {
    const endpoints = new Endpoints(options);
    await endpoints.reload();
    return endpoints;
  }

  /** Reads them again: another process may have changed them. Listeners learn of each change. */
  async reload(): Promise<void> {
    const all = (await this.readAll()).sort((a, b) => a.createdAt - b.createdAt);
    const ids = new Set(all.map(({ id }) => id));
    for (const id of [...this.#entries.keys()]) if (!ids.has(id)) this.#forget(id);
    for (const stored of all) {
      const known = this.find(stored.id);
      if (!known || !isDeepStrictEqual(known, toLive(stored))) this.#learn(stored);
    }
  }

  /**
   * Declares an endpoint. An existing one keeps its jobs and counters; given settings replace its
   * own. @throws ProblemError `invalid`, `conflict` while an endpoint with this ID is being deleted
   */
  async ensureEndpoint(
    id: string,
    settings?: z.input<typeof endpointSettings>,
  ): Promise<LiveEndpoint> {
    const checkedId = endpointId.safeParse(id);
    if (!checkedId.success) throw refuse(describeIssues(checkedId.error, `endpoint "${id}"`));
    const checked = endpointSettings.safeParse(settings ?? {});
    if (!checked.success) throw refuse(describeIssues(checked.error, 'settings'));
    const createdAt = this.#options.clock.now();
    const shard = this.#chooseShard(id);
    const endpoint = await this.#options.store.write((tx) => {
      const known = tx.endpoint(id);
      if (known?.deleted) throw new ProblemError('conflict', `endpoint ${id} is being deleted`);
      if (known && settings === undefined) return known;
      const base = known ?? { userId: OWNER, createdAt, deployment: null, shard };
      const put = { ...base, id, settings: checked.data };
      tx.putEndpoint(put);
      return put;
    }, ENDING);
    this.#learn(endpoint);
    return endpoint;
  }

  has(id: string): boolean {
    return this.#entries.has(id);
  }

  /** Undefined if the endpoint does not exist. */
  ownerOf(id: string): string | undefined {
    return this.#entries.get(id)?.endpoint.userId;
  }

  /** An ID of the user's own endpoint is not taken for a name. @throws ProblemError `conflict` */
  resolve(userId: string, idOrName: string): string {
    const isId = this.ownerOf(idOrName) === userId || isReserved(idOrName);
    return isId ? idOrName : this.#names.resolve(userId, idOrName);
  }

  /** Whether an endpoint has this ID, or one of the user this name. */
  isKnown(userId: string, idOrName: string): boolean {
    return this.has(idOrName) || this.#names.list(userId, idOrName).length > 0;
  }

  /** Undefined if the endpoint does not exist. */
  nameOf(id: string): string | undefined {
    const endpoint = this.find(id);
    return endpoint && nameOf(endpoint);
  }

  /** Returns a new object after each change. */
  find(id: string): LiveEndpoint | undefined {
    return this.#entries.get(id)?.endpoint;
  }

  /** Endpoints of all users, oldest first. */
  all(): LiveEndpoint[] {
    return [...this.#entries.values()].map(({ endpoint }) => endpoint);
  }

  /** Reads one row by its key: resolves if the store works, however many endpoints there are. */
  async checkStore(): Promise<void> {
    await this.#options.store.read((tx) => tx.endpoint(''));
  }

  /** With counters, from the store. */
  async readAll(): Promise<StoredEndpoint[]> {
    const stored = await this.#options.store.read((tx) => tx.endpoints());
    return stored.filter(({ deleted }) => !deleted);
  }

  /**
   * The listener is called when a change is on disk, before its caller gets an answer. @returns the
   * function that stops it
   */
  onChange(listener: (change: EndpointEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** @throws ProblemError `not_found`, also for another user's endpoint */
  get(userId: string, id: string): EndpointRecord {
    return describeEndpoint(this.#require(userId, id), this.#options.clock.now());
  }

  /** Newest first. */
  list({ userId, ...page }: UserListing): ResourcePage<EndpointRecord> {
    return cutNewest({
      ...page,
      all: this.#listOwn(userId),
      positionOf: ({ position }) => position,
      show: ({ endpoint }) => describeEndpoint(endpoint, this.#options.clock.now()),
    });
  }

  /** @throws ProblemError `invalid`, `quota_exceeded`, `conflict` without an engine */
  async create(userId: string, creation: EndpointCreation): Promise<EndpointRecord> {
    const named = this.#resolveNames(userId, creation);
    const now = this.#options.clock.now();
    const id = `ep_${createUuidV7(now)}`;
    const endpoint = {
      id,
      userId,
      createdAt: now,
      shard: this.#chooseShard(id),
      ...splitCreation(named),
    };
    const { deploying, sharedLimits } = this.#options;
    this.#checkQuotas(endpoint, creation);
    const release = this.#count.reserve(userId);
    const { shard } = endpoint;
    try {
      const noteAttached = await this.#options.store.write((tx) => {
        checkDeployment(tx, deploying, endpoint, endpoint.deployment);
        const { limits: ids } = endpoint.settings;
        const attached = attachLimits(sharedLimits, tx, { userId, ids, shard });
        tx.putEndpoint(endpoint);
        return attached;
      });
      noteAttached();
      this.#learn(endpoint);
    } finally {
      release();
    }
    return describeEndpoint(endpoint, now);
  }

  /**
   * @throws ProblemError `not_found`, `invalid`, `quota_exceeded`, `conflict` for settings that a
   * declared endpoint does not have
   */
  async update(userId: string, id: string, given: EndpointUpdate): Promise<EndpointRecord> {
    this.#require(userId, id);
    const update = this.#resolveNames(userId, given);
    const { deploying, sharedLimits } = this.#options;
    const checkQuotas = this.#checkQuotas.bind(this);
    const { changed, noteAttached } = await this.#options.store.write((tx) => {
      const before = tx.endpoint(id);
      if (!before || before.deleted) throw unknownEndpoint(id);
      const after = applyUpdate(before, update);
      checkQuotas(after, update);
      checkDeployment(tx, deploying, after, splitUpdate(update).deployment);
      const attached = { userId, ids: update.limits ?? [], shard: before.shard };
      const noteAttached = attachLimits(sharedLimits, tx, attached);
      tx.putEndpoint(after);
      return { changed: after, noteAttached };
    });
    noteAttached();
    this.#learn(changed);
    return describeEndpoint(changed, this.#options.clock.now());
  }

  /**
   * Changes the deployment of an endpoint that has one, whoever its owner is; `change` and `judge` run in the commit.
   * @returns the deployment after it @throws ProblemError `not_found`, and the errors of both
   */
  async changeDeployment(
    id: string,
    change: (before: EndpointDeployment) => EndpointDeployment,
    judge?: (tx: Transaction) => unknown,
  ): Promise<EndpointDeployment> {
    const changed = await this.#options.store.write((tx) => {
      const before = tx.endpoint(id);
      if (!before?.deployment || before.deleted) throw unknownEndpoint(id);
      if (judge) judge(tx);
      const deployment = change(before.deployment);
      if (deployment !== before.deployment) tx.putEndpoint({ ...before, deployment });
      return { ...before, deployment };
    }, ENDING);
    this.#learn(changed);
    return changed.deployment;
  }

  /** Removes its configuration, workers and jobs. @throws ProblemError `not_found` */
  async remove(userId: string, id: string): Promise<void> {
    this.#require(userId, id);
    const removed = await this.#options.store.write((tx) => {
      const endpoint = tx.endpoint(id);
      if (!endpoint || endpoint.deleted) throw unknownEndpoint(id);
      tx.putEndpoint({ ...endpoint, deleted: true });
      return endpoint;
    }, ENDING);
    // `reload` may have forgotten it already, and its ID may be in use again.
    if (this.find(id)?.createdAt === removed.createdAt) this.#forget(id);
  }

  /** Oldest first. */
  countOf(userId: string): number {
    return this.#listOwn(userId).length;
  }

  #listOwn(userId: string): LiveEndpointEntry[] {
    return [...this.#entries.values()].filter(({ endpoint }) => endpoint.userId === userId);
  }

  /** After a quota was lowered, an endpoint above it may change everything else. */
  #checkQuotas(
    { deployment, settings }: LiveEndpoint,
    { history, workersMax }: EndpointUpdate,
  ): void {
    if (history && history !== 'OFF' && !this.#options.hasHistory) {
      throw new ProblemError('conflict', 'history: this platform runs without --history-to');
    }
    if (workersMax !== undefined) requireWorkersMax(this.#quotas, workersMax);
    requireRecordSize(this.#quotas, JSON.stringify({ deployment, settings }));
  }

  /** Template, network volume and shared limits may be given by name; stored are IDs. @throws ProblemError `conflict` */
  #resolveNames<Given extends Pick<EndpointUpdate, 'limits' | 'networkVolumeId' | 'templateId'>>(
    userId: string,
    given: Given,
  ): Given {
    const { limits, networkVolumeId, templateId } = given;
    const { deploying, sharedLimits } = this.#options;
    const { templates, volumes } = deploying ?? {};
    return {
      ...given,
      ...(typeof templateId === 'string' &&
        templates && { templateId: templates.resolve(userId, templateId) }),
      ...(typeof networkVolumeId === 'string' &&
        volumes && { networkVolumeId: volumes.names.resolve(userId, networkVolumeId) }),
      ...(limits &&
        sharedLimits && {
          limits: [...new Set(limits.map((each) => sharedLimits.resolve(userId, each)))],
        }),
    };
  }

  #require(userId: string, id: string): LiveEndpoint {
    const endpoint = this.find(id);
    if (endpoint?.userId === userId) return endpoint;
    throw unknownEndpoint(id);
  }

  #chooseShard(id: string): number {
    return this.#options.chooseShard?.(id) ?? 0;
  }

  #learn(stored: LiveEndpoint): void {
    const { createdAt, id } = stored;
    const position = this.#entries.get(id)?.position ?? this.#positions.next(createdAt);
    this.#entries.set(id, { position, endpoint: toLive(stored) });
    this.#names.put(id, { userId: stored.userId, name: nameOf(stored) });
    this.changes.note(stored.userId);
    this.#notify({ id, kind: 'put' });
  }

  #forget(id: string): void {
    const userId = this.ownerOf(id);
    if (userId !== undefined) this.changes.note(userId);
    this.#entries.delete(id);
    this.#names.remove(id);
    this.#notify({ id, kind: 'deleted' });
  }

  #notify(change: EndpointEvent): void {
    for (const listener of this.#listeners) listener(change);
  }
}

/** Without counters. */
function toLive(endpoint: LiveEndpoint): LiveEndpoint {
  const { createdAt, deployment, id, settings, shard, userId } = endpoint;
  return { id, userId, deployment, settings, createdAt, shard };
}

function unknownEndpoint(id: string): ProblemError {
  return new ProblemError('not_found', `endpoint ${id} not found`);
}
