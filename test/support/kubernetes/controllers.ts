// The controllers that a cluster has beside its API server, as far as Millrace needs them: garbage
// collection by owners, and claims of volumes.
import { ignoreGone, type KubeClient, type KubeObject, watchAll } from './client.ts';

const KINDS = ['pods', 'secrets', 'persistentvolumeclaims'] as const;
type Kind = (typeof KINDS)[number];

const PROTECTION = 'kubernetes.io/pvc-protection';

export class Controllers {
  readonly #client: KubeClient;
  readonly #stopped = new AbortController();
  readonly #seen = new Map<Kind, ReadonlyMap<string, KubeObject>>();
  readonly #watching: Promise<void>[];
  #work = Promise.resolve();
  #isDue = false;

  constructor(client: KubeClient) {
    this.#client = client;
    this.#watching = KINDS.map((kind) =>
      watchAll(client, `/api/v1/${kind}`, this.#stopped.signal, (objects) => {
        this.#seen.set(kind, objects);
        this.#workSoon();
      }),
    );
  }

  async close(): Promise<void> {
    this.#stopped.abort();
    await Promise.all([...this.#watching, this.#work]);
  }

  #workSoon(): void {
    if (this.#isDue || this.#seen.size < KINDS.length) return;
    this.#isDue = true;
    this.#work = this.#work
      .then(() => {
        this.#isDue = false;
        return this.#pass();
      })
      // The server refuses, as a test wants; the next change comes.
      .catch(() => {});
  }

  async #pass(): Promise<void> {
    for (const kind of KINDS) {
      for (const object of this.#list(kind)) await this.#collect(kind, object);
    }
    for (const claim of this.#list('persistentvolumeclaims')) await this.#attendClaim(claim);
  }

  #list(kind: Kind): KubeObject[] {
    return [...(this.#seen.get(kind)?.values() ?? [])];
  }

  /** Removes an object whose owners are all gone. The copies may lag: it asks for each owner. */
  async #collect(kind: Kind, { metadata }: KubeObject): Promise<void> {
    const owners = metadata.ownerReferences ?? [];
    if (owners.length === 0 || metadata.deletionTimestamp) return;
    for (const { kind: ownerKind, name, uid } of owners) {
      if (KINDS.some((each) => this.#seen.get(each)?.has(uid))) return;
      const plural = ownerKind === 'Pod' ? 'pods' : 'secrets';
      const owner = await this.#client.find(`${pathOf(plural, metadata.namespace)}/${name}`);
      if (owner?.metadata.uid === uid) return;
    }
    const options = { preconditions: { uid: metadata.uid } };
    const path = `${pathOf(kind, metadata.namespace)}/${metadata.name}`;
    await this.#client.remove(path, options).catch(ignoreGone);
  }

  /** Each claim gets a volume at once; a deleted one goes when no pod uses it. */
  async #attendClaim({ metadata, status }: KubeObject): Promise<void> {
    const path = `${pathOf('persistentvolumeclaims', metadata.namespace)}/${metadata.name}`;
    if (!metadata.deletionTimestamp) {
      if (status?.['phase'] === 'Bound') return;
      const patch = { metadata: { uid: metadata.uid }, status: { phase: 'Bound' } };
      await this.#client.patch(`${path}/status`, patch).catch(ignoreGone);
      return;
    }
    if (!metadata.finalizers?.includes(PROTECTION)) return;
    const { items } = await this.#client.list(pathOf('pods', metadata.namespace));
    if (items.some((pod) => usesClaim(pod, metadata.name))) return;
    const finalizers = metadata.finalizers.filter((each) => each !== PROTECTION);
    const patch = { metadata: { uid: metadata.uid, finalizers } };
    await this.#client.patch(path, patch).catch(ignoreGone);
  }
}

function pathOf(kind: Kind, namespace = ''): string {
  return `/api/v1/namespaces/${namespace}/${kind}`;
}

/** A pod that has ended uses none. */
function usesClaim({ spec, status }: KubeObject, claim: string): boolean {
  if (status?.['phase'] === 'Succeeded' || status?.['phase'] === 'Failed') return false;
  return JSON.stringify(spec?.['volumes'] ?? []).includes(`"claimName":${JSON.stringify(claim)}`);
}
