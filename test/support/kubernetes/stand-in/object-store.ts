// The objects of the stand-in with their versions, and the history that watches read.
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { KubeError, type KubeObject, type WatchEventType } from '../objects.ts';
import type { Resource } from './resources.ts';

export interface StoredChange {
  type: Extract<WatchEventType, 'ADDED' | 'MODIFIED' | 'DELETED'>;
  resource: Resource;
  version: number;
  object: KubeObject;
  /** Undefined: the object is new. */
  before: KubeObject | undefined;
}

/** Changes that a watch may go back. */
const MAX_HISTORY = 1_000;
/** Earlier ones are always too old, as on a server that has run for a while. */
const FIRST_VERSION = 100;

export class ObjectStore {
  readonly #objects = new Map<string, KubeObject>();
  readonly #listeners = new Set<(change: StoredChange) => void>();
  #history: StoredChange[] = [];
  #version = FIRST_VERSION;
  /** Changes up to this version are forgotten. */
  #forgotten = FIRST_VERSION;

  /** Version of the last change. */
  get version(): number {
    return this.#version;
  }

  /** Forgets the changes so far, as etcd does when it compacts. */
  compact(): void {
    this.#history = [];
    this.#forgotten = this.#version;
  }

  /** Undefined if some of them are forgotten. */
  changesSince(version: number): StoredChange[] | undefined {
    if (version < this.#forgotten) return undefined;
    return this.#history.filter((change) => change.version > version);
  }

  /** @returns the function that removes the listener */
  listen(listener: (change: StoredChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** @throws KubeError 404 */
  get(resource: Resource, namespace: string | undefined, name: string): KubeObject {
    const found = this.#objects.get(keyOf(resource, namespace, name));
    if (found) return found;
    throw new KubeError(404, 'NotFound', `${resource.plural} "${name}" not found`);
  }

  has(resource: Resource, namespace: string | undefined, name: string): boolean {
    return this.#objects.has(keyOf(resource, namespace, name));
  }

  /** Of all namespaces if it is undefined; ordered by namespace and name, as etcd does. */
  list(resource: Resource, namespace: string | undefined): KubeObject[] {
    const prefix = namespace === undefined ? `${resource.plural}/` : keyOf(resource, namespace, '');
    return [...this.#objects]
      .filter(([key]) => key.startsWith(prefix))
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, object]) => object);
  }

  /** @throws KubeError 409 */
  create(resource: Resource, object: KubeObject): KubeObject {
    const { name, namespace } = object.metadata;
    const key = keyOf(resource, namespace, name);
    if (this.#objects.has(key)) {
      throw new KubeError(409, 'AlreadyExists', `${resource.plural} "${name}" already exists`);
    }
    const created = structuredClone(object);
    created.metadata.uid = randomUUID();
    created.metadata.creationTimestamp = formatTime(Date.now());
    delete created.metadata.deletionTimestamp;
    return this.#put({ type: 'ADDED', resource, object: created });
  }

  /** Does nothing if the object stays the same. Removes one that only waited for its finalizers. */
  update(resource: Resource, before: KubeObject, next: KubeObject): KubeObject {
    const object = structuredClone(next);
    const { metadata } = object;
    const isEnding = before.metadata.deletionTimestamp && !metadata.finalizers?.length;
    if (isEnding && !metadata.deletionGracePeriodSeconds) return this.remove(resource, object);
    object.metadata.resourceVersion = before.metadata.resourceVersion;
    if (isDeepStrictEqual(object, before)) return before;
    return this.#put({ type: 'MODIFIED', resource, object, before });
  }

  remove(resource: Resource, object: KubeObject): KubeObject {
    const { name, namespace } = object.metadata;
    const before = this.get(resource, namespace, name);
    return this.#put({ type: 'DELETED', resource, object: structuredClone(object), before });
  }

  #put(change: Omit<StoredChange, 'version' | 'before'> & { before?: KubeObject }): KubeObject {
    const { object, resource, type } = change;
    const version = ++this.#version;
    object.metadata.resourceVersion = String(version);
    const key = keyOf(resource, object.metadata.namespace, object.metadata.name);
    if (type === 'DELETED') this.#objects.delete(key);
    else this.#objects.set(key, object);
    const stored: StoredChange = { ...change, before: change.before, version };
    this.#history.push(stored);
    if (this.#history.length > MAX_HISTORY) {
      this.#forgotten = this.#history.shift()?.version ?? this.#forgotten;
    }
    for (const listener of this.#listeners) listener(stored);
    return object;
  }
}

function keyOf(resource: Resource, namespace: string | undefined, name: string): string {
  return `${resource.plural}/${namespace ?? ''}/${name}`;
}

/** Times of the API have no fractions of a second. */
export function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}
