// Templates: what pods and an endpoint's workers are made from. All are in memory, since every look at
// an endpoint's workers asks for its template.
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../base/clock.ts';
import { createUuidV7 } from '../../base/id.ts';
import {
  ENDING,
  type Step,
  type Store,
  type StoredResource,
  type Transaction,
} from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { EndpointType } from '../../wire/resources/endpoint.ts';
import {
  type TemplateCreation,
  type TemplateRecord,
  type TemplateUpdate,
  templateRecord,
} from '../../wire/resources/template.ts';
import { checkArgs } from '../args-fault.ts';
import { DEFAULT_QUOTAS, type Quotas, ResourceCount, requireRecordSize } from '../limits/quotas.ts';
import { cutPage } from '../list-page.ts';
import { Positions } from '../positions.ts';
import type { ResourceListing, ResourcePage, UserResources } from '../user-resources.ts';
import type { Catalog } from './catalog.ts';
import { type EngineKind, findTemplateFault } from './deployment-rules.ts';

export interface TemplatesOptions {
  store: Store;
  clock: Clock;
  engine: EngineKind;
  catalog: Pick<Catalog, 'judgeRegistry'>;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
}

interface Kept {
  userId: string;
  position: number;
  template: TemplateRecord;
}

export class Templates implements UserResources<TemplateCreation, TemplateUpdate> {
  readonly #options: TemplatesOptions;
  readonly #positions: Positions;
  /** By id, oldest first. */
  readonly #kept: Map<string, Kept>;
  readonly #quotas: Quotas;
  readonly #count: ResourceCount;

  private constructor(options: TemplatesOptions, kept: readonly Kept[]) {
    this.#options = options;
    this.#kept = new Map(kept.map((each) => [each.template.id, each]));
    this.#positions = new Positions(kept.at(-1)?.position ?? 0);
    this.#quotas = options.quotas ?? DEFAULT_QUOTAS;
    const countOf = (userId: string) => this.#listOwn(userId).length;
    this.#count = new ResourceCount({ quota: 'templates', limit: this.#quotas.templates, countOf });
  }

  static async open(options: TemplatesOptions): Promise<Templates> {
    const listing = { kind: 'template', limit: Number.MAX_SAFE_INTEGER } as const;
    const stored = await options.store.read((tx) => tx.resources(listing));
    return new Templates(options, stored.reverse().map(readStored));
  }

  /** Undefined if it is not there or another user's. */
  find(userId: string, id: string): TemplateRecord | undefined {
    const kept = this.#kept.get(id);
    return kept?.userId === userId ? kept.template : undefined;
  }

  /** @throws ProblemError `not_found` */
  get(userId: string, id: string): TemplateRecord {
    return this.find(userId, id) ?? raiseUnknown(id);
  }

  /** Newest first. */
  list({
    before = Number.POSITIVE_INFINITY,
    userId,
    ...bounds
  }: ResourceListing): ResourcePage<TemplateRecord> {
    const wanted = this.#listOwn(userId)
      .filter(({ position }) => position < before)
      .reverse();
    return cutPage({
      ...bounds,
      wanted,
      positionOf: ({ position }) => position,
      show: ({ template }) => template,
    });
  }

  /** @throws ProblemError `invalid`, `quota_exceeded` */
  async create(userId: string, creation: TemplateCreation): Promise<TemplateRecord> {
    checkArgs(creation.args);
    const { clock, store } = this.#options;
    this.#checkRegistry(userId, creation.registry);
    const now = clock.now();
    const id = `tpl_${createUuidV7(now)}`;
    const createdAt = new Date(now).toISOString();
    const template = { id, ...creation, createdAt, version: 1 };
    const kept = { userId, position: this.#positions.next(now), template };
    const stored = toStored(kept);
    requireRecordSize(this.#quotas, stored.body);
    const release = this.#count.reserve(userId);
    try {
      await store.write((tx) => tx.putResource(stored));
      this.#kept.set(id, kept);
    } finally {
      release();
    }
    return template;
  }

  /**
   * Pods that were made from it stay as they are; an endpoint's workers are replaced.
   * @throws ProblemError `not_found`, `invalid`, `quota_exceeded`, `conflict` when an endpoint that uses it
   * could not
   */
  async update(userId: string, id: string, update: TemplateUpdate): Promise<TemplateRecord> {
    this.get(userId, id);
    checkArgs(update.args);
    if (update.registry !== undefined) this.#checkRegistry(userId, update.registry);
    const { engine, store } = this.#options;
    const quotas = this.#quotas;
    const changed = await store.write(function* (tx) {
      const before = readStored((yield* tx.resource({ kind: 'template', id })) ?? raiseUnknown(id));
      const after = { ...before, template: change(before.template, update) };
      for (const { id: user, type } of yield* listUsers(tx, id)) {
        const fault = findTemplateFault({ engine, type, template: after.template });
        if (fault) throw new ProblemError('conflict', `endpoint ${user} uses it: ${fault}`);
      }
      const stored = toStored(after);
      requireRecordSize(quotas, stored.body);
      yield* tx.putResource(stored);
      return after;
    });
    this.#kept.set(id, changed);
    return changed.template;
  }

  /** @throws ProblemError `not_found`, `conflict` while an endpoint uses it */
  async remove(userId: string, id: string): Promise<void> {
    this.get(userId, id);
    await this.#options.store.write(function* (tx) {
      const [user] = yield* listUsers(tx, id);
      if (user) throw new ProblemError('conflict', `endpoint ${user.id} uses template ${id}`);
      yield* tx.removeResource({ kind: 'template', id });
    }, ENDING);
    this.#kept.delete(id);
  }

  /** Oldest first. */
  #listOwn(userId: string): Kept[] {
    return [...this.#kept.values()].filter((each) => each.userId === userId);
  }

  #checkRegistry(userId: string, registry: string | null): void {
    const errors = this.#options.catalog.judgeRegistry(userId, registry);
    if (errors.length > 0) throw new ProblemError('invalid', errors.join('; '), { errors });
  }
}

/**
 * The template as it is while the operation runs, for who is going to use it: it cannot be removed
 * between. Undefined if it is not there or another user's.
 */
export function* readTemplate(
  tx: Transaction,
  userId: string,
  id: string,
): Step<TemplateRecord | undefined> {
  const stored = yield* tx.resource({ kind: 'template', id });
  return stored?.userId === userId ? readStored(stored).template : undefined;
}

/** Another name is no reason to replace anybody's workers. */
function change(template: TemplateRecord, update: TemplateUpdate): TemplateRecord {
  const changed = { ...template, ...update };
  const isSame = isDeepStrictEqual({ ...changed, name: '' }, { ...template, name: '' });
  return isSame ? changed : { ...changed, version: template.version + 1 };
}

function* listUsers(
  tx: Transaction,
  templateId: string,
): Step<{ id: string; type: EndpointType }[]> {
  const endpoints = yield* tx.endpoints();
  return endpoints.flatMap(({ deleted, deployment, id }) =>
    !deleted && deployment?.templateId === templateId ? [{ id, type: deployment.type }] : [],
  );
}

function readStored({ body, position, userId }: StoredResource): Kept {
  return { userId, position, template: templateRecord.parse(JSON.parse(body)) };
}

function toStored({ position, template, userId }: Kept): StoredResource {
  const body = JSON.stringify(template);
  return { kind: 'template', id: template.id, userId, parent: '', position, body };
}

function raiseUnknown(id: string): never {
  throw new ProblemError('not_found', `template ${id} not found`);
}
