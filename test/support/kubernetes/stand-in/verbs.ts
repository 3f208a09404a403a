// Reads and writes of objects as the API server does them, without HTTP.
import { z } from 'zod';
import { badRequest, type Fields, KubeError, type KubeObject, objectSchema } from '../objects.ts';
import { formatTime, type ObjectStore } from './object-store.ts';
import { applyPatch } from './patches.ts';
import { NAMESPACES, type Resource, type ResourcePath } from './resources.ts';
import { addDefaults, checkObject, checkUpdate, encodeTexts } from './rules.ts';

export type NamedPath = ResourcePath & { name: string };

const deletionSchema = z.looseObject({
  gracePeriodSeconds: z.number().int().min(0).nullish(),
  preconditions: z
    .looseObject({ uid: z.string().nullish(), resourceVersion: z.string().nullish() })
    .nullish(),
});

export type Deletion = z.infer<typeof deletionSchema>;

export class Verbs {
  readonly #store: ObjectStore;

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  /** @throws KubeError */
  create({ namespace, resource }: ResourcePath, body: unknown): KubeObject {
    const object = { ...parseObject(body), apiVersion: 'v1', kind: resource.kind };
    const { generateName, name } = object.metadata;
    checkNamespace(object, namespace);
    if (name === '' && generateName !== undefined) {
      object.metadata.name = generateName + Math.random().toString(36).slice(2, 7);
    }
    if (namespace !== undefined) {
      object.metadata.namespace = namespace;
      // Throws if there is no such namespace.
      this.#store.get(NAMESPACES, undefined, namespace);
    }
    const complete = addDefaults(resource, object);
    checkObject(resource, complete);
    return this.#store.create(resource, complete);
  }

  /** @throws KubeError */
  replace(path: NamedPath, body: unknown): KubeObject {
    const before = this.#get(path);
    const next = parseObject(body);
    checkNamespace(next, path.namespace);
    if (next.metadata.name !== path.name) throw badRequest('the name of the object differs');
    return this.#write('PUT', path, before, next);
  }

  /** @throws KubeError */
  patch(path: NamedPath, type: string, patch: unknown): KubeObject {
    const before = this.#get(path);
    const next = parseObject(applyPatch(structuredClone(before), type, patch));
    return this.#write('PATCH', path, before, next);
  }

  #write(
    method: 'PUT' | 'PATCH',
    { part, resource }: NamedPath,
    before: KubeObject,
    next: KubeObject,
  ): KubeObject {
    const { resourceVersion, uid } = next.metadata;
    const name = before.metadata.name;
    const refuse = (what: string) =>
      new KubeError(
        409,
        'Conflict',
        `Operation cannot be fulfilled on ${resource.plural} "${name}": ${what}`,
      );
    // Only of a replacement: a patch that changes the UID is invalid.
    if (method === 'PUT' && uid !== '' && uid !== before.metadata.uid) {
      throw refuse('Precondition failed: UID differs');
    }
    const { creationTimestamp, deletionGracePeriodSeconds, deletionTimestamp } = before.metadata;
    const kept = uid === '' ? before.metadata.uid : uid;
    const fixed = { uid: kept, creationTimestamp, deletionTimestamp };
    next.metadata = { ...next.metadata, ...fixed, deletionGracePeriodSeconds };
    for (const member of ['deletionTimestamp', 'deletionGracePeriodSeconds'] as const) {
      if (before.metadata[member] === undefined) delete next.metadata[member];
    }
    if (resourceVersion !== undefined && resourceVersion !== before.metadata.resourceVersion) {
      throw refuse('the object has been modified; please apply your changes to the latest version');
    }
    const changed = resource.kind === 'Secret' ? encodeTexts(next) : next;
    const written = part === 'status' ? { ...before, status: next.status } : changed;
    if (part !== 'status' && resource.hasStatus) written.status = before.status;
    if (written.status === undefined) delete written.status;
    checkUpdate(resource, before, written);
    checkObject(resource, written);
    return this.#store.update(resource, before, written);
  }

  /** Gives a pod to a node. @throws KubeError */
  bind(path: NamedPath, body: unknown): void {
    const { target } = z.looseObject({ target: z.looseObject({ name: z.string() }) }).parse(body);
    const before = this.#get(path);
    if (before.spec?.['nodeName'] || before.metadata.deletionTimestamp) {
      throw new KubeError(409, 'Conflict', `pod ${path.name} is already assigned or being deleted`);
    }
    const spec: Fields = { ...before.spec, nodeName: target.name };
    this.#store.update(path.resource, before, { ...before, spec });
  }

  /** @returns the object, with the time at which it ends, or as it was @throws KubeError */
  remove(path: NamedPath, body: unknown): KubeObject {
    const parsed = deletionSchema.safeParse(body ?? {});
    if (!parsed.success) throw badRequest('the options of the deletion are invalid');
    const deletion = parsed.data;
    const { resource } = path;
    const before = this.#get(path);
    checkPreconditions(deletion, before, resource);
    const seconds = findGrace(resource, before, deletion);
    const { deletionGracePeriodSeconds: earlier, deletionTimestamp, finalizers } = before.metadata;
    const hasFinalizers = (finalizers ?? []).length > 0;
    if (seconds === 0 && !hasFinalizers) return this.#store.remove(resource, before);
    // A grace may only become shorter.
    if (deletionTimestamp && seconds >= (earlier ?? 0)) return before;
    const end = formatTime(Date.now() + seconds * 1_000);
    const metadata = {
      ...before.metadata,
      deletionTimestamp: end,
      deletionGracePeriodSeconds: seconds,
    };
    return this.#store.update(resource, before, { ...before, metadata });
  }

  #get({ name, namespace, resource }: NamedPath): KubeObject {
    return this.#store.get(resource, namespace, name);
  }
}

/** Only pods have a grace: those that a node has and that have not ended. */
function findGrace(resource: Resource, before: KubeObject, deletion: Deletion): number {
  const phase = before.status?.['phase'];
  const hasEnded = phase === 'Succeeded' || phase === 'Failed';
  if (resource.kind !== 'Pod' || !before.spec?.['nodeName'] || hasEnded) return 0;
  const own = before.spec['terminationGracePeriodSeconds'];
  return deletion.gracePeriodSeconds ?? (typeof own === 'number' ? own : 30);
}

function checkPreconditions(
  { preconditions }: Deletion,
  { metadata }: KubeObject,
  { plural }: Resource,
): void {
  const { resourceVersion, uid } = preconditions ?? {};
  const refuse = (what: string) =>
    new KubeError(
      409,
      'Conflict',
      `Operation cannot be fulfilled on ${plural} "${metadata.name}": Precondition failed: ${what}`,
    );
  if (uid && uid !== metadata.uid) throw refuse(`UID in precondition: ${uid}`);
  if (resourceVersion && resourceVersion !== metadata.resourceVersion) {
    throw refuse(`ResourceVersion in precondition: ${resourceVersion}`);
  }
}

function parseObject(body: unknown): KubeObject {
  const parsed = objectSchema.safeParse(body);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw badRequest(`the object is invalid: ${issue?.path.join('.')}: ${issue?.message}`);
}

function checkNamespace({ metadata }: KubeObject, namespace: string | undefined): void {
  if (metadata.namespace === undefined || metadata.namespace === namespace) return;
  throw badRequest(
    'the namespace of the provided object does not match the namespace sent on the request',
  );
}
