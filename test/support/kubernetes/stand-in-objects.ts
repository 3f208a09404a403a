// The objects of the stand-in's API: versions, the history that watches read, and each verb with the rules that the engine
// meets: names, UIDs, graces, finalizers, and deadlines that only get shorter.
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { type Fields, formatTime, KubeError, type KubeObject, objectSchema } from './client.ts';

/** A kind of object, and in which namespace; without a name all of them. */
export interface ObjectPath {
  /** Such as `pods`. */
  plural: string;
  namespace: string | undefined;
  name: string | undefined;
  /** Such as `status` or `log`. */
  part: string | undefined;
}

export interface ObjectChange {
  type: 'ADDED' | 'MODIFIED' | 'DELETED';
  plural: string;
  version: number;
  object: KubeObject;
  /** Undefined: the object is new. */
  before: KubeObject | undefined;
}

const KINDS: Readonly<Record<string, string>> = {
  events: 'Event',
  namespaces: 'Namespace',
  nodes: 'Node',
  persistentvolumeclaims: 'PersistentVolumeClaim',
  pods: 'Pod',
  secrets: 'Secret',
  serviceaccounts: 'ServiceAccount',
};
/** Their status is written only through `/status`. */
const WITH_STATUS = ['namespaces', 'nodes', 'persistentvolumeclaims', 'pods'];
/** Earlier versions are always too old, as on a server that has run for a while. */
const FIRST_VERSION = 100;
const NAME = /^(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;
const LABEL_VALUE = /^(?=.{0,63}$)([A-Za-z0-9]([-\w.]*[A-Za-z0-9])?)?$/;

const deletionSchema = z.looseObject({
  gracePeriodSeconds: z.number().int().min(0).optional(),
  preconditions: z.looseObject({ uid: z.string().optional() }).default({}),
});

const bindingSchema = z.looseObject({ target: z.looseObject({ name: z.string() }) });

/** Undefined: the API has no such path. */
export function parsePath(pathname: string): ObjectPath | undefined {
  const [, api, version, ...rest] = pathname.split('/').map(decodeURIComponent);
  const isInNamespace = rest[0] === 'namespaces' && rest.length > 2;
  const namespace = isInNamespace ? rest[1] : undefined;
  const [plural = '', name, part] = isInNamespace ? rest.slice(2) : rest;
  if (api !== 'api' || version !== 'v1' || !(plural in KINDS)) return undefined;
  return { plural, namespace, name, part };
}

export class StandInObjects {
  readonly #objects = new Map<string, KubeObject>();
  readonly #listeners = new Set<(change: ObjectChange) => void>();
  #history: ObjectChange[] = [];
  /** Changes up to this version are forgotten. */
  #forgotten = FIRST_VERSION;
  /** Version of the last change. */
  version = FIRST_VERSION;

  /** Forgets the changes so far, as etcd does when it compacts. */
  compact(): void {
    this.#history = [];
    this.#forgotten = this.version;
  }

  /** @throws KubeError 410 if some of them are forgotten */
  changesSince(version: number): ObjectChange[] {
    if (version < this.#forgotten) {
      throw new KubeError(410, 'Expired', `too old resource version: ${version}`);
    }
    return this.#history.filter((change) => change.version > version);
  }

  /** @returns the function that removes the listener */
  listen(listener: (change: ObjectChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** @throws KubeError, like all verbs below */
  get(path: ObjectPath): KubeObject {
    const found = this.#objects.get(keyOf(path));
    if (found) return found;
    throw new KubeError(404, 'NotFound', `${path.plural} "${path.name}" not found`);
  }

  /** Of all namespaces if it is undefined; ordered by namespace and name. */
  list({ namespace, plural }: ObjectPath): KubeObject[] {
    const prefix = namespace === undefined ? `${plural}/` : `${plural}/${namespace}/`;
    return [...this.#objects]
      .filter(([key]) => key.startsWith(prefix))
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, object]) => object);
  }

  create(path: ObjectPath, body: unknown): KubeObject {
    const { namespace, plural } = path;
    const object = { ...parseObject(body), apiVersion: 'v1', kind: KINDS[plural] ?? '' };
    const { metadata } = object;
    metadata.name ||= `${metadata.generateName}${Math.random().toString(36).slice(2, 7)}`;
    if (namespace !== undefined) metadata.namespace = namespace;
    const complete = addDefaults(object);
    checkNames(complete);
    const named = { ...path, name: metadata.name };
    if (this.#objects.has(keyOf(named))) {
      throw new KubeError(409, 'AlreadyExists', `${plural} "${metadata.name}" already exists`);
    }
    complete.metadata.uid = randomUUID();
    complete.metadata.creationTimestamp = formatTime(Date.now());
    return this.#put('ADDED', named, complete, undefined);
  }

  /** A JSON merge patch (RFC 7396). */
  patch(path: ObjectPath, patch: unknown): KubeObject {
    const before = this.get(path);
    const next = parseObject(mergeFields(structuredClone(before), patch));
    const { resourceVersion, uid } = before.metadata;
    if (next.metadata.uid !== uid) throw invalid(before, 'metadata.uid: field is immutable');
    if (next.metadata.resourceVersion !== resourceVersion) {
      throw conflict(before, 'the object has been modified');
    }
    if (path.part === 'status')
      return this.#update(path, before, { ...before, status: next.status });
    if (WITH_STATUS.includes(path.plural)) next.status = before.status;
    const was = before.spec?.['activeDeadlineSeconds'];
    const is = next.spec?.['activeDeadlineSeconds'];
    if (typeof was === 'number' && (typeof is !== 'number' || is > was)) {
      throw invalid(before, 'spec.activeDeadlineSeconds: must not be more than the previous value');
    }
    checkNames(next);
    return this.#update(path, before, next);
  }

  /** Gives a pod to a node. */
  bind(path: ObjectPath, body: unknown): void {
    const { target } = bindingSchema.parse(body);
    const before = this.get(path);
    if (before.spec?.['nodeName'] || before.metadata.deletionTimestamp) {
      throw conflict(before, 'the pod is already assigned or being deleted');
    }
    this.#update(path, before, { ...before, spec: { ...before.spec, nodeName: target.name } });
  }

  /** @returns the object, with the time at which it ends, or as it was */
  remove(path: ObjectPath, body: unknown): KubeObject {
    const { gracePeriodSeconds, preconditions } = deletionSchema.parse(body ?? {});
    const before = this.get(path);
    const { metadata } = before;
    if (preconditions.uid !== undefined && preconditions.uid !== metadata.uid) {
      throw conflict(before, `Precondition failed: UID in precondition: ${preconditions.uid}`);
    }
    const seconds = findGrace(before, gracePeriodSeconds);
    if (seconds === 0 && !metadata.finalizers?.length) {
      return this.#put('DELETED', path, before, before);
    }
    // A grace may only become shorter.
    const earlier = metadata.deletionGracePeriodSeconds ?? 0;
    if (metadata.deletionTimestamp && seconds >= earlier) return before;
    const deletionTimestamp = formatTime(Date.now() + seconds * 1_000);
    const leaving = { ...metadata, deletionTimestamp, deletionGracePeriodSeconds: seconds };
    return this.#update(path, before, { ...before, metadata: leaving });
  }

  /** Does nothing if the object stays the same. Removes one that only waited for its finalizers. */
  #update(path: ObjectPath, before: KubeObject, next: KubeObject): KubeObject {
    const { deletionGracePeriodSeconds: grace, deletionTimestamp, finalizers } = next.metadata;
    if (isDeepStrictEqual(next, before)) return before;
    const isOver = deletionTimestamp && !finalizers?.length && !grace;
    return this.#put(isOver ? 'DELETED' : 'MODIFIED', path, next, before);
  }

  #put(
    type: ObjectChange['type'],
    path: ObjectPath,
    next: KubeObject,
    before: KubeObject | undefined,
  ): KubeObject {
    const object = structuredClone(next);
    const version = ++this.version;
    object.metadata.resourceVersion = String(version);
    if (type === 'DELETED') this.#objects.delete(keyOf(path));
    else this.#objects.set(keyOf(path), object);
    const change = { type, plural: path.plural, version, object, before };
    this.#history.push(change);
    for (const listener of this.#listeners) listener(change);
    return object;
  }
}

function keyOf({ name, namespace, plural }: ObjectPath): string {
  return `${plural}/${namespace ?? ''}/${name}`;
}

function invalid({ kind, metadata }: KubeObject, what: string): KubeError {
  return new KubeError(422, 'Invalid', `${kind} "${metadata.name}" is invalid: ${what}`);
}

function conflict({ kind, metadata }: KubeObject, what: string): KubeError {
  return new KubeError(409, 'Conflict', `${kind} "${metadata.name}" cannot be changed: ${what}`);
}

function parseObject(body: unknown): KubeObject {
  const parsed = objectSchema.safeParse(body);
  if (parsed.success) return parsed.data;
  throw new KubeError(400, 'BadRequest', `the object is invalid: ${parsed.error.message}`);
}

function checkNames(object: KubeObject): void {
  const { labels, name } = object.metadata;
  if (!NAME.test(name)) throw invalid(object, `metadata.name: Invalid value: "${name}"`);
  const bad = Object.values(labels ?? {}).find((value) => !LABEL_VALUE.test(value));
  if (bad !== undefined) throw invalid(object, `metadata.labels: Invalid value: "${bad}"`);
}

function addDefaults(object: KubeObject): KubeObject {
  const { kind, metadata, spec } = object;
  const status = { phase: 'Pending' };
  if (kind === 'Pod') {
    const defaults = { restartPolicy: 'Always', terminationGracePeriodSeconds: 30 };
    return { ...object, spec: { ...defaults, ...spec }, status };
  }
  if (kind !== 'PersistentVolumeClaim') return object;
  // Removed by a controller when no pod uses the claim.
  const finalizers = ['kubernetes.io/pvc-protection'];
  return { ...object, metadata: { ...metadata, finalizers }, status };
}

/** Only pods have a grace: those that a node has and that have not ended. */
function findGrace({ kind, spec, status }: KubeObject, asked: number | undefined): number {
  const hasEnded = ['Succeeded', 'Failed'].includes(String(status?.['phase']));
  if (kind !== 'Pod' || !spec?.['nodeName'] || hasEnded) return 0;
  return asked ?? Number(spec['terminationGracePeriodSeconds']);
}

function mergeFields(target: Fields, patch: unknown): Fields {
  if (!isFields(patch)) throw new KubeError(400, 'BadRequest', 'the patch is not an object');
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete target[name];
    else if (isFields(value)) {
      const before = target[name];
      target[name] = mergeFields(isFields(before) ? before : {}, value);
    } else target[name] = value;
  }
  return target;
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
