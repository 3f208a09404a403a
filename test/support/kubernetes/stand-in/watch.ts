// Sends the changes of a selection to one watcher, as lines of JSON.
import type { ServerResponse } from 'node:http';
import { KubeError, type KubeObject } from '../objects.ts';
import type { ObjectStore, StoredChange } from './object-store.ts';
import type { ResourcePath } from './resources.ts';
import type { Selector } from './selectors.ts';

export interface WatchOptions {
  store: ObjectStore;
  path: ResourcePath;
  selects: Selector;
  /** Undefined: begins with all objects that exist. */
  since: number | undefined;
  /** Ends the watch, after a bookmark. */
  timeoutMs: number;
  bookmarks: 'wanted' | 'none';
}

/** Answers until the watcher leaves, the time is over, or `end` is called. */
export class Watch {
  readonly #response: ServerResponse;
  readonly #options: WatchOptions;
  readonly #unlisten: () => void;
  readonly #timer: NodeJS.Timeout;

  constructor(response: ServerResponse, options: WatchOptions) {
    this.#response = response;
    this.#options = options;
    const { path, since, store, timeoutMs } = options;
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    this.#unlisten = store.listen((change) => this.#tell(change));
    this.#timer = setTimeout(() => this.end(), timeoutMs);
    response.once('close', () => this.#stop());
    const missed = since === undefined ? [] : store.changesSince(since);
    if (missed === undefined) {
      this.fail(new KubeError(410, 'Expired', `too old resource version: ${since}`));
      return;
    }
    if (since === undefined) {
      const all = store.list(path.resource, path.namespace).filter(options.selects);
      for (const object of all) this.#send('ADDED', object);
    }
    for (const change of missed) this.#tell(change);
  }

  #tell({ before, object, resource, type }: StoredChange): void {
    const { path, selects } = this.#options;
    if (resource !== path.resource) return;
    if (path.namespace !== undefined && object.metadata.namespace !== path.namespace) return;
    if (path.name !== undefined && object.metadata.name !== path.name) return;
    const wasSelected = before !== undefined && selects(before);
    const isSelected = type !== 'DELETED' && selects(object);
    if (isSelected) this.#send(wasSelected ? 'MODIFIED' : 'ADDED', object);
    else if (wasSelected) this.#send('DELETED', object);
  }

  #send(type: string, object: unknown): void {
    this.#response.write(`${JSON.stringify({ type, object })}\n`);
  }

  sendBookmark(): void {
    const { path, store } = this.#options;
    const metadata = { resourceVersion: String(store.version), creationTimestamp: null };
    this.#send('BOOKMARK', { kind: path.resource.kind, apiVersion: 'v1', metadata });
  }

  /** Ends it with an error, as the API server does when the version is too old. */
  fail(error: KubeError): void {
    this.#send('ERROR', describeProblem(error));
    this.#stop();
    this.#response.end();
  }

  end(): void {
    if (this.#options.bookmarks === 'wanted') this.sendBookmark();
    this.#stop();
    this.#response.end();
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#unlisten();
  }
}

export function describeProblem({ code, message, reason }: KubeError): unknown {
  const base = { kind: 'Status', apiVersion: 'v1', metadata: {} };
  return { ...base, status: 'Failure', message, reason, code };
}

/** Its items have only metadata; an empty list is null, as the API server of 1.20 writes it. */
export function describeMetadata(items: readonly KubeObject[], version: number): unknown {
  const metadata = { resourceVersion: String(version) };
  const parts = items.map((item) => ({ metadata: item.metadata }));
  const list = { kind: 'PartialObjectMetadataList', apiVersion: 'meta.k8s.io/v1', metadata };
  return { ...list, items: parts.length === 0 ? null : parts };
}

export function describeList(
  { resource }: ResourcePath,
  items: readonly KubeObject[],
  version: number,
): unknown {
  const metadata = { resourceVersion: String(version) };
  return { kind: `${resource.kind}List`, apiVersion: 'v1', metadata, items };
}
